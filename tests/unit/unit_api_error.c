/* Errors of the HTTP API. */
#include "api_error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "unit.h"

static void test_encode(void **state) {
    (void)state;
    struct api_error e;
    size_t len = 0;
    assert_int_equal(
        api_error_set(&e, 403, "policy_limit", "/limits/wall_ms", "%d is too \"long\".", 7), -1);
    assert_int_equal(e.status, 403);
    char *json = api_error_encode(&e, &len);
    assert_string_equal(json, "{\"error\":{\"code\":\"policy_limit\",\"message\":\"7 is too "
                              "\\\"long\\\".\",\"field\":\"/limits/wall_ms\"}}");
    assert_int_equal(len, strlen(json));
    free(json);
    (void)api_error_set(&e, 404, "not_found", NULL, "There is no such run.");
    json = api_error_encode(&e, NULL);
    assert_string_equal(json, "{\"error\":{\"code\":\"not_found\",\"message\":\"There is no such "
                              "run.\",\"field\":null}}");
    free(json);
    assert_int_equal(api_error_memory(&e), -1);
    assert_int_equal(e.status, 500);
    assert_int_equal(api_error_set(NULL, 400, "x", NULL, "y"), -1);
}

/* Whatever goes in, what comes out is printable UTF-8 that fits. */
static void test_hostile(void **state) {
    (void)state;
    char text[2000];
    for (size_t shift = 0; shift < 4; shift++) {
        struct api_error e;
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        (void)api_error_set(&e, 400, "bad", text, "%s", text);
        assert_true(text_is_utf8(e.message, strlen(e.message)));
        assert_true(text_is_utf8(e.field, strlen(e.field)));
        assert_true(strlen(e.message) >= API_ERROR_MESSAGE_MAX - 4);
        char *json = api_error_encode(&e, NULL);
        assert_non_null(json);
        free(json);
    }
    struct api_error e;
    (void)api_error_set(&e, 400, "bad", "/\x1b]0;x\a", "a\nb\x7f\xff\xc3(\xc3");
    assert_string_equal(e.message, "a?b\?\?\?(");
    assert_string_equal(e.field, "/?]0;x?");
}

static void test_decode(void **state) {
    (void)state;
    struct api_error in, out;
    (void)api_error_set(&in, 429, "queue_full", "/x", "Later.");
    char *json = api_error_encode(&in, NULL);
    json_t *body = json_loads(json, 0, NULL);
    assert_int_equal(api_error_decode(body, 429, &out), 0);
    assert_int_equal(out.status, 429);
    assert_string_equal(out.code, in.code);
    assert_string_equal(out.message, in.message);
    assert_string_equal(out.field, in.field);
    json_decref(body);
    free(json);
    static const char *const wrong[] = {"{}", "[]", "{\"error\":\"x\"}",
                                        "{\"error\":{\"message\":1}}"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++) {
        body = json_loads(wrong[i], 0, NULL);
        assert_int_equal(api_error_decode(body, 502, &out), -1);
        assert_string_equal(out.message, "The server answered with HTTP status 502.");
        json_decref(body);
    }
    assert_int_equal(api_error_decode(NULL, 502, &out), -1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
