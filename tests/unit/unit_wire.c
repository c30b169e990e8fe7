#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "spec.h"
#include "unit.h"
#include "wire_packets.h"

/* Checks a copy of exactly the packet's size, so that the sanitizer sees one byte too far. */
static int check(const struct packet *p, bool reply, struct err *err) {
    void *copy = malloc(p->size ? p->size : 1);
    assert_non_null(copy);
    memcpy(copy, p->bytes, p->size);
    int rc = reply ? wire_check_reply(copy, p->size, p->nfds, err)
                   : wire_check_request(copy, p->size, p->nfds, err);
    free(copy);
    return rc;
}

static void right(const struct packet *p, bool reply) {
    struct err err = {0};
    unit_works(check(p, reply, &err), err);
}

/* Refused, and the sentence names `field`. */
static void wrong(const struct packet *p, bool reply, const char *field) {
    struct err err = {0};
    unit_fails(check(p, reply, &err), err, ERR_PROTOCOL);
    if (!strstr(err.text, field))
        fail_msg("\"%s\" does not name %s", err.text, field);
}

static void check_head(maker *make, bool reply) {
    struct packet p;
    make(&p);
    right(&p, reply);
    wrong(&p, !reply, "type");
    uint64_t jail = p.head.jail;
    p.head.jail = jail ? 0 : 1;
    wrong(&p, reply, "jail");
    p.head.jail = jail;
    p.head.version++;
    wrong(&p, reply, "version");
    p.head.version--;
    p.head.size++;
    wrong(&p, reply, "size");
    p.size++;
    wrong(&p, reply, "");
    p.size -= 2;
    p.head.size -= 2;
    wrong(&p, reply, "");
    make(&p);
    p.nfds++;
    wrong(&p, reply, "descriptors");
    make(&p);
    for (size_t n = 0; n < p.size; n++) {
        struct packet cut = p;
        cut.size = n;
        wrong(&cut, reply, "");
    }
}

static void test_heads(void **state) {
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(request_makers); i++)
        check_head(request_makers[i], false);
    for (size_t i = 0; i < UNIT_COUNT(reply_makers); i++)
        check_head(reply_makers[i], true);
}

static void test_only_known_types(void **state) {
    (void)state;
    struct packet p;
    int accepted = 0;
    for (uint32_t type = 0; type < 300; type++) {
        start(&p, (enum wire_type)type, sizeof(p.head), 0, 0);
        struct err err = {0};
        accepted += check(&p, false, &err) == 0;
        accepted += check(&p, true, &err) == 0;
    }
    assert_int_equal(accepted, 3); /* HELLO, READY and LOOKED are a head alone */
}

static void test_exec_number_only_where_one_is_meant(void **state) {
    (void)state;
    struct packet p;
    make_open(&p);
    p.head.exec = 1;
    wrong(&p, false, "exec");
    make_close(&p);
    p.head.exec = 1;
    wrong(&p, false, "exec");
    make_failed(&p);
    p.head.exec = 1;
    wrong(&p, true, "exec");
    make_kill(&p);
    p.head.exec = UINT32_MAX;
    right(&p, false);
}

static void test_open(void **state) {
    (void)state;
    struct packet p;
    make_open(&p);
    memset(p.open.policy, 'a', sizeof(p.open.policy));
    wrong(&p, false, "policy");
    p.open.policy[63] = '\0';
    right(&p, false);
    memcpy(p.open.policy, "../x", 5);
    wrong(&p, false, "policy");
    make_open(&p);
    p.open.image[0] = '\0';
    wrong(&p, false, "image");
    make_open(&p);
    p.open.network = 1;
    wrong(&p, false, "network");
    make_open(&p);
    p.open.reserved = 1;
    wrong(&p, false, "reserved");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        make_open(&p);
        p.open.limits.v[i]--;
        wrong(&p, false, "limits");
        p.open.limits.v[i] = limit_info((enum limit_id)i)->max;
        right(&p, false);
        p.open.limits.v[i]++;
        wrong(&p, false, "limits");
    }
}

