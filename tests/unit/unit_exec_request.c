/* The decoder of executions: what it must accept, and that each wrong thing is refused with the
 * right code and field. What it shares with runs is tested there. */
#include "exec_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define ID "ex_aaaaaaaaaaaaaaaaaaaa"

static int decode(const char *json, struct exec_request *r, struct api_error *e) {
    size_t len = strlen(json);
    char *copy = malloc(len ? len : 1); /* exact, so that a read beyond it is seen */
    assert_non_null(copy);
    memcpy(copy, json, len);
    memset(e, 0, sizeof(*e));
    int rc = exec_request_decode(copy, len, r, e);
    free(copy);
    return rc;
}

static struct exec_request accept(const char *json) {
    struct exec_request r = {0};
    struct api_error e;
    if (decode(json, &r, &e) != 0)
        fail_msg("%s: refused: %s (%s)", json, e.message, e.field);
    return r;
}

static void test_defaults(void **state) {
    (void)state;
    struct exec_request r = accept("{\"argv\":[\"true\",\"x\"]}");
    const struct request_step *step = &r.run.steps[0];
    assert_int_equal(r.run.step_count, 1);
    assert_string_equal(step->name, "main");
    assert_int_equal(step->argc, 2);
    assert_false(step->shell);
    assert_string_equal(request_cwd(&r.run, 0), "/workspace");
    assert_null(request_input(&r.run, 0).data);
    assert_null(r.id);
    assert_true(r.run.wait);
    assert_false(r.background || r.stdin_open || r.run.stream || r.run.cancel_on_disconnect);
    assert_int_equal(r.rows, 0);
    exec_request_done(&r);
    exec_request_done(&r);
    exec_request_done(NULL);
}

static void test_everything(void **state) {
    (void)state;
    struct exec_request r = accept(
        "{\"sh\":\"make\",\"name\":\"b\",\"env\":{\"A\":\"1\"},\"cwd\":\"sub\",\"stdin\":\"aGk=\","
        "\"stdin_encoding\":\"base64\",\"merge_stderr\":true,\"limits\":{\"wall_ms\":5000},"
        "\"end_on\":[\"output\"],\"files\":[{\"path\":\"f\",\"content\":\"x\"}],\"stream\":true,"
        "\"cancel_on_disconnect\":true,\"stdin_open\":true,\"id\":\"" ID "\"}");
    const struct request_step *step = &r.run.steps[0];
    assert_true(step->shell && step->merge_stderr && r.run.stream && r.run.cancel_on_disconnect);
    assert_string_equal(step->name, "b");
    assert_string_equal(step->env.items[0], "A=1");
    assert_string_equal(request_cwd(&r.run, 0), "/workspace/sub");
    assert_int_equal(request_input(&r.run, 0).len, 2);
    assert_int_equal(step->limits.values.v[LIMIT_WALL_MS], 5000);
    assert_true(r.run.end_on_set);
    assert_int_equal(r.run.end_on, END_ON_OUTPUT);
    assert_int_equal(r.run.file_count, 1);
    assert_string_equal(r.id, ID);
    exec_request_done(&r);
    r = accept("{\"argv\":[\"sh\"],\"pty\":{\"rows\":24,\"cols\":80},\"background\":true}");
    assert_int_equal(r.rows, 24);
    assert_int_equal(r.cols, 80);
    assert_true(r.stdin_open && r.background);
    assert_false(r.run.wait);
    exec_request_done(&r);
    r = accept("{\"argv\":[\"sh\"],\"wait\":false}");
    assert_false(r.run.wait);
    exec_request_done(&r);
    r = accept("{\"argv\":[\"sh\"],\"wait\":false,\"background\":true}");
    exec_request_done(&r);
}

