#include "pool_refill.h"

#include "unit.h"

#define MS CLOCK_NS_PER_MS
#define WANT 64u

/* One command of a millisecond, in the middle of nothing. */
static uint64_t run(struct pool_refill *r, unsigned left, uint64_t now) {
    (void)pool_refill_taken(r, left, WANT, now);
    pool_refill_began(r, now);
    (void)pool_refill_due(r, left, WANT, now);
    (void)pool_refill_ended(r, now + MS);
    return now + MS;
}

static void test_an_empty_pool_is_refilled_at_once(void **state) {
    (void)state;
    struct pool_refill r = {0};
    pool_refill_began(&r, 1000 * MS);
    assert_int_equal(pool_refill_taken(&r, 0, WANT, 1000 * MS), 1000 * MS);
    assert_int_equal(pool_refill_due(&r, 0, WANT, 1001 * MS), 1001 * MS);
}

static void test_a_pool_that_nobody_uses_is_filled_without_a_pause(void **state) {
    (void)state;
    struct pool_refill r = {0};
    for (unsigned left = 0; left < WANT; left++)
        assert_true(pool_refill_due(&r, left, WANT, 1000 * MS + left) <= 1000 * MS + left);
}

static void test_while_half_are_left_requests_that_follow_each_other_see_no_refill(void **state) {
    (void)state;
    struct pool_refill r = {0};
    uint64_t now = 1000 * MS;
    for (unsigned left = WANT - 1; left >= WANT / 2; left--) {
        now = run(&r, left, now) + 5 * MS;
        assert_true(pool_refill_due(&r, left, WANT, now) > now);
    }
    /* … then one in each pause between two of them, … */
    now = run(&r, WANT / 2 - 1, now);
    assert_int_equal(pool_refill_due(&r, WANT / 2 - 1, WANT, now), now + POOL_REFILL_QUIET_NS);
    /* … and all of them when nothing is asked for. */
    now += POOL_REFILL_QUIET_NS + POOL_REFILL_PLENTY_NS;
    for (unsigned left = WANT / 2; left < WANT; left++)
        assert_true(pool_refill_due(&r, left, WANT, now) <= now);
}

static void test_few_are_refilled_in_the_next_pause_or_soon(void **state) {
    (void)state;
    struct pool_refill r = {0};
    uint64_t now = 1000 * MS;
    (void)pool_refill_taken(&r, 3, 4, now);
    pool_refill_began(&r, now);
    assert_int_equal(pool_refill_due(&r, 3, 4, now), now + POOL_REFILL_PATIENCE_NS);
    /* Another one begins in every moment: it does not wait for ever. */
    pool_refill_began(&r, now + 20 * MS);
    assert_int_equal(pool_refill_due(&r, 3, 4, now + 20 * MS), now + POOL_REFILL_PATIENCE_NS);
    (void)pool_refill_ended(&r, now + 21 * MS);
    uint64_t quiet = pool_refill_ended(&r, now + 22 * MS);
    assert_int_equal(quiet, now + 22 * MS + POOL_REFILL_QUIET_NS);
    assert_int_equal(pool_refill_due(&r, 3, 4, now + 22 * MS), quiet);
}

static void test_more_than_a_few_wait_longer(void **state) {
    (void)state;
    struct pool_refill r = {0};
    uint64_t now = 1000 * MS;
    for (unsigned i = 0; i < 1000; i++) {
        pool_refill_began(&r, now + i * MS);
        uint64_t due = pool_refill_due(&r, POOL_REFILL_MANY, WANT, now + i * MS);
        assert_true(due <= now + POOL_REFILL_MANY_PATIENCE_NS);
    }
}

/* A server that a sandbox runs for days must not keep the pool from being filled. */
static void test_what_runs_for_long_holds_nothing_up(void **state) {
    (void)state;
    struct pool_refill r = {0};
    uint64_t now = 1000 * MS;
    pool_refill_began(&r, now);
    assert_int_equal(pool_refill_due(&r, WANT - 1, WANT, now), now + POOL_REFILL_SHORT_NS);
    now += POOL_REFILL_SHORT_NS;
    assert_true(pool_refill_due(&r, WANT - 1, WANT, now) <= now);
}

static void test_a_new_sandbox_has_its_first_command_before(void **state) {
    (void)state;
    struct pool_refill r = {0};
    uint64_t now = 1000 * MS;
    pool_refill_opened(&r, now);
    (void)pool_refill_taken(&r, 3, 4, now);
    assert_int_equal(pool_refill_due(&r, 3, 4, now), now + POOL_REFILL_NEW_NS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_pool_is_refilled_at_once),
        cmocka_unit_test(test_a_pool_that_nobody_uses_is_filled_without_a_pause),
        cmocka_unit_test(test_while_half_are_left_requests_that_follow_each_other_see_no_refill),
        cmocka_unit_test(test_few_are_refilled_in_the_next_pause_or_soon),
        cmocka_unit_test(test_more_than_a_few_wait_longer),
        cmocka_unit_test(test_what_runs_for_long_holds_nothing_up),
        cmocka_unit_test(test_a_new_sandbox_has_its_first_command_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
