#include "store_trace.h"

#include <stdio.h>
#include <string.h>

#include "store_place.h"
#include "unit.h"

#define GATHERED 80u

static const uint8_t one[16] = {1}, other[16] = {2};

static void put(struct store *s, const char *user, const char *id, const uint8_t *trace,
                uint64_t now_ms) {
    struct err err = {0};
    struct store_span span = {.user = user,
                              .id = id,
                              .sandbox = "sb_1",
                              .label = "true",
                              .cause = "exit",
                              .created_ms = 5,
                              .duration_ms = 7,
                              .exit_code = 3,
                              .trace_id = trace,
                              .trace = id,
                              .trace_len = strlen(id)};
    unit_works(store_trace_put(s, &span, now_ms, &err), err);
}

/* The ids that are there, with blanks between. */
static bool gather(void *arg, const struct store_span *span) {
    char *text = arg;
    assert_string_equal(span->sandbox, "sb_1");
    assert_string_equal(span->label, "true");
    assert_string_equal(span->cause, "exit");
    assert_int_equal(span->created_ms, 5);
    assert_int_equal(span->duration_ms, 7);
    assert_int_equal(span->exit_code, 3);
    assert_false(span->ok);
    assert_memory_equal(span->trace, span->id, span->trace_len);
    size_t len = strlen(text);
    snprintf(text + len, GATHERED - len, "%s ", span->id);
    return true;
}

static void holds(struct store *s, const char *user, const uint8_t *trace, const char *wanted) {
    struct err err = {0};
    char text[GATHERED] = "";
    struct store_trace_part part = {.user = user, .trace_id = trace, .max = 100};
    assert_int_equal(store_trace_spans(s, &part, gather, text, &err), 0);
    assert_string_equal(text, wanted);
}

static void test_a_trace_has_its_own_of_its_user(void **state) {
    struct store *s = *state;
    struct err err = {0};
    char trace[4];
    put(s, "ann", "ex_1", one, 100);
    put(s, "ann", "ex_2", other, 100);
    put(s, "bob", "ex_3", one, 100);
    put(s, "ann", "ex_4", one, 100);
    holds(s, "ann", one, "ex_1 ex_4 ");
    holds(s, "bob", one, "ex_3 ");
    holds(s, "bob", other, "");
    assert_int_equal(store_trace_of(s, "ann", "ex_2", trace, sizeof(trace), &err), 1);
    assert_memory_equal(trace, "ex_2", 4);
    assert_int_equal(store_trace_of(s, "ann", "ex_2", trace, 3, &err), 0);
    assert_int_equal(store_trace_of(s, "bob", "ex_2", trace, sizeof(trace), &err), 0);
}

static bool gather_seq(void *arg, const struct store_span *span) {
    *(uint64_t *)arg = span->seq;
    return true;
}

/* Each part goes on where the one before has ended, and the last one says so. */
static void test_a_long_trace_comes_in_parts(void **state) {
    struct store *s = *state;
    struct err err = {0};
    char id[16];
    unsigned parts = 1;
    int rc;
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof(id), "ex_%d", i);
        put(s, "ann", id, one, 100);
        put(s, "bob", id, one, 100);
    }
    struct store_trace_part part = {.user = "ann", .trace_id = one, .max = 2};
    while ((rc = store_trace_spans(s, &part, gather_seq, &part.after_seq, &err)) > 0)
        parts++;
    assert_int_equal(rc, 0);
    assert_int_equal(parts, 4);
    char text[GATHERED] = "";
    part.after_seq = 0;
    part.max = 4;
    assert_int_equal(store_trace_spans(s, &part, gather, text, &err), 1);
    assert_string_equal(text, "ex_0 ex_1 ex_2 ex_3 ");
}

static void test_the_oldest_go_by_age_and_by_count(void **state) {
    static const char *const ids[] = {"ex_0", "ex_1", "ex_2", "ex_3", "ex_4", "ex_5"};
    struct store *s = *state;
    struct err err = {0};
    assert_int_equal(store_trace_drop(s, 1000, 0, 10, &err), 0);
    for (uint64_t i = 0; i < 6; i++)
        put(s, "ann", ids[i], one, 100 + i);
    assert_int_equal(store_trace_drop(s, 100, 6, 10, &err), 0);
    assert_int_equal(store_trace_drop(s, 102, UINT64_MAX, 1, &err), 1);
    assert_int_equal(store_trace_drop(s, 102, UINT64_MAX, 10, &err), 1);
    holds(s, "ann", one, "ex_2 ex_3 ex_4 ex_5 ");
    assert_int_equal(store_trace_drop(s, 0, 3, 10, &err), 1);
    holds(s, "ann", one, "ex_3 ex_4 ex_5 ");
    assert_int_equal(store_trace_drop(s, 0, 0, 10, &err), 3);
    holds(s, "ann", one, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_trace_has_its_own_of_its_user, store_place_up,
                                        store_place_down),
        cmocka_unit_test_setup_teardown(test_a_long_trace_comes_in_parts, store_place_up,
                                        store_place_down),
        cmocka_unit_test_setup_teardown(test_the_oldest_go_by_age_and_by_count, store_place_up,
                                        store_place_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
