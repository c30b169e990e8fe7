#include "trace.h"

#include <string.h>

#include "json_out.h"
#include "unit.h"

static const struct traceparent header = {.id = {1, 2, 3}, .span = {4, 5, 6}};

static struct trace begin(const struct trace_above *above) {
    static struct trace_pool pool;
    struct trace t;
    struct err err = {0};
    unit_works(trace_begin(&pool, above, &t, &err), err);
    assert_true(trace_is_set(&t));
    return t;
}

static void test_a_trace_of_its_own(void **state) {
    (void)state;
    struct trace last = begin(&(struct trace_above){0});
    assert_false(trace_has_parent(&last));
    /* More than one fetch of random bytes holds. */
    for (int i = 0; i < 200; i++) {
        struct trace t = begin(&(struct trace_above){0});
        assert_memory_not_equal(t.id, last.id, sizeof(t.id));
        assert_memory_not_equal(t.span, last.span, sizeof(t.span));
        last = t;
    }
}

static void test_what_it_hangs_under(void **state) {
    (void)state;
    struct trace box = begin(&(struct trace_above){0}), run = begin(&(struct trace_above){0});
    struct trace t = begin(&(struct trace_above){.inside = &box});
    assert_memory_equal(t.id, box.id, sizeof(t.id));
    assert_memory_equal(t.parent, box.span, sizeof(t.parent));
    t = begin(&(struct trace_above){.header = &header, .inside = &box});
    assert_memory_equal(t.id, header.id, sizeof(t.id));
    assert_memory_equal(t.parent, header.span, sizeof(t.parent));
    assert_string_equal(t.from, "");
    /* A foreign trace does not take a child token's work out of sight … */
    t = begin(
        &(struct trace_above){.header = &header, .from = &run, .from_id = "run_x", .inside = &box});
    assert_memory_equal(t.id, run.id, sizeof(t.id));
    assert_memory_equal(t.parent, run.span, sizeof(t.parent));
    assert_string_equal(t.from, "run_x");
    /* … and a nearer parent of the same trace counts. */
    struct traceparent near = header;
    memcpy(near.id, run.id, sizeof(near.id));
    t = begin(&(struct trace_above){.header = &near, .from = &run, .from_id = "run_x"});
    assert_memory_equal(t.id, run.id, sizeof(t.id));
    assert_memory_equal(t.parent, near.span, sizeof(t.parent));
    assert_memory_not_equal(t.span, near.span, sizeof(t.span));
    /* A sandbox that was made before traces were kept has none. */
    struct trace none = {0};
    t = begin(&(struct trace_above){.inside = &none});
    assert_false(trace_has_parent(&t));
}

static void test_texts(void **state) {
    (void)state;
    struct trace_above above = {.header = &header};
    struct trace t = begin(&above), read = {0};
    char text[TRACE_TEXT_SIZE], line[TRACEPARENT_TEXT];
    memcpy(t.from, "run_abcdefghijklmnopqrstuvwx", 29);
    trace_write_text(&t, text);
    assert_true(trace_read_text(text, &read));
    assert_memory_equal(&read, &t, sizeof(t));
    struct traceparent p;
    trace_header(&t, line);
    assert_true(traceparent_parse(line, &p));
    assert_memory_equal(p.span, t.span, sizeof(p.span));
    static const char *const bad[] = {"", "x", "0102030405060708090a0b0c0d0e0f10"};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        assert_false(trace_read_text(bad[i], &read));
    text[40] = 'x';
    assert_false(trace_read_text(text, &read));
    assert_memory_equal(&read, &t, sizeof(t));
}

static void test_labels(void **state) {
    (void)state;
    char label[TRACE_LABEL_SIZE];
    static const char *const argv[] = {"make", "-j2", "test"};
    trace_label(label, argv, 3);
    assert_string_equal(label, "make -j2 test");
    static const char *const script[] = {"echo a\necho b\t\x1b[31m"};
    trace_label(label, script, 1);
    assert_string_equal(label, "echo a echo b  [31m");
    /* Cut between characters: 62 bytes, then one of two bytes. */
    static const char *const cut[] = {
        "12345678901234567890123456789012345678901234567890123456789012\xc3\xa9\xc3\xa9"};
    trace_label(label, cut, 1);
    assert_int_equal(strlen(label), 62);
    trace_label(label, NULL, 0);
    assert_string_equal(label, "");
    static const char *const full[] = {
        "123456789012345678901234567890123456789012345678901234567890123", "more"};
    trace_label(label, full, 2);
    assert_int_equal(strlen(label), 63);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_trace_of_its_own),
        cmocka_unit_test(test_what_it_hangs_under),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_labels),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
