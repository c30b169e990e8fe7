#include "trace_index.h"

#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "unit.h"

#define RUNS 4000
#define TRACES 500

static size_t count(const struct trace_index *x, unsigned trace, const struct run *all) {
    uint8_t id[TRACEPARENT_ID] = {1, (uint8_t)(trace >> 8), (uint8_t)trace};
    size_t n = 0;
    for (struct run *run = trace_index_find(x, id); run != NULL; run = trace_index_next(run)) {
        assert_memory_equal(run->trace.id, id, sizeof(id));
        assert_true(run >= all && run < all + RUNS);
        n++;
    }
    return n;
}

/* More traces than buckets' worth of collisions: some differ only in their front, so that they
 * share a bucket. */
static void test_runs_come_and_go(void **state) {
    (void)state;
    struct trace_index *x = calloc(1, sizeof(*x));
    struct run *all = calloc(RUNS, sizeof(*all));
    assert_true(x != NULL && all != NULL);
    for (unsigned i = 0; i < RUNS; i++) {
        unsigned trace = i % TRACES;
        all[i].trace.id[0] = 1;
        all[i].trace.id[1] = (uint8_t)(trace >> 8);
        all[i].trace.id[2] = (uint8_t)trace;
        trace_index_add(x, &all[i]);
    }
    for (unsigned t = 0; t < TRACES; t++)
        assert_int_equal(count(x, t, all), RUNS / TRACES);
    assert_int_equal(count(x, TRACES, all), 0);
    for (unsigned i = 0; i < RUNS; i += 2)
        trace_index_remove(x, &all[i]);
    for (unsigned t = 0; t < TRACES; t++)
        assert_int_equal(count(x, t, all), t % 2 == 0 ? 0 : RUNS / TRACES);
    trace_index_remove(x, &all[0]); /* it is out already */
    for (unsigned i = 1; i < RUNS; i += 2)
        trace_index_remove(x, &all[i]);
    for (unsigned b = 0; b < TRACE_INDEX_BUCKETS; b++)
        assert_null(x->buckets[b]);
    free(all);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_come_and_go),
    };
    return cmocka_run_group_tests_name("trace_index", tests, NULL, NULL);
}
