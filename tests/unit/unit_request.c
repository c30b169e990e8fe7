/* The request decoder: what it must accept, and that each wrong thing is refused with the right
 * status, code and field. */
#include "request_unit.h"

#include <stdio.h>

/* --- what is right -------------------------------------------------------------------------------
 */

static void test_defaults(void **state) {
    (void)state;
    struct run_request r = decode_ok("{\"argv\":[\"id\"]}");
    assert_string_equal(r.policy, "default");
    assert_string_equal(r.image, "host");
    assert_int_equal(r.network, REQUEST_NETWORK_NONE);
    assert_true(r.wait);
    assert_false(r.stream || r.cancel_on_disconnect || r.end_on_set);
    assert_int_equal(r.step_count, 1);
    assert_string_equal(r.steps[0].name, "main");
    assert_int_equal(r.steps[0].argc, 1);
    assert_string_equal(r.steps[0].argv[0], "id");
    assert_null(r.steps[0].argv[1]);
    assert_false(r.steps[0].shell || r.steps[0].merge_stderr || r.steps[0].continue_on_error);
    assert_string_equal(request_cwd(&r, 0), "/workspace");
    assert_null(request_input(&r, 0).data);
    for (int i = 0; i < LIMIT_COUNT; i++)
        assert_false(r.limits.set[i] || r.steps[0].limits.set[i]);
    assert_int_equal(r.env.count + r.file_count + r.collect_count, 0);
    request_done(&r);
    assert_null(r.mem);
    request_done(&r); /* again: harmless */
    request_done(NULL);
}

static const char everything[] =
    "{\"policy\":\"ci\",\"image\":\"py-3.11\",\"network\":\"egress\",\"cancel_on_disconnect\":true,"
    "\"files\":[{\"path\":\"main.py\",\"content\":\"print(1)\",\"encoding\":\"utf-8\",\"mode\":"
    "\"0755\"},"
    "{\"path\":\"./a//b.bin\",\"content\":\"AP8=\",\"encoding\":\"base64\",\"mode\":\"7644\"}],"
    "\"env\":{\"K\":\"V\",\"_x9\":\"\"},\"cwd\":\"sub\",\"stdin\":\"aGk=\",\"stdin_encoding\":"
    "\"base64\","
    "\"steps\":[{\"name\":\"build \\u00fc\",\"argv\":[\"make\",\"\",\"-j2\"]},"
    "{\"sh\":\"make "
    "test\",\"limits\":{\"wall_ms\":60000},\"stdin\":\"own\\u0000\",\"continue_on_error\":true,"
    "\"env\":{\"K\":\"W\"},\"cwd\":\"/tmp\",\"merge_stderr\":false}],"
    "\"limits\":{\"wall_ms\":30000,\"cpu_ms\":10000,\"mem_bytes\":268435456,\"pids\":64,"
    "\"disk_bytes\":536870912,\"inodes\":65536,\"output_bytes\":1048576,\"open_files\":1024,"
    "\"file_bytes\":1048576,\"stack_bytes\":8388608,\"cpus_milli\":1000},"
    "\"collect\":[\"out/**\",\"/workspace/./log.txt\"],\"wait\":true,\"stream\":true,"
    "\"merge_stderr\":true,\"end_on\":[\"output\",\"pids\"]}";

static void test_everything(void **state) {
    (void)state;
    struct run_request moved = decode_ok(everything), r = moved;
    memset(&moved, 0x5a, sizeof(moved)); /* nothing may point into the struct itself */
    assert_string_equal(r.policy, "ci");
    assert_string_equal(r.image, "py-3.11");
    assert_int_equal(r.network, REQUEST_NETWORK_EGRESS);
    assert_true(r.stream && r.wait && r.cancel_on_disconnect && r.end_on_set);
    assert_int_equal(r.end_on, END_ON_OUTPUT | END_ON_PIDS);
    assert_int_equal(r.limits.values.v[LIMIT_MEM_BYTES], 268435456);
    for (int i = 0; i < LIMIT_COUNT; i++)
        assert_true(r.limits.set[i]);
    assert_int_equal(r.env.count, 2);
    assert_string_equal(r.env.items[0], "K=V");
    assert_string_equal(r.env.items[1], "_x9=");
    assert_int_equal(r.collect_count, 2);
    assert_string_equal(r.collect[0], "out/**");
    assert_string_equal(r.collect[1], "log.txt");
    request_done(&r);
}