static void test_what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *code, *field;
    } rows[] = {
        {"", "bad_json", ""},
        {"[]", "bad_json", ""},
        {"{}", "missing_field", ""},
        {"{\"argv\":[\"a\"],\"sh\":\"b\"}", "conflict", ""},
        {"{\"argv\":[]}", "invalid_value", "/argv"},
        {"{\"argv\":\"a\"}", "wrong_type", "/argv"},
        {"{\"sh\":\"\"}", "invalid_value", "/sh"},
        {"{\"sh\":\"a\",\"steps\":[]}", "unknown_field", "/steps"},
        {"{\"sh\":\"a\",\"policy\":\"default\"}", "unknown_field", "/policy"},
        {"{\"sh\":\"a\",\"collect\":[]}", "unknown_field", "/collect"},
        {"{\"sh\":\"a\",\"continue_on_error\":true}", "unknown_field", "/continue_on_error"},
        {"{\"sh\":\"a\",\"sh\":\"b\"}", "duplicate_field", NULL},
        {"{\"sh\":\"a\",\"name\":\"\"}", "invalid_value", "/name"},
        {"{\"sh\":\"a\",\"background\":\"yes\"}", "wrong_type", "/background"},
        {"{\"sh\":\"a\",\"background\":null}", "wrong_type", "/background"},
        {"{\"sh\":\"a\",\"background\":true,\"wait\":true}", "conflict", "/background"},
        {"{\"sh\":\"a\",\"background\":true,\"stream\":true}", "conflict", "/background"},
        {"{\"sh\":\"a\",\"background\":true,\"cancel_on_disconnect\":true}", "conflict",
         "/background"},
        {"{\"sh\":\"a\",\"wait\":false,\"stream\":true}", "conflict", "/wait"},
        {"{\"sh\":\"a\",\"wait\":1}", "wrong_type", "/wait"},
        {"{\"sh\":\"a\",\"pty\":true}", "wrong_type", "/pty"},
        {"{\"sh\":\"a\",\"pty\":{}}", "missing_field", "/pty/rows"},
        {"{\"sh\":\"a\",\"pty\":{\"rows\":1}}", "missing_field", "/pty/cols"},
        {"{\"sh\":\"a\",\"pty\":{\"rows\":0,\"cols\":1}}", "out_of_range", "/pty/rows"},
        {"{\"sh\":\"a\",\"pty\":{\"rows\":1,\"cols\":4097}}", "out_of_range", "/pty/cols"},
        {"{\"sh\":\"a\",\"pty\":{\"rows\":1,\"cols\":1.5}}", "wrong_type", "/pty/cols"},
        {"{\"sh\":\"a\",\"pty\":{\"rows\":1,\"cols\":1,\"x\":1}}", "unknown_field", "/pty/x"},
        {"{\"sh\":\"a\",\"pty\":{\"rows\":1,\"cols\":1},\"stdin\":\"x\"}", "conflict", "/stdin"},
        {"{\"sh\":\"a\",\"id\":\"\"}", "invalid_value", "/id"},
        {"{\"sh\":\"a\",\"id\":\"ex_aaaaaaaaaaaaaaaaaaa\"}", "invalid_value", "/id"},
        {"{\"sh\":\"a\",\"id\":\"ex_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", "invalid_value", "/id"},
        {"{\"sh\":\"a\",\"id\":\"ex_aaaaaaaaaaaaaaaaaaaA\"}", "invalid_value", "/id"},
        {"{\"sh\":\"a\",\"id\":\"xx_aaaaaaaaaaaaaaaaaaaa\"}", "invalid_value", "/id"},
        {"{\"sh\":\"a\",\"id\":\"ex_../aaaaaaaaaaaaaaaaa\"}", "invalid_value", "/id"},
        {"{\"sh\":\"a\",\"id\":\"ex_aaaaaaaaaaaaaaaaaaaa\\u0000\"}", NULL, "/id"},
        {"{\"sh\":\"a\",\"id\":5}", "wrong_type", "/id"},
        {"{\"sh\":\"a\",\"limits\":{\"wall_ms\":0}}", "out_of_range", "/limits/wall_ms"},
        {"{\"sh\":\"a\",\"limits\":{\"disk_bytes\":1000000}}", "conflict", "/limits/disk_bytes"},
        {"{\"sh\":\"a\",\"end_on\":[\"x\"]}", "invalid_value", "/end_on/0"},
        {"{\"sh\":\"a\",\"files\":[{\"path\":\"../f\",\"content\":\"x\"}]}", "invalid_value",
         "/files/0/path"},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct exec_request r, before;
        struct api_error e;
        memset(&r, 0x5a, sizeof(r));
        before = r;
        if (decode(rows[i].json, &r, &e) == 0)
            fail_msg("%s: accepted", rows[i].json);
        if (e.status != 400 || (rows[i].code != NULL && strcmp(e.code, rows[i].code) != 0) ||
            (rows[i].field != NULL && strcmp(e.field, rows[i].field) != 0))
            fail_msg("%s: got %d %s at %s (%s)", rows[i].json, e.status, e.code, e.field,
                     e.message);
        assert_memory_equal(&r, &before, sizeof(r));
    }
}

static void hash_of(const char *json, uint8_t hash[EXEC_REQUEST_HASH_SIZE]) {
    struct exec_request r = accept(json);
    exec_request_hash(&r, hash);
    exec_request_done(&r);
}

