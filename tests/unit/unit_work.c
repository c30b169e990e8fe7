#include "work.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "unit.h"

#define JOBS 400

struct sum {
    struct work_job job; /* first */
    unsigned from, result;
    int *left;
};

static void add_up(struct work_job *job) {
    struct sum *s = (struct sum *)(void *)job;
    for (unsigned i = 0; i < 1000; i++)
        s->result += s->from + i;
}

static void added_up(struct work_job *job) {
    struct sum *s = (struct sum *)(void *)job;
    assert_int_equal(s->result, 1000 * s->from + 499500);
    (*s->left)--;
    free(s);
}

static void start(struct work *w, unsigned from, int *left) {
    struct sum *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->job = (struct work_job){.run = add_up, .done = added_up};
    s->from = from;
    s->left = left;
    work_add(w, &s->job);
}

static void test_every_job_is_run_and_told_of_on_the_loop(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    struct work *w = work_new(loop, 4, &err);
    int left = JOBS;
    assert_non_null(w);
    for (unsigned i = 0; i < JOBS; i++)
        start(w, i, &left);
    uint64_t due = clock_mono_ms() + 10000;
    while (left > 0 && clock_mono_ms() < due)
        unit_works(loop_once(loop, 10 * CLOCK_NS_PER_MS, &err), err);
    assert_int_equal(left, 0);
    work_free(w);
    loop_free(loop);
}

static void test_what_was_accepted_is_done_before_it_goes(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    struct work *w = work_new(loop, 2, &err);
    int left = JOBS;
    for (unsigned i = 0; i < JOBS; i++)
        start(w, i, &left);
    work_free(w);
    assert_int_equal(left, 0);
    loop_free(loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_job_is_run_and_told_of_on_the_loop),
        cmocka_unit_test(test_what_was_accepted_is_done_before_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
