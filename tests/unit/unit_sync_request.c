/* The manifest decoder: what it must accept and how it orders it, and that each wrong thing is
 * refused with the right status, code and field. */
#include "sync_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define SHA "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define FILE_OF(path) "{\"path\":\"" path "\",\"type\":\"file\",\"size\":0,\"sha256\":\"" SHA "\"}"
#define DIR_OF(path) "{\"path\":\"" path "\",\"type\":\"directory\"}"
#define ENTRIES(list) "{\"entries\":[" list "]}"

/* From an exact-size heap copy, so that a read beyond the end is seen by the sanitizer. */
static int decode_bytes(const char *json, size_t len, struct sync_request *r, struct api_error *e) {
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, json, len);
    copy[len] = '\0';
    memset(e, 0, sizeof(*e));
    int rc = sync_request_decode(copy, len, r, e);
    if (rc != 0)
        free(copy);
    return rc;
}

static struct sync_request decode_ok(const char *json) {
    struct sync_request r = {0};
    struct api_error e;
    if (decode_bytes(json, strlen(json), &r, &e) != 0)
        fail_msg("%.200s: refused: %s (%s)", json, e.message, e.field);
    return r;
}

static void refused(const char *json, int status, const char *code, const char *field) {
    struct sync_request r, before;
    struct api_error e;
    memset(&r, 0x5a, sizeof(r));
    before = r;
    if (decode_bytes(json, strlen(json), &r, &e) == 0)
        fail_msg("%.200s: accepted", json);
    if (e.status != status || strcmp(e.code, code) != 0 || strcmp(e.field, field) != 0)
        fail_msg("%.200s: got %d %s at \"%s\" (%s), wanted %d %s at \"%s\"", json, e.status, e.code,
                 e.field, e.message, status, code, field);
    assert_memory_equal(&r, &before, sizeof(r));
}

static void test_everything(void **state) {
    (void)state;
    struct sync_request r = decode_ok(
        " {\"root\": \"/workspace/app\", \"delete\": true, \"snapshot\": false, \"entries\": [\n"
        "{\"path\":\"src\",\"type\":\"directory\",\"mode\":\"0750\",\"size\":4096},"
        "{\"path\":\"src/a.py\",\"type\":\"file\",\"mode\":420,\"size\":12,\"sha256\":\"" SHA "\"},"
        "{\"path\":\"src/link\",\"type\":\"symlink\",\"target\":\"../a\\u00e9\\ud83d\\ude00\"}"
        "]} ");
    assert_string_equal(r.root, "/workspace/app");
    assert_true(r.delete);
    assert_false(r.snapshot);
    assert_int_equal(r.count, 3);
    assert_int_equal(r.entries[0].kind, FILEOP_DIRECTORY);
    assert_int_equal(r.entries[0].mode, 0750);
    assert_int_equal(r.entries[0].size, 0);
    assert_int_equal(r.entries[1].kind, FILEOP_FILE);
    assert_int_equal(r.entries[1].mode, 0644);
    assert_int_equal(r.entries[1].size, 12);
    assert_int_equal(r.entries[1].sha256[0], 0xe3);
    assert_int_equal(r.entries[1].sha256[31], 0x55);
    assert_int_equal(r.entries[2].kind, FILEOP_SYMLINK);
    assert_int_equal(r.entries[2].mode, SYNC_MODE_ANY);
    assert_string_equal(r.entries[2].target, "../a\xc3\xa9\xf0\x9f\x98\x80");
    assert_int_equal(r.entries[2].target_len, strlen(r.entries[2].target));
    sync_request_done(&r);
}

static void test_defaults(void **state) {
    (void)state;
    struct sync_request r = decode_ok("{\"entries\":[]}");
    assert_string_equal(r.root, "/workspace");
    assert_false(r.delete);
    assert_true(r.snapshot);
    assert_int_equal(r.count, 0);
    sync_request_done(&r);
}

static void test_parents_are_implied_in_order(void **state) {
    (void)state;
    static const char *const order[] = {"a",     "a/b",     "a/b/1", "a/b/2", "a/c",
                                        "a/c/d", "a/c/d/3", "a-",    "a-/x",  "z"};
    struct sync_request r = decode_ok(ENTRIES(FILE_OF("z") "," FILE_OF("a/c/d/3") "," FILE_OF(
        "a-/x") "," FILE_OF("a/b/2") "," FILE_OF("a/b/1") "," DIR_OF("a/c")));
    assert_int_equal(r.count, UNIT_COUNT(order));
    for (size_t i = 0; i < r.count; i++) {
        assert_string_equal(r.entries[i].path, order[i]);
        assert_int_equal(r.entries[i].path_len, strlen(order[i]));
    }
    assert_true(r.entries[0].implied);
    assert_false(r.entries[4].implied); /* a/c is named */
    assert_true(r.entries[5].implied);
    assert_int_equal(r.entries[5].kind, FILEOP_DIRECTORY);
    sync_request_done(&r);
}

