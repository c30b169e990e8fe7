#include "resume.h"

#include "unit.h"

static void test_pauses(void **state) {
    (void)state;
    static const int expected[] = {100, 200, 400, 800, 1600, 2000, 2000};
    struct resume r = {0};

    for (size_t i = 0; i < UNIT_COUNT(expected); i++)
        assert_int_equal(resume_pause(&r, 5000), expected[i]);
    assert_int_equal(resume_pause(&r, 5000 + RESUME_BOUND_MS - 1), 2000);
    assert_int_equal(resume_pause(&r, 5000 + RESUME_BOUND_MS), -1);
    assert_int_equal(resume_pause(&r, 5000 + 2 * RESUME_BOUND_MS), -1);
}

static void test_heard(void **state) {
    (void)state;
    struct resume r = {0};

    assert_false(resume_heard(&r));
    assert_int_equal(resume_pause(&r, 1), 100);
    assert_int_equal(resume_pause(&r, 1), 200);
    assert_true(resume_heard(&r));
    assert_false(resume_heard(&r));
    /* The bound counts from the next loss. */
    assert_int_equal(resume_pause(&r, 10 * RESUME_BOUND_MS), 100);
    assert_int_equal(resume_pause(&r, 11 * RESUME_BOUND_MS - 1), 200);
    assert_int_equal(resume_pause(&r, 11 * RESUME_BOUND_MS), -1);
}

/* A clock that starts at 0 and never moves ends nothing. */
static void test_many(void **state) {
    (void)state;
    struct resume r = {0};

    for (int i = 0; i < 100000; i++)
        assert_true(resume_pause(&r, 0) <= (int)RESUME_MOST_MS);
}

static void test_worth(void **state) {
    (void)state;
    static const int worth[] = {0, 429, 500, 502, 503, 504};
    static const int final[] = {200, 400, 401, 403, 404, 409, 410, 413, 422};

    for (size_t i = 0; i < UNIT_COUNT(worth); i++)
        assert_true(resume_worth(worth[i]));
    for (size_t i = 0; i < UNIT_COUNT(final); i++)
        assert_false(resume_worth(final[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pauses), cmocka_unit_test(test_heard),
                                       cmocka_unit_test(test_many), cmocka_unit_test(test_worth)};
    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
