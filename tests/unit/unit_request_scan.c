/* Bodies that are too large, too deep or not JSON: refused at once, with the field where there is
 * one, and read no further than their end. */
#include "request_unit.h"

#include <stdio.h>

#include "request_internal.h"

/* --- sizes
 * ---------------------------------------------------------------------------------------- */

/* head + `count` times `unit` + tail */
static char *repeat(const char *head, const char *unit, size_t count, const char *tail) {
    size_t h = strlen(head), u = strlen(unit), t = strlen(tail);
    char *text = malloc(h + u * count + t + 1);
    assert_non_null(text);
    memcpy(text, head, h);
    for (size_t i = 0; i < count; i++)
        memcpy(text + h + i * u, unit, u);
    memcpy(text + h + u * count, tail, t + 1);
    return text;
}

struct sized {
    const char *head, *unit;
    size_t count; /* what is still right, or (largest = false) already wrong */
    const char *tail;
    const char *code, *field;
};

static void test_sizes(void **state) {
    (void)state;
    static const struct sized table[] = {
        {"{\"sh\":\"", "x", 131071, "\"}", "too_large", "/sh"},
        {"{\"argv\":[\"x\",\"", "y", 131071, "\"]}", "too_large", "/argv/1"},
        {"{\"argv\":[\"x\"", ",\"\"", 8191, "]}", "too_large", "/argv"},
        {"{\"sh\":\"a\",\"env\":{\"ABC\":\"", "v", 131067, "\"}}", "too_large", "/env/ABC"},
        {"{\"sh\":\"a\",\"cwd\":\"/", "d", 4094, "\"}", "too_large", "/cwd"},
        {"{\"sh\":\"a\",\"cwd\":\"", "d", 4084, "\"}", "too_large", "/cwd"},
        {"{\"sh\":\"a\",\"files\":[{\"content\":\"\",\"path\":\"", "p", 255, "\"}]}",
         "invalid_value", "/files/0/path"},
        {"{\"sh\":\"a\",\"files\":[{\"content\":\"\",\"path\":\"abc", "/p", 2046, "\"}]}",
         "invalid_value", "/files/0/path"},
        {"{\"sh\":\"a\",\"collect\":[\"x\"", ",\"x\"", 255, "]}", "too_large", "/collect"},
        {"{\"steps\":[{\"sh\":\"a\"}", ",{\"sh\":\"a\"}", 255, "]}", "too_large", "/steps"},
        {"{\"steps\":[{\"sh\":\"a\",\"name\":\"", "\xc3\xbc", 64, "\"}]}", "invalid_value",
         "/steps/0/name"},
        {"{\"sh\":\"a\",\"policy\":\"", "p", 63, "\"}", "invalid_value", "/policy"},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        const struct sized *t = &table[i];
        char *right = repeat(t->head, t->unit, t->count, t->tail);
        char *wrong = repeat(t->head, t->unit, t->count + 1, t->tail);
        struct run_request r = decode_ok(right);
        request_done(&r);
        expect_error(wrong, 400, t->code, t->field);
        free(right);
        free(wrong);
    }
}

static char *env_of(size_t count) {
    size_t used = 0, size = 64 + count * 16;
    char *text = malloc(size);
    assert_non_null(text);
    used += (size_t)snprintf(text, size, "{\"sh\":\"a\",\"env\":{");
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s\"V%zu\":\"\"", i ? "," : "", i);
    snprintf(text + used, size - used, "}}");
    return text;
}

static void test_env_count(void **state) {
    (void)state;
    char *right = env_of(REQUEST_ENV_MAX), *wrong = env_of(REQUEST_ENV_MAX + 1);
    struct run_request r = decode_ok(right);
    assert_int_equal(r.env.count, REQUEST_ENV_MAX);
    assert_string_equal(r.env.items[1023], "V1023=");
    request_done(&r);
    expect_error(wrong, 400, "too_large", "/env");
    free(right);
    free(wrong);
    /* Not a tree first: that many members take the JSON library half a second. */
    char *many = env_of(5000);
    expect_error(many, 400, "too_large", "/env");
    free(many);
}

static void test_stdin_size(void **state) {
    (void)state;
    char *wrong = repeat("{\"sh\":\"a\",\"stdin\":\"", "x", REQUEST_STDIN_MAX + 1, "\"}");
    expect_error_bytes(wrong, strlen(wrong), 413, "too_large", "/stdin");
    free(wrong);
}

/* --- hostile JSON
 * --------------------------------------------------------------------------------- */

