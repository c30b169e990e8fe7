#include "pool_backoff.h"

#include "unit.h"

#define MS CLOCK_NS_PER_MS

static void test_the_first_is_replaced_at_once_and_pauses_double(void **state) {
    (void)state;
    static const unsigned pause_ms[] = {0,    100,  200,   400,   800,  1600,
                                        3200, 6400, 10000, 10000, 10000};
    struct pool_backoff b = {0};
    uint64_t now = 5 * CLOCK_NS_PER_S;
    for (unsigned i = 0; i < UNIT_COUNT(pause_ms); i++) {
        assert_int_equal(pool_backoff_sick(&b), i >= POOL_BACKOFF_SICK);
        pool_backoff_lost(&b, now);
        assert_int_equal(b.until_ns, now + pause_ms[i] * MS);
        assert_false(pool_backoff_well(&b, b.until_ns + 1000 * CLOCK_NS_PER_S));
        now = b.until_ns + MS;
        pool_backoff_ready(&b, now); /* and dies a little later */
        now += POOL_BACKOFF_STEADY_NS - 1;
    }
}

static void test_one_that_stays_makes_all_well(void **state) {
    (void)state;
    struct pool_backoff b = {0};
    assert_true(pool_backoff_well(&b, 1));
    pool_backoff_ready(&b, 1);
    assert_int_equal(b.steady_ns, 0);
    for (unsigned i = 0; i < 5; i++)
        pool_backoff_lost(&b, 1000);
    pool_backoff_ready(&b, 2000);
    pool_backoff_ready(&b, 3000); /* the first one counts */
    assert_int_equal(b.steady_ns, 2000 + POOL_BACKOFF_STEADY_NS);
    assert_false(pool_backoff_well(&b, b.steady_ns - 1));
    assert_true(pool_backoff_sick(&b));
    struct pool_backoff late = b;
    assert_true(pool_backoff_well(&b, b.steady_ns));
    assert_false(pool_backoff_sick(&b));
    /* Also when nobody has looked meanwhile. */
    pool_backoff_lost(&late, late.steady_ns + 1);
    assert_int_equal(late.lost, 1);
    assert_int_equal(late.until_ns, 2000 + POOL_BACKOFF_STEADY_NS + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_replaced_at_once_and_pauses_double),
        cmocka_unit_test(test_one_that_stays_makes_all_well),
    };
    return cmocka_run_group_tests_name("pool_backoff", tests, NULL, NULL);
}