static void test_files(void **state) {
    (void)state;
    struct run_request r = decode_ok(everything);
    assert_int_equal(r.file_count, 2);
    assert_string_equal(r.files[0].path, "main.py");
    assert_int_equal(r.files[0].mode, 0755);
    assert_int_equal(r.files[0].size, 8);
    assert_string_equal(r.files[1].path, "a/b.bin");
    assert_int_equal(r.files[1].mode, 0644); /* set-id and sticky bits are gone */
    assert_int_equal(r.files[1].size, 2);
    assert_memory_equal(r.files[1].data, "\0\xff", 3);
    request_done(&r);

    r = decode_ok("{\"sh\":\"x\",\"files\":[{\"path\":\"e\",\"content\":\"\"},"
                  "{\"path\":\"f\",\"content\":\"\",\"encoding\":\"base64\"},"
                  "{\"path\":\"g\",\"content\":\"a\\u0000b\\ud83d\\ude00\"},"
                  "{\"path\":\"h\",\"content\":\"YWJj\\r\\nZGVm\\n\",\"encoding\":\"base64\"},"
                  "{\"path\":\"a-b\",\"content\":\"\"},{\"path\":\"a/b\",\"content\":\"\"}]}");
    assert_int_equal(r.files[0].size + r.files[1].size, 0);
    assert_non_null(r.files[0].data);
    assert_non_null(r.files[1].data);
    assert_int_equal(r.files[0].mode, 0644);
    assert_int_equal(r.files[2].size, 7);
    assert_memory_equal(r.files[2].data, "a\0b\xf0\x9f\x98\x80", 8);
    assert_int_equal(r.files[3].size, 6);
    assert_string_equal(r.files[3].data, "abcdef");
    request_done(&r);
}

static void test_steps(void **state) {
    (void)state;
    struct run_request r = decode_ok(everything);
    assert_int_equal(r.step_count, 2);
    const struct request_step *build = &r.steps[0], *test = &r.steps[1];
    assert_string_equal(build->name, "build \xc3\xbc");
    assert_int_equal(build->argc, 3);
    assert_string_equal(build->argv[1], "");
    assert_true(build->merge_stderr); /* the run's */
    assert_string_equal(request_cwd(&r, 0), "/workspace/sub");
    assert_string_equal(request_input(&r, 0).data, "hi");
    assert_string_equal(test->name, "step-1");
    assert_true(test->shell && test->continue_on_error);
    assert_false(test->merge_stderr);
    assert_string_equal(test->argv[0], "make test");
    assert_int_equal(test->argc, 1);
    assert_string_equal(test->env.items[0], "K=W");
    assert_string_equal(request_cwd(&r, 1), "/tmp");
    assert_int_equal(request_input(&r, 1).len, 4);
    assert_memory_equal(request_input(&r, 1).data, "own", 5);
    assert_true(test->limits.set[LIMIT_WALL_MS]);
    assert_int_equal(test->limits.values.v[LIMIT_WALL_MS], 60000);
    assert_false(test->limits.set[LIMIT_CPU_MS]);
    request_done(&r);
    /* An empty stdin of its own is not the run's. */
    r = decode_ok("{\"stdin\":\"x\",\"steps\":[{\"argv\":[\"cat\"],\"stdin\":\"\"}]}");
    assert_int_equal(request_input(&r, 0).len, 0);
    assert_non_null(request_input(&r, 0).data);
    request_done(&r);
}

/* --- limits
 * --------------------------------------------------------------------------------------- */

static void check_bad_limit(const char *name, bool of_step, const char *value, const char *code) {
    char json[512], field[128];
    if (of_step) {
        snprintf(json, sizeof(json),
                 "{\"steps\":[{\"sh\":\"a\"},{\"sh\":\"b\",\"limits\":{\"%s\":%s}}]}", name, value);
        snprintf(field, sizeof(field), "/steps/1/limits/%s", name);
    } else {
        snprintf(json, sizeof(json), "{\"limits\":{\"%s\":%s},\"sh\":\"a\"}", name, value);
        snprintf(field, sizeof(field), "/limits/%s", name);
    }
    expect_error(json, 400, code, field);
}

