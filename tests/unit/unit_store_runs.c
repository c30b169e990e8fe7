#include "store_runs.h"

#include <stdio.h>

#include "store_place.h"
#include "unit.h"

static void put_run(struct store *s, const char *id, enum store_run_state state, uint64_t at_ms) {
    struct err err = {0};
    struct store_run row = {
        .user = "ann", .id = id, .state = state, .at_ms = at_ms, .summary = "{}", .record = "r"};
    unit_works(store_runs_put(s, &row, &err), err);
}

static void test_the_oldest_run_may_be_one_that_waits(void **state) {
    struct store *s = *state;
    struct err err = {0};
    struct store_run_old old[2];
    uint64_t at_ms = 7;
    assert_int_equal(store_runs_began(s, &at_ms, &err), 0);
    assert_int_equal(at_ms, 7);
    put_run(s, "run_1", STORE_RUN_QUEUED, 100);
    put_run(s, "run_2", STORE_RUN_DONE, 200);
    assert_int_equal(store_runs_began(s, &at_ms, &err), 1);
    assert_int_equal(at_ms, 100);
    assert_int_equal(store_runs_oldest(s, old, 2, &err), 1);
    assert_string_equal(old[0].id, "run_2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_oldest_run_may_be_one_that_waits, store_place_up,
                                        store_place_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