static void test_exec_descriptors(void **state) {
    (void)state;
    struct packet p;
    for (uint32_t mask = 0; mask < 1024; mask++) {
        make_exec(&p);
        p.exec.fds = mask;
        p.nfds = wire_fd_count(mask);
        if (mask & WIRE_FD_SPEC)
            p.size = p.head.size = (uint32_t)sizeof(p.exec);
        if ((mask & WIRE_FD_STDOUT) && mask <= WIRE_FD_ALL)
            right(&p, false);
        else
            wrong(&p, false, "fds");
    }
    make_exec(&p);
    p.nfds = 1;
    wrong(&p, false, "descriptors");
    assert_int_equal(wire_fd_count(WIRE_FD_ALL), 9);
    assert_int_equal(wire_fd_count(0), 0);
}

static void test_exec_spec_sizes(void **state) {
    (void)state;
    struct packet p;
    make_exec(&p);
    p.exec.spec_size = 39;
    wrong(&p, false, "spec_size");
    make_exec(&p);
    p.size = p.head.size = (uint32_t)(sizeof(p.exec) + sizeof(struct spec_head));
    p.exec.spec_size = sizeof(struct spec_head);
    wrong(&p, false, "spec_size");
    make_exec(&p);
    p.exec.spec_size = WIRE_SPEC_INLINE_MAX;
    p.size = p.head.size = (uint32_t)(sizeof(p.exec) + WIRE_SPEC_INLINE_MAX);
    right(&p, false);
    p.exec.spec_size++;
    p.size = ++p.head.size;
    wrong(&p, false, "size");
    make_exec(&p);
    p.exec.fds |= WIRE_FD_SPEC;
    p.nfds = 3;
    wrong(&p, false, "spec_size"); /* both inline and apart */
    p.size = p.head.size = (uint32_t)sizeof(p.exec);
    p.exec.spec_size = WIRE_SPEC_MAX;
    right(&p, false);
    p.exec.spec_size++;
    wrong(&p, false, "spec_size");
}

static void test_exec_fields(void **state) {
    (void)state;
    struct packet p;
    make_exec(&p);
    p.exec.flags = WIRE_EXEC_SHELL | WIRE_EXEC_MORE;
    p.exec.end_on = END_ON_ALL;
    right(&p, false);
    p.exec.flags = 8;
    wrong(&p, false, "flags");
    make_exec(&p);
    p.exec.reserved = 1;
    wrong(&p, false, "reserved");
    make_exec(&p);
    p.exec.end_on = 8;
    wrong(&p, false, "end_on");
    make_exec(&p);
    p.exec.kind = 3;
    wrong(&p, false, "kind");
    make_exec(&p);
    p.exec.collect_files = 1;
    wrong(&p, false, "collect");
    make_exec(&p);
    p.exec.limits.v[LIMIT_WALL_MS] = 0;
    wrong(&p, false, "limits");
}

static void test_exec_collect(void **state) {
    (void)state;
    struct packet p;
    make_exec(&p);
    p.exec.kind = WIRE_EXEC_COLLECT;
    wrong(&p, false, "fds"); /* no stderr */
    p.exec.fds = WIRE_FD_STDOUT;
    p.nfds = 1;
    p.exec.collect_bytes = WIRE_COLLECT_BYTES_MAX;
    p.exec.collect_files = WIRE_COLLECT_FILES_MAX;
    right(&p, false);
    p.exec.flags = WIRE_EXEC_SHELL;
    wrong(&p, false, "flags");
    p.exec.flags = 0;
    p.exec.collect_bytes++;
    wrong(&p, false, "collect_bytes");
    p.exec.collect_bytes = 0;
    p.exec.collect_files++;
    wrong(&p, false, "collect_files");
}