static void test_bad_limits(void **state) {
    (void)state;
    static const struct {
        const char *value, *code;
    } bad[] = {
        {"0", "out_of_range"},
        {"-0", "out_of_range"},
        {"-1", "out_of_range"},
        {"-9223372036854775808", "out_of_range"},
        {"9223372036854775807", "out_of_range"},
        {"9223372036854775808", "out_of_range"},
        {"-9223372036854775809", "out_of_range"},
        {"18446744073709551616", "out_of_range"},
        {"1e308", "wrong_type"},
        {"1e400", "out_of_range"},
        {"1.5", "wrong_type"},
        {"100.0", "wrong_type"},
        {"1E3", "wrong_type"},
        {"\"100\"", "wrong_type"},
        {"\"\"", "wrong_type"},
        {"null", "wrong_type"},
        {"true", "wrong_type"},
        {"false", "wrong_type"},
        {"[]", "wrong_type"},
        {"[100]", "wrong_type"},
        {"{}", "wrong_type"},
        {"NaN", "bad_json"},
        {"Infinity", "bad_json"},
        {"0100", "bad_json"},
        {"+100", "bad_json"},
        {"0x64", "bad_json"},
    };
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = limit_info((enum limit_id)id);
        for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
            check_bad_limit(info->name, false, bad[i].value, bad[i].code);
            if (info->per_step)
                check_bad_limit(info->name, true, bad[i].value, bad[i].code);
        }
        if (!info->per_step)
            check_bad_limit(info->name, true, "65536", "conflict");
    }
}

static void test_limit_bounds(void **state) {
    (void)state;
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = limit_info((enum limit_id)id);
        const uint64_t ok[] = {info->min, info->max};
        const uint64_t wrong[] = {info->min - 1, info->max + 1};
        char text[160];
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof(text), "%llu", (unsigned long long)wrong[i]);
            check_bad_limit(info->name, false, text, "out_of_range");
            snprintf(text, sizeof(text), "{\"sh\":\"a\",\"limits\":{\"%s\":%llu}}", info->name,
                     (unsigned long long)ok[i]);
            struct run_request r = decode_ok(text);
            assert_true(r.limits.set[id]);
            assert_int_equal(r.limits.values.v[id], ok[i]);
            request_done(&r);
        }
    }
}

/* --- what is wrong
 * -------------------------------------------------------------------------------- */

static void test_unknown_and_duplicate(void **state) {
    (void)state;
    static const struct bad table[] = {
        {"{\"sh\":\"a\",\"netwrok\":false}", "unknown_field", "/netwrok"},
        {"{\"sh\":\"a\",\"limits\":{\"wal_ms\":1000}}", "unknown_field", "/limits/wal_ms"},
        {"{\"steps\":[{\"sh\":\"a\",\"policy\":\"ci\"}]}", "unknown_field", "/steps/0/policy"},
        {"{\"sh\":\"a\",\"files\":[{\"path\":\"x\",\"contents\":\"\"}]}", "unknown_field",
         "/files/0/contents"},
        {"{\"sh\":\"a\",\"\":1}", "unknown_field", "/"},
        {"{\"sh\":\"a\",\"a/b~c\":1}", "unknown_field", "/a~1b~0c"},
        {"{\"sh\":\"a\",\"SH\":\"b\"}", "unknown_field", "/SH"},
        {"{\"sh\":\"a\",\"continue_on_error\":true}", "unknown_field", "/continue_on_error"},
        {"{\"sh\":\"a\",\"sh\":\"b\"}", "duplicate_field", "/sh"},
        {"{\"sh\":\"a\",\"limits\":{\"wall_ms\":1,\"wall_ms\":60000}}", "duplicate_field",
         "/limits/wall_ms"},
        {"{\"steps\":[{\"sh\":\"a\"},{\"sh\":\"b\",\"env\":{\"A\":\"1\",\"B\":\"2\",\"A\":\"3\"}}]"
         "}",
         "duplicate_field", "/steps/1/env/A"},
    };
    struct run_request r = {0};
    struct api_error e;
    EXPECT_BAD(table);
    assert_int_equal(decode_bytes(table[1].json, strlen(table[1].json), &r, &e), -1);
    assert_string_equal(e.message, "limits.wal_ms is not a known field; did you mean wall_ms?");
    assert_int_equal(decode_bytes(table[0].json, strlen(table[0].json), &r, &e), -1);
    assert_string_equal(e.message, "netwrok is not a known field; did you mean network?");
}