static void test_hostile_json(void **state) {
    (void)state;
    static const struct bad table[] = {
        {"", "bad_json", ""},
        {" \t\r\n", "bad_json", ""},
        {"null", "bad_json", ""},
        {"true", "bad_json", ""},
        {"1", "bad_json", ""},
        {"\"x\"", "bad_json", ""},
        {"[]", "bad_json", ""},
        {"[{\"sh\":\"a\"}]", "bad_json", ""},
        {"\xef\xbb\xbf{\"sh\":\"a\"}", "bad_json", ""},
        {"{", "bad_json", ""},
        {"{\"sh\"", "bad_json", "/sh"},
        {"{\"sh\":", "bad_json", "/sh"},
        {"{\"sh\":\"a", "bad_json", "/sh"},
        {"{\"sh\":\"a\"", "bad_json", NULL},
        {"{\"sh\":\"a\",}", "bad_json", NULL},
        {"{\"sh\":\"a\"}}", "bad_json", NULL},
        {"{\"sh\":\"a\"} x", "bad_json", NULL},
        {"{\"sh\":\"a\"}{\"sh\":\"b\"}", "bad_json", NULL},
        {"{\"sh\":\"\\u12\"}", "bad_json", "/sh"},
        {"{\"sh\":\"\\ud800\"}", "bad_json", "/sh"},
        {"{\"sh\":\"\\udc00\\ud800\"}", "bad_json", "/sh"},
        {"{\"sh\":\"\\x41\"}", "bad_json", "/sh"},
        {"{\"sh\":\"a\nb\"}", "bad_json", "/sh"},
        {"{\"sh\":\"\xff\"}", "bad_json", "/sh"},
        {"{\"sh\":\"\xc0\x80\"}", "bad_json", "/sh"},
        {"{\"sh\":\"\xed\xa0\x80\"}", "bad_json", "/sh"},
        {"{'sh':'a'}", "bad_json", NULL},
        {"{sh:\"a\"}", "bad_json", NULL},
        {"{\"sh\":\"a\"/* c */}", "bad_json", NULL},
        {"{\"sh\" \"a\"}", "bad_json", NULL},
        {"{\"limits\":{\"wall_ms\":}}", "bad_json", NULL},
    };
    EXPECT_BAD(table);
    expect_error_bytes("{\"sh\":\"a\0b\"}", 12, 400, "bad_json", "/sh");
    expect_error_bytes("{\"sh\":\"a\"}\0", 11, 400, "bad_json", NULL);
    expect_error_bytes("\0", 1, 400, "bad_json", "");
}

static void test_huge_json(void **state) {
    (void)state;
    static const struct {
        const char *head, *unit;
        size_t count;
        const char *tail;
        int status;
        const char *code, *field;
    } table[] = {
        {"", "[", 100000, "", 400, "bad_json", ""},
        {"{\"sh\":", "[", 100000, "", 400, "bad_json", NULL},
        {"", "{\"a\":", 100000, "", 400, "bad_json", NULL},
        {"{\"sh\":\"", "x", 10u << 20, "\"}", 400, "too_large", "/sh"},
        {"{\"steps\":[{\"argv\":[\"a\",\"", "x", 10u << 20, "\"]}]}", 400, "too_large",
         "/steps/0/argv/1"},
        {"{\"sh\":\"", "\\\\", 5u << 20, "\"}", 400, "too_large", "/sh"},
        {"\"", "x", 10u << 20, "\"", 400, "bad_json", ""},
        {"{\"limits\":{\"wall_ms\":", "9", 1u << 20, "}}", 400, "out_of_range", "/limits/wall_ms"},
        {"{\"limits\":{\"wall_ms\":1.", "9", 1u << 20, "}}", 400, "wrong_type", "/limits/wall_ms"},
        {"{\"argv\":[\"a\"", ",[]", 1u << 20, "]}", 413, "too_large", ""},
        {"{\"argv\":[\"a\"", ",1", 1u << 20, "]}", 413, "too_large", ""},
        {"{\"", "k", 100000, "\":1}", 400, "unknown_field", NULL},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        char *json = repeat(table[i].head, table[i].unit, table[i].count, table[i].tail);
        expect_error(json, table[i].status, table[i].code, table[i].field);
        free(json);
    }
}

/* Every prefix of a right body is refused, and read no further than its end. */
static void test_prefixes(void **state) {
    (void)state;
    static const char body[] = "{\"files\":[{\"path\":\"m\",\"content\":\"\\u00e9\\\\\",\"mode\":"
                               "\"0755\"}],\"env\":{\"K\":\"V\"},"
                               "\"steps\":[{\"name\":\"b\",\"argv\":[\"make\",\"\"]},{\"sh\":\"x\","
                               "\"limits\":{\"wall_ms\":60000},"
                               "\"continue_on_error\":true}],\"wait\":true}";
    struct run_request r = decode_ok(body);
    request_done(&r);
    for (size_t len = 0; len < sizeof(body) - 1; len++)
        expect_error_bytes(body, len, 400, "bad_json", NULL);
}

/* The field that each byte of a body belongs to. */
static void test_where(void **state) {
    (void)state;
    static const struct {
        const char *json, *before, *field; /* the place is where `before` begins */
    } table[] = {
        {"{\"a\":1}", "{", ""},
        {"{\"a\":1}", "1", "/a"},
        {"{\"a\":1,\"b\":2}", "\"b", ""},
        {"{\"a\":1,\"b\":2}", "2", "/b"},
        {"{\"a\":[1,[2,3]]}", "3", "/a/1/1"},
        {"{\"a\":[1,{\"b~/\":[7]},5]}", "7", "/a/1/b~0~1/0"},
        {"{\"a\":[1,{\"b\":[7]},5]}", "5", "/a/2"},
        {"{\"x\\\"y\":1}", "1", "/x\\\"y"},
        {"{\"a\":\"q\\\\\",\"b\":2}", "2", "/b"},
        {"}]}{\"a\":1", "1", "/a"},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        char field[32];
        const char *at = strstr(table[i].json, table[i].before);
        assert_non_null(at);
        request_where(table[i].json, strlen(table[i].json), (size_t)(at - table[i].json), field,
                      sizeof(field));
        assert_string_equal(field, table[i].field);
    }
    /* A pointer that does not fit is cut, never written past its end. */
    static const char deep[] = "{\"aaaa\":{\"bbbb\":{\"~~~~\":[0,";
    for (size_t size = 1; size <= 24; size++) {
        char *field = malloc(size);
        assert_non_null(field);
        request_where(deep, sizeof(deep) - 1, SIZE_MAX, field, size);
        assert_true(strlen(field) < size);
        assert_memory_equal(field, "/aaaa/bbbb/", strlen(field) < 11 ? strlen(field) : 11);
        free(field);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_env_count),
        cmocka_unit_test(test_stdin_size), cmocka_unit_test(test_hostile_json),
        cmocka_unit_test(test_huge_json),  cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
