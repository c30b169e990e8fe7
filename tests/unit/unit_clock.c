#include "clock.h"

#include <time.h>

#include "unit.h"

static void test_monotonic_never_goes_back(void **state) {
    (void)state;
    uint64_t last = clock_mono_ns();
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_mono_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void test_units(void **state) {
    (void)state;
    uint64_t ms = clock_mono_ms();
    uint64_t ns = clock_mono_ns();
    assert_true(ns / CLOCK_NS_PER_MS >= ms);
    assert_true(ns / CLOCK_NS_PER_MS - ms < 10000);
    assert_int_equal(CLOCK_NS_PER_S, 1000 * CLOCK_NS_PER_MS);
}

static void test_real_is_the_date(void **state) {
    (void)state;
    uint64_t now = (uint64_t)time(NULL) * 1000;
    uint64_t real = clock_real_ms();
    assert_true(real + 2000 >= now && real <= now + 12000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic_never_goes_back),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_real_is_the_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
