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

struct chain {
    struct work_job job; /* first */
    struct work *work;
    int *ran;
};

static void chain_run(struct work_job *job) {
    (*((struct chain *)(void *)job)->ran)++;
}

static void chain_free(struct work_job *job) {
    chain_run(job);
    free(job);
}

/* Adds itself again, as one that nobody is told of. */
static void chain_done(struct work_job *job) {
    struct chain *c = (struct chain *)(void *)job;
    c->job = (struct work_job){.run = chain_free};
    work_add(c->work, &c->job);
}

static void test_what_is_added_while_it_stops_is_done(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    struct work *w = work_new(loop, 1, &err);
    struct chain *c = calloc(1, sizeof(*c));
    int ran = 0;
    assert_non_null(w);
    assert_non_null(c);
    *c = (struct chain){.job = {.run = chain_run, .done = chain_done}, .work = w, .ran = &ran};
    assert_false(work_has_threads(w));
    work_add(w, &c->job);
    assert_true(work_has_threads(w));
    work_free(w);
    assert_int_equal(ran, 2);
    loop_free(loop);
}

/* Nothing is left of them, say the leak checker and the allocator's own checks. */
static void test_blocks_of_all_sizes_are_given_back(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 4096, WORK_DISCARD_MIN, WORK_DISCARD_MIN + 1, 9999999};
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    struct work *w = work_new(loop, 2, &err);
    assert_non_null(w);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int k = 0; k < 4; k++) {
            char *block = malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 'x', sizes[i]);
            work_discard(k == 3 ? NULL : w, block, sizes[i]);
        }
    work_discard(w, NULL, 9999999);
    work_free(w);
    loop_free(loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_job_is_run_and_told_of_on_the_loop),
        cmocka_unit_test(test_what_was_accepted_is_done_before_it_goes),
        cmocka_unit_test(test_what_is_added_while_it_stops_is_done),
        cmocka_unit_test(test_blocks_of_all_sizes_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