static void test_names_that_are_not_utf8(void **state) {
    (void)state;
    struct sync_request r = decode_ok(
        ENTRIES("{\"path_base64\":\"Zv8=\",\"type\":\"symlink\",\"target_base64\":\"/w==\"}"));
    assert_string_equal(r.entries[0].path, "f\xff");
    assert_string_equal(r.entries[0].target, "\xff");
    sync_request_done(&r);
    refused(ENTRIES("{\"path_base64\":\"AA==\",\"type\":\"directory\"}"), 400, "invalid_value",
            "/entries/0/path_base64");
    refused(ENTRIES("{\"path_base64\":\"Li4=\",\"type\":\"directory\"}"), 400, "invalid_value",
            "/entries/0/path_base64");
    refused(ENTRIES("{\"path_base64\":\"?\",\"type\":\"directory\"}"), 400, "invalid_value",
            "/entries/0/path_base64");
    refused(ENTRIES("{\"path\":\"a\",\"path_base64\":\"YQ==\",\"type\":\"directory\"}"), 400,
            "conflict", "/entries/0");
}

static void test_paths_that_are_refused(void **state) {
    (void)state;
    static const char *const paths[] = {"", "/a", "a/", "a//b", ".", "..", "a/../b", "./a"};
    for (size_t i = 0; i < UNIT_COUNT(paths); i++) {
        char json[200];
        snprintf(json, sizeof(json), "{\"entries\":[{\"path\":\"%s\",\"type\":\"directory\"}]}",
                 paths[i]);
        refused(json, 400, "invalid_value", "/entries/0/path");
    }
    refused(ENTRIES(FILE_OF("a") "," FILE_OF("b") "," FILE_OF("a")), 400, "invalid_value",
            "/entries/2/path");
    refused(ENTRIES(FILE_OF("a/b") "," FILE_OF("a")), 400, "invalid_value", "/entries/0/path");
    refused(ENTRIES(DIR_OF("a") "," DIR_OF("a")), 400, "invalid_value", "/entries/1/path");
    refused(ENTRIES("{\"path\":\"l\",\"type\":\"symlink\",\"target\":\"/\"}," FILE_OF("l/x")), 400,
            "invalid_value", "/entries/1/path");
}

static void test_roots(void **state) {
    (void)state;
    static const char *const good[] = {"/workspace", "/workspace/a/b", "/home/user", "/tmp/x",
                                       "/var/tmp"};
    static const char *const bad[] = {"",     "/",           "workspace",       "/workspace/",
                                      "/etc", "/workspace2", "/workspace/../x", "/home",
                                      "//tmp"};
    for (size_t i = 0; i < UNIT_COUNT(good); i++)
        assert_true(sync_root_ok(good[i], strlen(good[i])));
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        assert_false(sync_root_ok(bad[i], strlen(bad[i])));
    refused("{\"root\":\"/etc\",\"entries\":[]}", 400, "invalid_value", "/root");
}

