/* The bound on records that one user can cause. */
#include "audit_rate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

struct sums {
    unsigned count;
    struct audit_rate_entry last;
};

static void take(void *arg, const struct audit_rate_entry *e) {
    struct sums *s = arg;
    s->count++;
    s->last = *e;
}

static void test_first_pass_rest_is_counted(void **state) {
    (void)state;
    struct audit_rate *r = calloc(1, sizeof(*r));
    struct sums sums = {0};
    unsigned passed = 0;
    for (int i = 0; i < 100; i++)
        passed += audit_rate_pass(r, "denied 401", "", 20, 1000);
    assert_int_equal(passed, 20);
    assert_true(audit_rate_pass(r, "denied 401", "eve", 20, 1000));
    assert_true(audit_rate_sum(r, 2000, false, take, &sums));
    assert_int_equal(sums.count, 0);
    assert_false(audit_rate_sum(r, 1000 + AUDIT_RATE_WINDOW_MS, false, take, &sums));
    assert_int_equal(sums.count, 1);
    assert_int_equal(sums.last.left_out, 80);
    assert_string_equal(sums.last.what, "denied 401");
    assert_true(audit_rate_pass(r, "denied 401", "", 20, 2000 + AUDIT_RATE_WINDOW_MS));
    free(r);
}

static void test_a_new_window_begins_by_itself(void **state) {
    (void)state;
    struct audit_rate *r = calloc(1, sizeof(*r));
    for (unsigned minute = 0; minute < 3; minute++)
        for (int i = 0; i < 5; i++)
            assert_true(audit_rate_pass(r, "files", "u", 5, 1 + minute * AUDIT_RATE_WINDOW_MS));
    assert_false(audit_rate_pass(r, "files", "u", 5, 2 + 2 * AUDIT_RATE_WINDOW_MS));
    free(r);
}

/* More names than there is room for are bounded together, and nothing is lost. */
static void test_many_names(void **state) {
    (void)state;
    struct audit_rate *r = calloc(1, sizeof(*r));
    struct sums sums = {0};
    unsigned passed = 0, left_out = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "u%u", i);
        bool ok = audit_rate_pass(r, "denied 403", name, 3, 1000);
        passed += ok;
        left_out += !ok;
    }
    assert_int_equal(passed, AUDIT_RATE_ENTRIES + 3);
    audit_rate_sum(r, 1000, true, take, &sums);
    assert_int_equal(sums.count, 1);
    assert_string_equal(sums.last.what, "others");
    assert_int_equal(sums.last.left_out, left_out);
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_pass_rest_is_counted),
        cmocka_unit_test(test_a_new_window_begins_by_itself),
        cmocka_unit_test(test_many_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