static void test_wrong_values(void **state) {
    (void)state;
    static const struct bad table[] = {
        {"{}", "missing_field", ""},
        {"{\"argv\":[\"a\"],\"sh\":\"b\"}", "conflict", ""},
        {"{\"argv\":[\"a\"],\"steps\":[{\"sh\":\"b\"}]}", "conflict", ""},
        {"{\"argv\":[]}", "invalid_value", "/argv"},
        {"{\"argv\":\"ls\"}", "wrong_type", "/argv"},
        {"{\"argv\":null}", "wrong_type", "/argv"},
        {"{\"argv\":{\"0\":\"ls\"}}", "wrong_type", "/argv"},
        {"{\"argv\":[\"ls\",1]}", "wrong_type", "/argv/1"},
        {"{\"argv\":[\"ls\",null]}", "wrong_type", "/argv/1"},
        {"{\"argv\":[\"\"]}", "invalid_value", "/argv/0"},
        {"{\"argv\":[\"ls\",\"a\\u0000b\"]}", "invalid_value", "/argv/1"},
        {"{\"sh\":\"\"}", "invalid_value", "/sh"},
        {"{\"sh\":[\"a\"]}", "wrong_type", "/sh"},
        {"{\"sh\":\"a\\u0000\"}", "invalid_value", "/sh"},
        {"{\"steps\":[]}", "invalid_value", "/steps"},
        {"{\"steps\":{}}", "wrong_type", "/steps"},
        {"{\"steps\":[\"make\"]}", "wrong_type", "/steps/0"},
        {"{\"steps\":[{}]}", "missing_field", "/steps/0"},
        {"{\"steps\":[{\"name\":\"x\"}]}", "missing_field", "/steps/0"},
        {"{\"steps\":[{\"sh\":\"a\"},{\"sh\":\"a\",\"argv\":[\"b\"]}]}", "conflict", "/steps/1"},
        {"{\"steps\":[{\"sh\":\"a\",\"name\":\"\"}]}", "invalid_value", "/steps/0/name"},
        {"{\"steps\":[{\"sh\":\"a\",\"name\":\"a\\nb\"}]}", "invalid_value", "/steps/0/name"},
        {"{\"steps\":[{\"sh\":\"a\",\"name\":\"\\u001b[2J\"}]}", "invalid_value", "/steps/0/name"},
        {"{\"steps\":[{\"sh\":\"a\",\"name\":\"\\u0085\"}]}", "invalid_value", "/steps/0/name"},
        {"{\"steps\":[{\"sh\":\"a\",\"name\":7}]}", "wrong_type", "/steps/0/name"},
        {"{\"steps\":[{\"sh\":\"a\",\"continue_on_error\":1}]}", "wrong_type",
         "/steps/0/continue_on_error"},
        {"{\"sh\":\"a\",\"policy\":\"\"}", "invalid_value", "/policy"},
        {"{\"sh\":\"a\",\"policy\":\"../etc\"}", "invalid_value", "/policy"},
        {"{\"sh\":\"a\",\"policy\":\"a\\u0000b\"}", "invalid_value", "/policy"},
        {"{\"sh\":\"a\",\"image\":\".hidden\"}", "invalid_value", "/image"},
        {"{\"sh\":\"a\",\"image\":null}", "wrong_type", "/image"},
        {"{\"sh\":\"a\",\"network\":\"full\"}", "invalid_value", "/network"},
        {"{\"sh\":\"a\",\"network\":false}", "wrong_type", "/network"},
        {"{\"sh\":\"a\",\"network\":{\"mode\":\"none\"}}", "wrong_type", "/network"},
        {"{\"sh\":\"a\",\"wait\":1}", "wrong_type", "/wait"},
        {"{\"sh\":\"a\",\"stream\":\"true\"}", "wrong_type", "/stream"},
        {"{\"sh\":\"a\",\"merge_stderr\":null}", "wrong_type", "/merge_stderr"},
        {"{\"sh\":\"a\",\"wait\":false,\"stream\":true}", "conflict", "/wait"},
        {"{\"sh\":\"a\",\"wait\":false,\"cancel_on_disconnect\":true}", "conflict", "/wait"},
        {"{\"sh\":\"a\",\"limits\":[]}", "wrong_type", "/limits"},
        {"{\"sh\":\"a\",\"limits\":null}", "wrong_type", "/limits"},
        {"{\"sh\":\"a\",\"end_on\":\"pids\"}", "wrong_type", "/end_on"},
        {"{\"sh\":\"a\",\"end_on\":[\"pids\",\"mem\"]}", "invalid_value", "/end_on/1"},
        {"{\"sh\":\"a\",\"end_on\":[\"pids\",\"pids\"]}", "invalid_value", "/end_on/1"},
        {"{\"sh\":\"a\",\"stdin\":7}", "wrong_type", "/stdin"},
        {"{\"sh\":\"a\",\"stdin\":\"x\",\"stdin_encoding\":\"hex\"}", "invalid_value",
         "/stdin_encoding"},
        {"{\"sh\":\"a\",\"stdin_encoding\":null}", "wrong_type", "/stdin_encoding"},
        {"{\"sh\":\"a\",\"stdin\":\"!!!!\",\"stdin_encoding\":\"base64\"}", "invalid_value",
         "/stdin"},
        {"{\"sh\":\"a\",\"stdin\":\"QQ\",\"stdin_encoding\":\"base64\"}", "invalid_value",
         "/stdin"},
        {"{\"sh\":\"a\",\"stdin\":\"QR==\",\"stdin_encoding\":\"base64\"}", "invalid_value",
         "/stdin"},
        {"{\"sh\":\"a\",\"stdin\":\"QQ==\\u0000\",\"stdin_encoding\":\"base64\"}", "invalid_value",
         "/stdin"},
        {"{\"sh\":\"a\",\"cwd\":\"\"}", "invalid_value", "/cwd"},
        {"{\"sh\":\"a\",\"cwd\":\"a\\u0000\"}", "invalid_value", "/cwd"},
        {"{\"sh\":\"a\",\"cwd\":7}", "wrong_type", "/cwd"},
    };
    EXPECT_BAD(table);
}

