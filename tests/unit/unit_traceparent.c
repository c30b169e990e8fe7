#include "traceparent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define GOOD "00-" ID "-" SPAN "-01"

static bool parses(const char *text) {
    struct traceparent t;
    char *exact = strdup(text); /* so that a byte too many is seen */
    assert_non_null(exact);
    bool well = traceparent_parse(exact, &t);
    free(exact);
    return well;
}

static void test_reads_and_writes(void **state) {
    (void)state;
    struct traceparent t;
    char text[TRACEPARENT_TEXT];
    assert_true(traceparent_parse(GOOD, &t));
    assert_int_equal(t.id[0], 0x4b);
    assert_int_equal(t.id[15], 0x36);
    assert_int_equal(t.span[1], 0xf0);
    traceparent_write(&t, text);
    assert_string_equal(text, GOOD);
    assert_true(traceparent_parse(" \t" GOOD "\t ", &t));
    /* The flags do not matter: what we write is always recorded. */
    assert_true(traceparent_parse("00-" ID "-" SPAN "-00", &t));
    traceparent_write(&t, text);
    assert_string_equal(text, GOOD);
}

static void test_newer_versions_are_read_as_far_as_ours(void **state) {
    (void)state;
    assert_true(parses("cc-" ID "-" SPAN "-01"));
    assert_true(parses("cc-" ID "-" SPAN "-01-what-the-future-will-be-like"));
    assert_true(parses("01-" ID "-" SPAN "-01-"));
    assert_false(parses("cc-" ID "-" SPAN "-01.what"));
    assert_false(parses("cc-" ID "-" SPAN "-010"));
    assert_false(parses("ff-" ID "-" SPAN "-01"));
    assert_false(parses("ff-" ID "-" SPAN "-01-more"));
}

static void test_bad_ones(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "00",
        "00-",
        GOOD "-",
        GOOD "0",
        GOOD " x",
        "00-" ID "-" SPAN,
        "00-" ID "-" SPAN "-",
        "00-" ID "-" SPAN "-1",
        "00-" ID "-" SPAN "-0x",
        "0-" ID "-" SPAN "-01",
        "000-" ID "-" SPAN "-01",
        "0x-" ID "-" SPAN "-01",
        "00_" ID "-" SPAN "-01",
        "00-" ID "_" SPAN "-01",
        "00-" ID "-" SPAN "_01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-" SPAN "-01",
        "00-" ID "-00F067aa0ba902b7-01",
        "00-" ID "-" SPAN "-0A",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" ID "-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e47366-" SPAN "-01",
        "00-" ID "-" SPAN "-01," GOOD,
        "00-4bf92f3577b34da6a3ce929d0e0e473g-" SPAN "-01",
        "00-\xc3\xa9"
        "f92f3577b34da6a3ce929d0e0e4736-" SPAN "-01",
        "-00-" ID "-" SPAN "-01",
    };
    struct traceparent t;
    memset(&t, 7, sizeof(t));
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        if (parses(bad[i]))
            fail_msg("%s was taken", bad[i]);
        assert_false(traceparent_parse(bad[i], &t));
        assert_int_equal(t.id[0], 7); /* untouched */
    }
}

/* Every prefix, and every text with one byte changed: none reads beyond its end, and what is taken
 * is a traceparent still. */
static void test_cut_and_bent(void **state) {
    (void)state;
    char text[sizeof(GOOD)], again[TRACEPARENT_TEXT];
    struct traceparent t;
    for (size_t len = 0; len < sizeof(GOOD) - 1; len++) {
        snprintf(text, sizeof(text), "%.*s", (int)len, GOOD);
        assert_false(parses(text));
    }
    for (size_t at = 0; at < sizeof(GOOD) - 1; at++)
        for (int c = 1; c < 256; c++) {
            memcpy(text, GOOD, sizeof(text));
            text[at] = (char)c;
            if (!traceparent_parse(text, &t))
                continue;
            traceparent_write(&t, again);
            assert_memory_equal(again + 3, text + 3, TRACEPARENT_TEXT - 1 - 3 - 2);
        }
}

static void test_ids(void **state) {
    (void)state;
    uint8_t id[TRACEPARENT_ID];
    assert_true(traceparent_parse_id(ID, id));
    assert_int_equal(id[1], 0xf9);
    assert_false(traceparent_parse_id(ID "0", id));
    assert_false(traceparent_parse_id("", id));
    assert_false(traceparent_parse_id("00000000000000000000000000000000", id));
    assert_false(traceparent_parse_id("4BF92f3577b34da6a3ce929d0e0e4736", id));
    assert_false(traceparent_parse_id("4bf92f3577b34da6a3ce929d0e0e473", id));
}

static void test_states(void **state) {
    (void)state;
    static const char *const good[] = {
        "a=1",
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "a=1 , b=2\t,\tc=3",
        "a=1,,b=2,",
        "0tenant@system=x",
        "a_-*/9=!\"#$%&'()*+-./:;<>?@[]^`{|}~",
        "a= b",
    };
    static const char *const bad[] = {
        "",      ",",        " ",     "a",       "a=",        "=a",
        "A=1",   "1a=1",     "a=1=2", "a=b\x7f", "a=\x1b[0m", "a=\xc3\xa9",
        "a b=1", "a@=1",     "@b=1",  "a@B=1",   "a@b@c=1",   "a@system-that-is-long=1",
        "a=1,b", "a=1\nb=2", "a\n=1",
    };
    char text[TRACEPARENT_STATE_MAX + 8] = "";
    for (size_t i = 0; i < UNIT_COUNT(good); i++)
        if (!traceparent_state_ok(good[i]))
            fail_msg("%s was not taken", good[i]);
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        if (traceparent_state_ok(bad[i]))
            fail_msg("%s was taken", bad[i]);
    for (int i = 0; i < 32; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%sk%d=v", i > 0 ? "," : "", i);
    assert_true(traceparent_state_ok(text));
    strncat(text, ",z=1", sizeof(text) - strlen(text) - 1);
    assert_false(traceparent_state_ok(text)); /* 33 members */
    memset(text, 'v', sizeof(text) - 1);
    memcpy(text, "a=", 2);
    text[2 + 256] = ',';
    memcpy(text + 259, "b=", 2);
    text[TRACEPARENT_STATE_MAX] = '\0';
    assert_true(traceparent_state_ok(text));
    text[TRACEPARENT_STATE_MAX] = 'v';
    assert_false(traceparent_state_ok(text)); /* too long */
    memset(text, 'v', sizeof(text));
    memcpy(text, "a=", 2);
    text[2 + 257] = '\0';
    assert_false(traceparent_state_ok(text)); /* a value of 257 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_and_writes),
        cmocka_unit_test(test_newer_versions_are_read_as_far_as_ours),
        cmocka_unit_test(test_bad_ones),
        cmocka_unit_test(test_cut_and_bent),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests_name("traceparent", tests, NULL, NULL);
}