static void test_wrong_things(void **state) {
    (void)state;
    static const struct {
        const char *json, *code, *field;
    } rows[] = {
        {"", "bad_json", ""},
        {"[]", "bad_json", ""},
        {"{", "bad_json", ""},
        {"{\"entries\":[]", "bad_json", ""},
        {"{\"entries\":[]}x", "bad_json", ""},
        {"{\"entries\":[],}", "bad_json", ""},
        {"{\"entries\":[" DIR_OF("a") ",]}", "wrong_type", "/entries/1"},
        {"{\"entries\":[" DIR_OF("a") " " DIR_OF("b") "]}", "bad_json", ""},
        {"{}", "missing_field", "/entries"},
        {"{\"entries\":null}", "wrong_type", "/entries"},
        {"{\"entries\":[],\"entries\":[]}", "duplicate_field", "/entries"},
        {"{\"entries\":[],\"remove\":true}", "unknown_field", "/remove"},
        {"{\"entries\":[],\"delete\":1}", "wrong_type", "/delete"},
        {"{\"entries\":[],\"delete\":tru}", "bad_json", ""},
        {"{\"entries\":[],\"root\":7}", "wrong_type", "/root"},
        {ENTRIES("7"), "wrong_type", "/entries/0"},
        {ENTRIES("{}"), "missing_field", "/entries/0/path"},
        {ENTRIES("{\"path\":\"a\"}"), "missing_field", "/entries/0/type"},
        {ENTRIES("{\"path\":7}"), "wrong_type", "/entries/0/path"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"fifo\"}"), "invalid_value", "/entries/0/type"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"file\"}"), "missing_field", "/entries/0/size"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"file\",\"size\":1}"), "missing_field",
         "/entries/0/sha256"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"symlink\"}"), "missing_field", "/entries/0/target"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"symlink\",\"target\":\"\"}"), "missing_field",
         "/entries/0/target"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"directory\",\"target\":\"b\"}"), "conflict",
         "/entries/0/target"},
        {ENTRIES("{\"path\":\"a\",\"type\":\"directory\",\"sha256\":\"" SHA "\"}"), "conflict",
         "/entries/0/sha256"},
        {ENTRIES("{\"path\":\"a\",\"path\":\"b\"}"), "duplicate_field", "/entries/0/path"},
        {ENTRIES("{\"owner\":1}"), "unknown_field", "/entries/0/owner"},
        {ENTRIES("{\"size\":-1}"), "out_of_range", "/entries/0/size"},
        {ENTRIES("{\"size\":1.5}"), "out_of_range", "/entries/0/size"},
        {ENTRIES("{\"size\":1e3}"), "out_of_range", "/entries/0/size"},
        {ENTRIES("{\"size\":01}"), "out_of_range", "/entries/0/size"},
        {ENTRIES("{\"size\":99999999999999999999999}"), "out_of_range", "/entries/0/size"},
        {ENTRIES("{\"size\":1125899906842625}"), "out_of_range", "/entries/0/size"},
        {ENTRIES("{\"size\":\"1\"}"), "wrong_type", "/entries/0/size"},
        {ENTRIES("{\"mode\":\"0999\"}"), "invalid_value", "/entries/0/mode"},
        {ENTRIES("{\"mode\":\"64\"}"), "invalid_value", "/entries/0/mode"},
        {ENTRIES("{\"mode\":\"77777\"}"), "out_of_range", "/entries/0/mode"},
        {ENTRIES("{\"mode\":4096}"), "out_of_range", "/entries/0/mode"},
        {ENTRIES("{\"mode\":true}"), "wrong_type", "/entries/0/mode"},
        {ENTRIES("{\"sha256\":\"abc\"}"), "invalid_value", "/entries/0/sha256"},
        {ENTRIES("{\"path\":\"\\u0000\"}"), "bad_json", ""},
        {ENTRIES("{\"path\":\"\\ud800\"}"), "bad_json", ""},
        {ENTRIES("{\"path\":\"\\x\"}"), "bad_json", ""},
        {ENTRIES("{\"path\":\"\xff\"}"), "bad_json", ""},
        {ENTRIES("{\"path\":\"\n\"}"), "bad_json", ""},
        {ENTRIES("{\"path\":\"a"), "bad_json", ""},
        {ENTRIES("{\"path\":{\"a\":[[[[[[[[[[[[[[[[[[[["), "wrong_type", "/entries/0/path"},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        refused(rows[i].json, 400, rows[i].code, rows[i].field);
}

static void test_every_cut_is_refused(void **state) {
    (void)state;
    static const char json[] = "{\"root\":\"/tmp\",\"entries\":[" FILE_OF(
        "a\\u00e9b/c") ",{\"path\":"
                       "\"l\",\"type\":\"symlink\",\"target\":\"x\",\"mode\":\"0777\"}],\"delete\":"
                       "true}";
    struct sync_request r = decode_ok(json);
    sync_request_done(&r);
    for (size_t len = 0; len < sizeof(json) - 1; len++) {
        struct api_error e;
        assert_int_equal(decode_bytes(json, len, &r, &e), -1);
        assert_int_equal(e.status, 400);
    }
}

static void test_too_many(void **state) {
    (void)state;
    size_t n = SYNC_ENTRIES_MAX + 1, at = 0, size = n * 48 + 100;
    char *json = malloc(size);
    struct sync_request r;
    struct api_error e = {0};
    assert_non_null(json);
    at += (size_t)snprintf(json, size, "{\"entries\":[");
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(json + at, size - at, "%s{\"path\":\"%zu\",\"type\":\"directory\"}",
                               i > 0 ? "," : "", i);
    at += (size_t)snprintf(json + at, size - at, "]}");
    assert_int_equal(sync_request_decode(json, at, &r, &e), -1);
    assert_int_equal(e.status, 413);
    free(json);
}

static void test_order_of_trees(void **state) {
    (void)state;
    static const char *const sorted[] = {"a", "a/\x01", "a/b", "a\x01", "a!", "aa", "b"};
    for (size_t i = 0; i < UNIT_COUNT(sorted); i++)
        for (size_t k = 0; k < UNIT_COUNT(sorted); k++) {
            int got = sync_path_compare(sorted[i], strlen(sorted[i]), sorted[k], strlen(sorted[k]));
            assert_int_equal(got, (i > k) - (i < k));
        }
    assert_true(sync_path_below("a/b", 3, "a", 1));
    assert_false(sync_path_below("ab", 2, "a", 1));
    assert_false(sync_path_below("a", 1, "a", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_parents_are_implied_in_order),
        cmocka_unit_test(test_names_that_are_not_utf8),
        cmocka_unit_test(test_paths_that_are_refused),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_wrong_things),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_order_of_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