static void test_a_terminal_takes_the_place_of_streams_and_has_a_size(void **state) {
    (void)state;
    struct packet p;
    make_exec(&p);
    p.exec.flags = WIRE_EXEC_PTY;
    p.exec.rows = p.exec.cols = 1;
    wrong(&p, false, "fds");
    p.exec.fds = 0;
    p.nfds = 0;
    right(&p, false);
    p.exec.fds = WIRE_FD_KEEP_INPUT;
    p.nfds = 1;
    right(&p, false);
    p.exec.fds = WIRE_FD_KEEP_STDIN;
    wrong(&p, false, "fds");
    p.exec.fds = 0;
    p.nfds = 0;
    p.exec.cols = 0;
    wrong(&p, false, "rows");
    make_exec(&p);
    p.exec.rows = p.exec.cols = 1;
    wrong(&p, false, "rows");
}

static void test_a_file_operation_has_a_stream_in_and_one_out(void **state) {
    (void)state;
    struct packet p;
    make_exec(&p);
    p.exec.kind = WIRE_EXEC_FILES;
    wrong(&p, false, "fds");
    p.exec.fds = WIRE_FD_STDIN | WIRE_FD_STDOUT;
    right(&p, false);
    p.exec.flags = WIRE_EXEC_SHELL;
    wrong(&p, false, "flags");
    p.exec.flags = 0;
    p.exec.collect_files = 1;
    wrong(&p, false, "collect");
}

static void test_sandbox_fields(void **state) {
    (void)state;
    struct packet p;
    make_open(&p);
    p.open.flags = WIRE_OPEN_SANDBOX;
    wrong(&p, false, "key");
    memcpy(p.open.key, "sb_1", 5);
    memcpy(p.open.from, "snap_1", 7);
    p.open.disk = WIRE_DISK_FILE;
    right(&p, false);
    p.open.disk = 2;
    wrong(&p, false, "disk");
    p.open.disk = 0;
    p.open.flags = 0;
    wrong(&p, false, "key"); /* a run is not kept */
    p.open.flags = WIRE_OPEN_MODEST;
    wrong(&p, false, "key");
    p.open.flags = WIRE_OPEN_SANDBOX | WIRE_OPEN_MODEST | WIRE_OPEN_LEFT;
    right(&p, false);
    p.open.flags = WIRE_OPEN_FLAGS + 1;
    wrong(&p, false, "flags");
    make_signal(&p);
    p.signal.signal = 65;
    wrong(&p, false, "signal");
    p.signal.signal = 0; /* lets go of stdin */
    right(&p, false);
    make_weigh(&p);
    p.weigh.shares = 0;
    wrong(&p, false, "shares");
    p.weigh.shares = WIRE_SHARES_LEFT;
    right(&p, false);
    p.weigh.shares = WIRE_SHARES_MAX + 1;
    wrong(&p, false, "shares");
    p.weigh.shares = WIRE_SHARES_MAX;
    right(&p, false);
    make_freeze(&p);
    p.freeze.frozen = 2;
    wrong(&p, false, "frozen");
    make_snapshot(&p);
    memcpy(p.key.key, "../x", 5);
    wrong(&p, false, "key");
    make_done(&p);
    p.done.what = WIRE_EXEC;
    wrong(&p, true, "what");
    make_done(&p);
    p.done.code = -1;
    wrong(&p, true, "code");
    make_kept_exec(&p);
    p.kept_exec.fds = WIRE_FD_STDOUT;
    wrong(&p, true, "fds");
    make_look(&p);
    p.look.what = 0;
    wrong(&p, false, "what");
    p.look.what = 8;
    wrong(&p, false, "what");
    make_kind(&p);
    memcpy(p.kind.image, "../x", 5);
    wrong(&p, true, "image");
    make_seen(&p);
    p.seen.reserved = 1;
    wrong(&p, true, "reserved");
}

