#include "ndjson.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

struct seen {
    int count;
    json_int_t sum;
    int fail_at;
};

static int take(void *arg, const struct json_t *object, struct err *err) {
    struct seen *s = arg;

    s->count++;
    s->sum += json_integer_value(json_object_get(object, "n"));
    if (s->count == s->fail_at)
        return err_set(err, ERR_STATE, 7, "enough");
    return 0;
}

static void test_lines(void **state) {
    (void)state;
    struct err err = {0};
    struct seen s = {0};
    struct ndjson n;

    ndjson_init(&n, 64, take, &s);
    static const char text[] = "{\"n\":1}\n\n \r\n{\"n\":20}\r\n{\"n\":300}\n";
    unit_works(ndjson_feed(&n, text, strlen(text), &err), err);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.sum, 321);

    /* Cut at every place. */
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        s = (struct seen){0};
        unit_works(ndjson_feed(&n, text, cut, &err), err);
        unit_works(ndjson_feed(&n, text + cut, strlen(text) - cut, &err), err);
        assert_int_equal(s.sum, 321);
    }
    /* Byte by byte. */
    s = (struct seen){0};
    for (size_t i = 0; i < strlen(text); i++)
        unit_works(ndjson_feed(&n, text + i, 1, &err), err);
    assert_int_equal(s.sum, 321);

    unit_works(ndjson_feed(&n, "{\"n\":", 5, &err), err);
    ndjson_reset(&n);
    unit_works(ndjson_feed(&n, "{\"n\":4}\n", 8, &err), err);
    assert_int_equal(s.sum, 325);
    ndjson_done(&n);
    ndjson_done(&n);
    ndjson_done(NULL);
}

static void test_bounds(void **state) {
    (void)state;
    struct err err = {0};
    struct seen s = {0};
    struct ndjson n;
    char line[200];

    memset(line, ' ', sizeof(line));
    ndjson_init(&n, 64, take, &s);
    /* In one piece, in two pieces, and without an end. */
    memcpy(line, "{\"n\":1}", 7);
    line[100] = '\n';
    unit_fails(ndjson_feed(&n, line, 101, &err), err, ERR_PROTOCOL);
    ndjson_reset(&n);
    unit_works(ndjson_feed(&n, line, 60, &err), err);
    unit_fails(ndjson_feed(&n, line + 60, 41, &err), err, ERR_PROTOCOL);
    ndjson_reset(&n);
    unit_works(ndjson_feed(&n, line, 64, &err), err);
    unit_fails(ndjson_feed(&n, line, 1, &err), err, ERR_PROTOCOL);
    ndjson_reset(&n);
    /* Exactly as long as allowed. */
    line[64] = '\n';
    unit_works(ndjson_feed(&n, line, 65, &err), err);
    unit_works(ndjson_feed(&n, line, 30, &err), err);
    unit_works(ndjson_feed(&n, line + 30, 35, &err), err);
    assert_int_equal(s.sum, 2);
    assert_true(n.partial.max == 64);
    ndjson_done(&n);
}

static void test_wrong(void **state) {
    (void)state;
    static const char *const bad[] = {
        "nonsense\n",         "[1]\n", "1\n",    "{\"a\":1,\"a\":2}\n", "{\"a\":1} x\n", "{\n",
        "{\"a\":\"\xff\"}\n", "\"\n",  "null\n",
    };

    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct err err = {0};
        struct seen s = {0};
        struct ndjson n;

        ndjson_init(&n, 64, take, &s);
        unit_fails(ndjson_feed(&n, bad[i], strlen(bad[i]), &err), err, ERR_PROTOCOL);
        assert_int_equal(s.count, 0);
        ndjson_done(&n);
    }
}

static void test_nesting(void **state) {
    (void)state;
    size_t deep = 100000;
    char *line = malloc(2 * deep);
    struct err err = {0};
    struct seen s = {0};
    struct ndjson n;

    assert_non_null(line);
    memset(line, '[', deep);
    line[deep] = '\n';
    ndjson_init(&n, 2 * deep, take, &s);
    unit_fails(ndjson_feed(&n, line, deep + 1, &err), err, ERR_PROTOCOL);
    ndjson_done(&n);
    free(line);
}

static void test_callback(void **state) {
    (void)state;
    struct err err = {0};
    struct seen s = {.fail_at = 2};
    struct ndjson n;
    static const char text[] = "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n";

    ndjson_init(&n, 64, take, &s);
    unit_fails(ndjson_feed(&n, text, strlen(text), &err), err, ERR_STATE);
    assert_int_equal(err.code, 7);
    assert_int_equal(s.count, 2);
    /* A NUL in a string is data. */
    static const char nul[] = "{\"n\":9,\"s\":\"a\\u0000b\"}\n";
    ndjson_reset(&n);
    unit_works(ndjson_feed(&n, nul, strlen(nul), &err), err);
    assert_int_equal(s.sum, 12);
    ndjson_done(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),    cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_wrong),    cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_callback),
    };
    return cmocka_run_group_tests_name("ndjson", tests, NULL, NULL);
}
