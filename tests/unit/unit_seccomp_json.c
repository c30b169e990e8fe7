#include "seccomp_json.h"

#include <string.h>

#include "seccomp_filter.h"
#include "unit.h"

/* The program that process 1 loads reports it; the profile in front of it lets it through. */
static void test_what_the_program_reports_gets_to_it(void **state) {
    (void)state;
    for (int set = 0; set < 2; set++) {
        struct buf out;
        struct err err = {0};
        buf_init(&out, 1u << 20);
        unit_works(seccomp_profile((enum policy_syscalls)set, &out, &err), err);
        assert_non_null(strstr(out.data, "{\"names\":[\"listen\"],\"action\":\"SCMP_ACT_ALLOW\""));
        buf_done(&out);
    }
}

/* There is no other way to say it to an engine. */
static void test_other_actions_are_refused(void **state) {
    (void)state;
    struct buf out;
    struct err err = {0};
    buf_init(&out, 4096);
    struct seccomp_json json = {.out = &out, .comma = ""};
    const struct seccomp_json_args any = {0, NULL};
    unit_fails(seccomp_json_rule(&json, "getpid", SCMP_ACT_TRAP, any, &err), err, ERR_INVALID);
    unit_works(seccomp_json_rule(&json, "getpid", SCMP_ACT_ERRNO(1), any, &err), err);
    buf_done(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_program_reports_gets_to_it),
        cmocka_unit_test(test_other_actions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