static void test_kill_causes(void **state) {
    (void)state;
    struct packet p;
    for (uint32_t cause = 0; cause < 20; cause++) {
        make_kill(&p);
        p.kill.cause = cause;
        if (cause == CAUSE_CANCELLED || cause == CAUSE_LOST_CLIENT || cause == CAUSE_OUTPUT ||
            cause == CAUSE_INTERRUPTED)
            right(&p, false);
        else
            wrong(&p, false, "cause");
    }
    make_kill(&p);
    p.kill.reserved = 1;
    wrong(&p, false, "reserved");
}

static void test_welcome_and_capability(void **state) {
    (void)state;
    struct packet p;
    make_welcome(&p);
    p.welcome.slots = 0;
    wrong(&p, true, "slots");
    make_welcome(&p);
    p.welcome.policies = WIRE_POLICIES_MAX + 1;
    wrong(&p, true, "policies");
    make_welcome(&p);
    p.welcome.capabilities = WIRE_CAPABILITIES_MAX + 1;
    wrong(&p, true, "capabilities");
    /* Only an engine has an image "host" with a digest. */
    make_welcome(&p);
    p.welcome.host_sha256[31] = 1;
    wrong(&p, true, "host_sha256");
    p.welcome.backend = BACKEND_DOCKER;
    right(&p, true);
    make_welcome(&p);
    p.welcome.disk = WIRE_DISK_COUNT;
    wrong(&p, true, "disk");
    make_welcome(&p);
    p.welcome.reserved = 1;
    wrong(&p, true, "reserved");
    make_capability(&p);
    p.capability.status = WIRE_CAP_GIVEN_UP + 1;
    wrong(&p, true, "status");
    make_capability(&p);
    p.capability.required = 2;
    wrong(&p, true, "required");
    make_capability(&p);
    p.capability.name[0] = '\0';
    wrong(&p, true, "name");
    make_capability(&p);
    memset(p.capability.how, 'x', sizeof(p.capability.how));
    wrong(&p, true, "how");
    make_capability(&p);
    memset(p.capability.proof, 'x', sizeof(p.capability.proof));
    wrong(&p, true, "proof");
    make_capability(&p);
    memset(p.capability.remedy, 'x', sizeof(p.capability.remedy));
    wrong(&p, true, "remedy");
}

static void test_policy(void **state) {
    (void)state;
    struct packet p;
    make_policy(&p);
    p.policy.preset.v[LIMIT_PIDS]++;
    wrong(&p, true, "preset");
    p.policy.ceiling.v[LIMIT_PIDS]++;
    right(&p, true);
    p.policy.ceiling.v[LIMIT_PIDS] = UINT64_MAX;
    wrong(&p, true, "ceiling");
    make_policy(&p);
    p.policy.writable = WIRE_WRITABLE_HOME;
    wrong(&p, true, "writable");
    p.policy.writable = WIRE_WRITABLE_ALL + 1 + WIRE_WRITABLE_WORKSPACE;
    wrong(&p, true, "writable");
    make_policy(&p);
    p.policy.max_steps = 0;
    wrong(&p, true, "max_steps");
    make_policy(&p);
    p.policy.end_on = 8;
    wrong(&p, true, "end_on");
    make_policy(&p);
    p.policy.unenforced = 1u << LIMIT_COUNT;
    wrong(&p, true, "unenforced");
    make_policy(&p);
    p.policy.network = 1;
    wrong(&p, true, "network");
    make_policy(&p);
    p.policy.text_size = 3;
    wrong(&p, true, "text_size");
    make_policy(&p);
    p.policy.reserved = 1;
    wrong(&p, true, "reserved");
    make_policy(&p);
    p.policy.backends = BACKEND_BIT(BACKEND_NATIVE);
    wrong(&p, true, "backend");
    p.policy.backend = BACKEND_NONE;
    wrong(&p, true, "backend");
    p.policy.backends = BACKEND_BIT(BACKEND_COUNT);
    wrong(&p, true, "backends");
}