static void test_env(void **state) {
    (void)state;
    static const struct bad table[] = {
        {"{\"sh\":\"a\",\"env\":[]}", "wrong_type", "/env"},
        {"{\"sh\":\"a\",\"env\":{\"\":\"v\"}}", "invalid_value", "/env/"},
        {"{\"sh\":\"a\",\"env\":{\"A=B\":\"v\"}}", "invalid_value", "/env/A=B"},
        {"{\"sh\":\"a\",\"env\":{\"9A\":\"v\"}}", "invalid_value", "/env/9A"},
        {"{\"sh\":\"a\",\"env\":{\"A B\":\"v\"}}", "invalid_value", "/env/A B"},
        {"{\"sh\":\"a\",\"env\":{\"\\u00c4\":\"v\"}}", "invalid_value", "/env/\xc3\x84"},
        {"{\"sh\":\"a\",\"env\":{\"A\\u0000\":\"v\"}}", "bad_json", NULL},
        {"{\"sh\":\"a\",\"env\":{\"A\":1}}", "wrong_type", "/env/A"},
        {"{\"sh\":\"a\",\"env\":{\"A\":null}}", "wrong_type", "/env/A"},
        {"{\"sh\":\"a\",\"env\":{\"A\":\"x\\u0000y\"}}", "invalid_value", "/env/A"},
    };
    EXPECT_BAD(table);
}

