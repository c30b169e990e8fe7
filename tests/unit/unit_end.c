#include "end.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "unit.h"

#define EXITED(code) ((code) << 8)
#define KILLED(sig) (sig)
#define MIB (1024u * 1024u)

static struct end_facts unit_facts(int status) {
    struct end_facts f = {.started = true,
                          .start_ns = 1000,
                          .exited = true,
                          .status = status,
                          .exit_ns = 5000000000ULL,
                          .jail_mem_limit = 64 * MIB};
    f.limits.v[LIMIT_MEM_BYTES] = 64 * MIB;
    f.limits.v[LIMIT_WALL_MS] = 2000;
    f.limits.v[LIMIT_CPU_MS] = 300;
    f.limits.v[LIMIT_PIDS] = 64;
    f.limits.v[LIMIT_DISK_BYTES] = 100;
    return f;
}

static struct wire_end unit_decide(const struct end_facts *f) {
    struct wire_end end;
    memset(&end, 0xee, sizeof end);
    memset(end.stage, 0, sizeof end.stage);
    memset(end.path, 0, sizeof end.path);
    end_decide(f, &end);
    return end;
}

static void exit_codes_are_numbers_and_never_signals(void **state) {
    static const int codes[] = {0, 1, 126, 127, 137, 143, 255};
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(codes); i++) {
        struct end_facts f = unit_facts(EXITED(codes[i]));
        struct wire_end end = unit_decide(&f);
        assert_int_equal(end.cause, CAUSE_EXIT);
        assert_int_equal(end.exit_code, codes[i]);
        assert_int_equal(end.signal, 0);
    }
}

static void a_signal_of_its_own_is_signal(void **state) {
    static const int signals[] = {SIGTERM, SIGABRT, SIGSEGV, SIGBUS, SIGKILL};
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(signals); i++) {
        struct end_facts f = unit_facts(KILLED(signals[i]));
        struct wire_end end = unit_decide(&f);
        assert_int_equal(end.cause, CAUSE_SIGNAL);
        assert_int_equal(end.signal, signals[i]);
        assert_int_equal(end.exit_code, -1);
    }
}

static void sigkill_with_an_oom_kill_at_the_limit_is_memory(void **state) {
    (void)state;
    struct end_facts f = unit_facts(KILLED(SIGKILL));
    f.oom_kills = 1;
    f.mem_peak_bytes = 64 * MIB - 4096;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_MEMORY);
    assert_int_equal(end.limit, 64 * MIB);
    assert_int_equal(end.observed, f.mem_peak_bytes);
}

static void an_oom_kill_for_the_jails_limit_is_memory_too(void **state) {
    (void)state;
    struct end_facts f = unit_facts(KILLED(SIGKILL));
    f.oom_kills = 1;
    f.mem_peak_bytes = 30 * MIB; /* the rest is files of an earlier step */
    f.jail_mem_peak_bytes = 64 * MIB;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_MEMORY);
    assert_int_equal(end.observed, 64 * MIB);
}

static void an_oom_kill_under_the_limit_is_the_hosts(void **state) {
    (void)state;
    struct end_facts f = unit_facts(KILLED(SIGKILL));
    f.oom_kills = 1;
    f.mem_peak_bytes = 10 * MIB;
    f.jail_mem_peak_bytes = 12 * MIB;
    assert_int_equal(unit_decide(&f).cause, CAUSE_MEMORY_HOST);
}

static void an_oom_kill_of_a_child_does_not_change_the_cause(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(0));
    f.oom_kills = 1;
    f.mem_peak_bytes = 64 * MIB;
    assert_int_equal(unit_decide(&f).cause, CAUSE_EXIT);
    f = unit_facts(KILLED(SIGTERM));
    f.oom_kills = 1;
    assert_int_equal(unit_decide(&f).cause, CAUSE_SIGNAL);
}

static void the_filters_kill_is_told_from_a_sigsys_that_was_sent(void **state) {
    (void)state;
    struct end_facts f = unit_facts(KILLED(SIGSYS));
    f.filtered = true;
    f.syscall_nr = 20;
    f.syscall_arch = 0x40000003;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_SYSCALL);
    assert_int_equal(end.syscall_nr, 20);
    assert_int_equal(end.syscall_arch, 0x40000003);
    f.status = EXITED(4); /* it caught the signal and went on */
    assert_int_equal(unit_decide(&f).cause, CAUSE_EXIT);
    f = unit_facts(KILLED(SIGSYS));
    end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_SIGNAL);
    assert_int_equal(end.signal, SIGSYS);
    assert_int_equal(end.syscall_nr, 0);
}

static void what_was_imposed_first_is_the_cause(void **state) {
    static const enum cause causes[] = {CAUSE_WALL_TIME,   CAUSE_CPU_TIME,   CAUSE_PIDS,
                                        CAUSE_DISK,        CAUSE_OUTPUT,     CAUSE_CANCELLED,
                                        CAUSE_LOST_CLIENT, CAUSE_INTERRUPTED};
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(causes); i++) {
        struct end_facts f = unit_facts(KILLED(SIGKILL));
        f.imposed = causes[i];
        f.imposed_ns = f.exit_ns - 1;
        f.oom_kills = 1; /* later, and secondary */
        f.mem_peak_bytes = 64 * MIB;
        struct wire_end end = unit_decide(&f);
        assert_int_equal(end.cause, causes[i]);
        assert_int_equal(end.signal, SIGKILL);
        assert_int_equal(end.exit_code, -1);
    }
}

