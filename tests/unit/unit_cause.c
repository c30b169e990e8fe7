#include "cause.h"

#include <string.h>

#include "unit.h"

static void test_every_cause_has_one_name(void **state) {
    (void)state;
    for (uint32_t i = 1; i < CAUSE_COUNT; i++) {
        const char *name = cause_name(i);
        assert_non_null(name);
        assert_int_equal(cause_by_name(name), i);
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
    }
    assert_string_equal(cause_name(CAUSE_EXIT), "exit");
    assert_string_equal(cause_name(CAUSE_LOST_CLIENT), "lost_client");
    assert_string_equal(cause_name(CAUSE_INTERNAL), "internal");
}

static void test_out_of_range(void **state) {
    (void)state;
    assert_null(cause_name(CAUSE_NONE));
    assert_null(cause_name(CAUSE_COUNT));
    assert_null(cause_name(UINT32_MAX));
}

static void test_unknown_names(void **state) {
    (void)state;
    static const char *const bad[] = {"", "none", "EXIT", "exit ", "exi", "exit_"};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        assert_int_equal(cause_by_name(bad[i]), CAUSE_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cause_has_one_name),
        cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