static void test_the_hash_names_the_command_and_not_the_answer(void **state) {
    (void)state;
    static const char *const same[] = {
        "{\"argv\":[\"a\",\"b\"]}",
        " { \"argv\" : [ \"a\", \"b\" ] , \"wait\":true}",
        "{\"stream\":true,\"argv\":[\"a\",\"b\"],\"cancel_on_disconnect\":true}",
        "{\"argv\":[\"a\",\"b\"],\"background\":true,\"cwd\":\"/workspace\",\"name\":\"main\"}",
    };
    static const char *const other[] = {
        "{\"argv\":[\"ab\"]}",
        "{\"argv\":[\"a\",\"b\",\"\"]}",
        "{\"argv\":[\"a b\"]}",
        "{\"sh\":\"a\"}",
        "{\"argv\":[\"a\",\"b\"],\"cwd\":\"/\"}",
        "{\"argv\":[\"a\",\"b\"],\"name\":\"x\"}",
        "{\"argv\":[\"a\",\"b\"],\"stdin\":\"\"}",
        "{\"argv\":[\"a\",\"b\"],\"stdin\":\"x\"}",
        "{\"argv\":[\"a\",\"b\"],\"stdin_open\":true}",
        "{\"argv\":[\"a\",\"b\"],\"merge_stderr\":true}",
        "{\"argv\":[\"a\",\"b\"],\"limits\":{\"wall_ms\":5000}}",
        "{\"argv\":[\"a\",\"b\"],\"limits\":{\"cpu_ms\":5000}}",
        "{\"argv\":[\"a\",\"b\"],\"end_on\":[]}",
        "{\"argv\":[\"a\",\"b\"],\"env\":{\"A\":\"\"}}",
        "{\"argv\":[\"a\",\"b\"],\"files\":[{\"path\":\"f\",\"content\":\"\"}]}",
        "{\"argv\":[\"a\",\"b\"],\"pty\":{\"rows\":1,\"cols\":1}}",
    };
    uint8_t first[EXEC_REQUEST_HASH_SIZE], hash[UNIT_COUNT(other)][EXEC_REQUEST_HASH_SIZE];
    hash_of(same[0], first);
    for (size_t i = 1; i < UNIT_COUNT(same); i++) {
        hash_of(same[i], hash[0]);
        assert_memory_equal(hash[0], first, sizeof(first));
    }
    for (size_t i = 0; i < UNIT_COUNT(other); i++) {
        hash_of(other[i], hash[i]);
        if (memcmp(hash[i], first, sizeof(first)) == 0)
            fail_msg("%s", other[i]);
        for (size_t k = 0; k < i; k++)
            if (memcmp(hash[i], hash[k], sizeof(first)) == 0)
                fail_msg("%s and %s", other[i], other[k]);
    }
}

static void test_signals(void **state) {
    (void)state;
    static const struct {
        const char *json;
        int number; /* 0 = refused */
    } rows[] = {
        {"{\"signal\":15}", 15},
        {"{\"signal\":\"SIGTERM\"}", 15},
        {"{\"signal\":\"TERM\"}", 15},
        {"{\"signal\":\"WINCH\"}", 28},
        {"{\"signal\":64}", 64},
        {"{\"signal\":0}", 0},
        {"{\"signal\":65}", 0},
        {"{\"signal\":-1}", 0},
        {"{\"signal\":\"\"}", 0},
        {"{\"signal\":\"SIG\"}", 0},
        {"{\"signal\":\"sigterm\"}", 0},
        {"{\"signal\":\"SIGSIGTERM\"}", 0},
        {"{\"signal\":1.5}", 0},
        {"{\"signal\":null}", 0},
        {"{}", 0},
        {"{\"signal\":1,\"x\":1}", 0},
        {"", 0},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct api_error e = {0};
        int number = 0;
        int rc = exec_request_signal(rows[i].json, strlen(rows[i].json), &number, &e);
        if (rc != (rows[i].number == 0 ? -1 : 0) || number != rows[i].number)
            fail_msg("%s: %d, %d", rows[i].json, rc, number);
        assert_int_equal(e.status, rc < 0 ? 400 : 0);
    }
}

static void test_sizes(void **state) {
    (void)state;
    struct api_error e = {0};
    uint16_t rows = 0, cols = 0;
    const char *good = "{\"cols\":132,\"rows\":50}", *bad = "{\"rows\":50,\"cols\":0}";
    assert_int_equal(exec_request_resize(good, strlen(good), &rows, &cols, &e), 0);
    assert_int_equal(rows, 50);
    assert_int_equal(cols, 132);
    assert_int_equal(exec_request_resize(bad, strlen(bad), &rows, &cols, &e), -1);
    assert_string_equal(e.field, "/cols");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_what_is_wrong_is_refused),
        cmocka_unit_test(test_the_hash_names_the_command_and_not_the_answer),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("exec_request", tests, NULL, NULL);
}