static void a_handler_that_exits_0_at_the_limit_does_not_win(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(0));
    f.imposed = CAUSE_WALL_TIME;
    f.imposed_ns = f.exit_ns - 1;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_WALL_TIME);
    assert_int_equal(end.exit_code, -1);
    assert_int_equal(end.limit, 2000);
}

static void a_limit_that_comes_after_the_exit_is_too_late(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(3));
    f.imposed = CAUSE_WALL_TIME;
    f.imposed_ns = f.exit_ns + 1;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_EXIT);
    assert_int_equal(end.exit_code, 3);
}

static void a_cap_to_end_on_counts_even_when_it_ended_by_itself(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(0));
    f.pids_refused = 3;
    f.disk_full = true;
    assert_int_equal(unit_decide(&f).cause, CAUSE_EXIT);
    f.end_on = END_ON_DISK;
    assert_int_equal(unit_decide(&f).cause, CAUSE_DISK);
    f.end_on = END_ON_PIDS;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_PIDS);
    assert_int_equal(end.limit, 64);
    assert_int_equal(end.observed, 64);
    f.started = false;
    assert_int_equal(unit_decide(&f).cause, CAUSE_INTERNAL);
}

static void a_full_disk_names_the_limit_that_was_met(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(1));
    f.disk_full = true;
    f.end_on = END_ON_DISK;
    f.limits.v[LIMIT_DISK_BYTES] = 64 * MIB;
    f.limits.v[LIMIT_INODES] = 1000;
    f.disk_bytes = 64 * MIB;
    f.inodes = 12;
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.limit, 64 * MIB);
    assert_int_equal(end.observed, 64 * MIB);
    f.disk_bytes = 2 * MIB;
    f.inodes = 990;
    end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_DISK);
    assert_int_equal(end.limit, 1000);
    assert_int_equal(end.observed, 990);
}

static void a_refused_exec_is_start_with_path_and_errno(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(125));
    f.refused = true;
    f.refused_code = ENOENT;
    memcpy(f.refused_stage, "exec", sizeof "exec");
    memcpy(f.refused_path, "/no/such", sizeof "/no/such");
    struct wire_end end = unit_decide(&f);
    assert_int_equal(end.cause, CAUSE_START);
    assert_int_equal(end.code, ENOENT);
    assert_int_equal(end.exit_code, -1);
    assert_string_equal(end.stage, "exec");
    assert_string_equal(end.path, "/no/such");
}

static void a_child_that_dies_before_exec_is_our_fault(void **state) {
    (void)state;
    struct end_facts f = unit_facts(EXITED(125));
    f.started = false;
    assert_int_equal(unit_decide(&f).cause, CAUSE_INTERNAL);
    f = unit_facts(KILLED(SIGKILL));
    f.started = false;
    assert_int_equal(unit_decide(&f).cause, CAUSE_INTERNAL);
}

static void out_of_memory_before_exec_is_still_memory(void **state) {
    (void)state;
    struct end_facts f = unit_facts(KILLED(SIGKILL));
    f.started = false;
    f.oom_kills = 1;
    f.mem_peak_bytes = 64 * MIB;
    assert_int_equal(unit_decide(&f).cause, CAUSE_MEMORY);
}

static void nothing_observed_is_internal(void **state) {
    (void)state;
    struct end_facts f = {0};
    assert_int_equal(unit_decide(&f).cause, CAUSE_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_are_numbers_and_never_signals),
        cmocka_unit_test(a_signal_of_its_own_is_signal),
        cmocka_unit_test(sigkill_with_an_oom_kill_at_the_limit_is_memory),
        cmocka_unit_test(an_oom_kill_for_the_jails_limit_is_memory_too),
        cmocka_unit_test(an_oom_kill_under_the_limit_is_the_hosts),
        cmocka_unit_test(an_oom_kill_of_a_child_does_not_change_the_cause),
        cmocka_unit_test(the_filters_kill_is_told_from_a_sigsys_that_was_sent),
        cmocka_unit_test(what_was_imposed_first_is_the_cause),
        cmocka_unit_test(a_handler_that_exits_0_at_the_limit_does_not_win),
        cmocka_unit_test(a_limit_that_comes_after_the_exit_is_too_late),
        cmocka_unit_test(a_cap_to_end_on_counts_even_when_it_ended_by_itself),
        cmocka_unit_test(a_full_disk_names_the_limit_that_was_met),
        cmocka_unit_test(a_refused_exec_is_start_with_path_and_errno),
        cmocka_unit_test(a_child_that_dies_before_exec_is_our_fault),
        cmocka_unit_test(out_of_memory_before_exec_is_still_memory),
        cmocka_unit_test(nothing_observed_is_internal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