static void test_end(void **state) {
    (void)state;
    static const struct {
        uint32_t cause;
        int32_t exit_code, signal, code;
        const char *wrong; /* NULL: right */
    } rows[] = {
        {CAUSE_EXIT, 0, 0, 0, NULL},          {CAUSE_EXIT, 255, 0, 0, NULL},
        {CAUSE_EXIT, 256, 0, 0, "exit_code"}, {CAUSE_EXIT, -1, 0, 0, "exit_code"},
        {CAUSE_EXIT, 0, 9, 0, "signal"},      {CAUSE_SIGNAL, -1, 64, 0, NULL},
        {CAUSE_SIGNAL, -1, 65, 0, "signal"},  {CAUSE_SIGNAL, -1, 0, 0, "signal"},
        {CAUSE_SIGNAL, -1, -1, 0, "signal"},  {CAUSE_SIGNAL, -2, 9, 0, "exit_code"},
        {CAUSE_MEMORY, -1, 9, 0, NULL},       {CAUSE_START, -1, 0, 2, NULL},
        {CAUSE_START, -1, 0, -2, "code"},     {CAUSE_INTERNAL, -1, 0, 5000, "code"},
        {CAUSE_NONE, -1, 0, 0, "cause"},      {CAUSE_COUNT, -1, 0, 0, "cause"},
        {UINT32_MAX, -1, 0, 0, "cause"},
    };
    struct packet p;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        make_end(&p);
        p.end.cause = rows[i].cause;
        p.end.exit_code = rows[i].exit_code;
        p.end.signal = rows[i].signal;
        p.end.code = rows[i].code;
        if (rows[i].wrong)
            wrong(&p, true, rows[i].wrong);
        else
            right(&p, true);
    }
}

static void test_only_a_refused_call_names_one(void **state) {
    (void)state;
    struct packet p;
    make_end(&p);
    p.end.cause = CAUSE_SYSCALL;
    p.end.exit_code = -1;
    p.end.signal = 31;
    p.end.syscall_nr = 101;
    p.end.syscall_arch = 0xc000003e;
    right(&p, true);
    p.end.cause = CAUSE_SIGNAL;
    wrong(&p, true, "syscall");
    p.end.syscall_nr = 0;
    wrong(&p, true, "syscall");
    p.end.syscall_arch = 0;
    right(&p, true);
}

static void test_texts_end_within_their_arrays(void **state) {
    (void)state;
    struct packet p;
    make_end(&p);
    memset(p.end.stage, 'x', sizeof(p.end.stage));
    wrong(&p, true, "stage");
    make_end(&p);
    memset(p.end.path, '\xff', sizeof(p.end.path));
    wrong(&p, true, "path");
    p.end.path[sizeof(p.end.path) - 1] = '\0';
    right(&p, true);
    make_failed(&p);
    memset(p.failed.text, 'x', sizeof(p.failed.text));
    wrong(&p, true, "text");
    make_failed(&p);
    memset(p.failed.stage, 'x', sizeof(p.failed.stage));
    wrong(&p, true, "stage");
    make_failed(&p);
    p.failed.reserved = 1;
    wrong(&p, true, "reserved");
    make_failed(&p);
    p.failed.code = -1;
    wrong(&p, true, "code");
    make_state(&p);
    memset(p.state.health, 'x', sizeof(p.state.health));
    wrong(&p, true, "health");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_only_known_types),
        cmocka_unit_test(test_exec_number_only_where_one_is_meant),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_exec_descriptors),
        cmocka_unit_test(test_exec_spec_sizes),
        cmocka_unit_test(test_exec_fields),
        cmocka_unit_test(test_exec_collect),
        cmocka_unit_test(test_kill_causes),
        cmocka_unit_test(test_a_terminal_takes_the_place_of_streams_and_has_a_size),
        cmocka_unit_test(test_a_file_operation_has_a_stream_in_and_one_out),
        cmocka_unit_test(test_sandbox_fields),
        cmocka_unit_test(test_welcome_and_capability),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_only_a_refused_call_names_one),
        cmocka_unit_test(test_texts_end_within_their_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
