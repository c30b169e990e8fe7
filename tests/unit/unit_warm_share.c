/* Who has had more than his part of the jails that are kept ready. */
#include "warm_share.h"

#include <stdio.h>

#include "unit.h"

#define S ((uint64_t)CLOCK_NS_PER_S)
#define MS CLOCK_NS_PER_MS

/* `count` starts of this user, one every `step` from `now` on. -> was he told to be modest at the
 * last? */
static bool starts(struct warm_share *w, const char *user, unsigned count, uint64_t now,
                   uint64_t step) {
    bool modest = false;
    for (unsigned i = 0; i < count; i++)
        modest = warm_share_start(w, user, now + i * step);
    return modest;
}

static void test_who_is_alone_may_have_all(void **state) {
    (void)state;
    struct warm_share w = {0};
    assert_false(starts(&w, "ann", 5000, 100 * S, MS));
}

static void test_everybody_may_have_a_few(void **state) {
    (void)state;
    struct warm_share w = {0};
    assert_false(starts(&w, "ann", 1, 100 * S, MS));
    assert_false(starts(&w, "bob", WARM_SHARE_FEW, 100 * S, MS));
}

static void test_who_starts_many_beside_another_is_modest_and_the_other_is_not(void **state) {
    (void)state;
    struct warm_share w = {0};
    assert_false(starts(&w, "nora", 1, 100 * S, MS));
    assert_true(starts(&w, "mallory", 200, 100 * S, 5 * MS));
    assert_false(starts(&w, "nora", 20, 101 * S, 5 * MS));
    assert_true(starts(&w, "mallory", 1, 101 * S + 100 * MS, MS));
}

static void test_those_who_start_equally_many_are_all_free_to(void **state) {
    (void)state;
    struct warm_share w = {0};
    char name[16];
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < 10; i++) {
            (void)snprintf(name, sizeof(name), "user%u", i);
            assert_false(warm_share_start(&w, name, 100 * S + round * 50 * MS + i));
        }
    }
}

static void test_what_was_long_ago_is_forgotten(void **state) {
    (void)state;
    struct warm_share w = {0};
    assert_false(starts(&w, "nora", 1, 100 * S, MS));
    assert_true(starts(&w, "mallory", 100, 100 * S, MS));
    assert_false(starts(&w, "mallory", 1, 110 * S, MS)); /* he rested */
    assert_true(starts(&w, "mallory", 100, 150 * S, MS));
    /* She has not been here for a minute: he is alone. */
    assert_false(starts(&w, "mallory", 1000, 161 * S, MS));
}

static void test_more_users_than_are_remembered_do_no_harm(void **state) {
    (void)state;
    struct warm_share w = {0};
    char name[16];
    for (unsigned i = 0; i < 3 * WARM_SHARE_USERS; i++) {
        (void)snprintf(name, sizeof(name), "user%u", i);
        assert_false(warm_share_start(&w, name, 100 * S + i));
    }
    assert_int_equal(w.count, WARM_SHARE_USERS);
    assert_true(starts(&w, "mallory", 100, 100 * S + MS, MS));
    assert_false(warm_share_start(&w, "nora", 100 * S + 200 * MS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_alone_may_have_all),
        cmocka_unit_test(test_everybody_may_have_a_few),
        cmocka_unit_test(test_who_starts_many_beside_another_is_modest_and_the_other_is_not),
        cmocka_unit_test(test_those_who_start_equally_many_are_all_free_to),
        cmocka_unit_test(test_what_was_long_ago_is_forgotten),
        cmocka_unit_test(test_more_users_than_are_remembered_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