static void test_paths(void **state) {
    (void)state;
    static const struct {
        const char *in, *out; /* NULL = refused */
    } table[] = {
        {"a", "a"},
        {"./a", "a"},
        {"a//b", "a/b"},
        {"a/./b", "a/b"},
        {".//./a", "a"},
        {"/workspace/a", "a"},
        {"/workspace//a/b", "a/b"},
        {".hidden/..x", ".hidden/..x"},
        {"...", "..."},
        {"a b", "a b"},
        {"\xc3\xbc", "\xc3\xbc"},
        {"workspace/a", "workspace/a"},
        {"~/a", "~/a"},
        {"a\\\\b", "a\\b"},
        {"", NULL},
        {".", NULL},
        {"./", NULL},
        {"/", NULL},
        {"//", NULL},
        {"..", NULL},
        {"../a", NULL},
        {"a/..", NULL},
        {"a/../b", NULL},
        {"a/", NULL},
        {"a/.", NULL},
        {"/etc/passwd", NULL},
        {"//workspace/a", NULL},
        {"/workspace", NULL},
        {"/workspace/", NULL},
        {"/workspace/.", NULL},
        {"/workspace/../etc/passwd", NULL},
        {"/workspaces/a", NULL},
        {"/workspace2", NULL},
        {"a\\u0000b", NULL},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        char json[256];
        snprintf(json, sizeof(json),
                 "{\"sh\":\"a\",\"files\":[{\"path\":\"%s\",\"content\":\"\"}]}", table[i].in);
        if (!table[i].out) {
            expect_error(json, 400, "invalid_value", "/files/0/path");
            snprintf(json, sizeof(json), "{\"sh\":\"a\",\"collect\":[\"x\",\"%s\"]}", table[i].in);
            expect_error(json, 400, "invalid_value", "/collect/1");
            continue;
        }
        struct run_request r = decode_ok(json);
        assert_string_equal(r.files[0].path, table[i].out);
        request_done(&r);
    }
}

static void test_bad_files(void **state) {
    (void)state;
#define FILES(x) "{\"sh\":\"a\",\"files\":" x "}"
    static const struct bad table[] = {
        {FILES("{}"), "wrong_type", "/files"},
        {FILES("[1]"), "wrong_type", "/files/0"},
        {FILES("[{\"content\":\"\"}]"), "missing_field", "/files/0/path"},
        {FILES("[{\"path\":\"a\"}]"), "missing_field", "/files/0/content"},
        {FILES("[{\"path\":1,\"content\":\"\"}]"), "wrong_type", "/files/0/path"},
        {FILES("[{\"path\":\"a\",\"content\":null}]"), "wrong_type", "/files/0/content"},
        {FILES("[{\"path\":\"a\",\"content\":\"\",\"encoding\":\"latin1\"}]"), "invalid_value",
         "/files/0/encoding"},
        {FILES("[{\"path\":\"a\",\"content\":\"A\",\"encoding\":\"base64\"}]"), "invalid_value",
         "/files/0/content"},
        {FILES("[{\"path\":\"a\",\"content\":\"\",\"mode\":420}]"), "wrong_type", "/files/0/mode"},
        {FILES("[{\"path\":\"a\",\"content\":\"\",\"mode\":\"0o644\"}]"), "invalid_value",
         "/files/0/mode"},
        {FILES("[{\"path\":\"a\",\"content\":\"\",\"mode\":\"888\"}]"), "invalid_value",
         "/files/0/mode"},
        {FILES("[{\"path\":\"a\",\"content\":\"\",\"mode\":\"\"}]"), "invalid_value",
         "/files/0/mode"},
        {FILES("[{\"path\":\"a\",\"content\":\"\",\"mode\":\"00644\"}]"), "invalid_value",
         "/files/0/mode"},
        {FILES("[{\"path\":\"a\",\"content\":\"\"},{\"path\":\"b\",\"content\":\"\"},"
               "{\"path\":\"./a\",\"content\":\"\"}]"),
         "conflict", "/files/2/path"},
        {FILES("[{\"path\":\"a/b\",\"content\":\"\"},{\"path\":\"a-b\",\"content\":\"\"},"
               "{\"path\":\"a\",\"content\":\"\"}]"),
         "conflict", "/files/0/path"},
    };
#undef FILES
    EXPECT_BAD(table);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_bad_limits),
        cmocka_unit_test(test_limit_bounds),
        cmocka_unit_test(test_unknown_and_duplicate),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_env),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
