/* The decoders of requests for sandboxes: what they accept, and that each wrong thing is refused
 * with the right status, code and field. */
#include "sandbox_request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

/* From an exact-size heap copy, so that a read beyond the end is seen by the sanitizer. */
static char *copy_of(const char *json) {
    size_t len = strlen(json);
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, json, len);
    return copy;
}

static void expect(const char *json, const struct api_error *e, int status, const char *code,
                   const char *field) {
    if (e->status != status || strcmp(e->code, code) != 0 || strcmp(e->field, field) != 0)
        fail_msg("%.100s: got %d %s at \"%s\" (%s)", json, e->status, e->code, e->field,
                 e->message);
}

static void test_everything_is_read(void **state) {
    (void)state;
    struct sandbox_request r = {0};
    struct api_error e = {0};
    const char *json = "{\"policy\":\"strict\",\"image\":\"debian\",\"env\":{\"A\":\"1\"},"
                       "\"limits\":{\"mem_bytes\":67108864},\"network\":\"none\",\"ttl_ms\":5000,"
                       "\"idle_ms\":100,\"from\":\"snap_abc\",\"metadata\":{\"a\":[1,{}]},"
                       "\"disk\":\"file\"}";
    char *copy = copy_of(json);
    if (sandbox_request_decode(copy, strlen(json), &r, &e) != 0)
        fail_msg("%s", e.message);
    free(copy);
    assert_string_equal(r.policy, "strict");
    assert_string_equal(r.image, "debian");
    assert_int_equal(r.env.count, 1);
    assert_string_equal(r.env.items[0], "A=1");
    assert_true(r.limits.set[LIMIT_MEM_BYTES]);
    assert_int_equal(r.limits.values.v[LIMIT_MEM_BYTES], 67108864);
    assert_int_equal(r.network, REQUEST_NETWORK_NONE);
    assert_int_equal(r.ttl_ms, 5000);
    assert_int_equal(r.idle_ms, 100);
    assert_string_equal(r.from, "snap_abc");
    assert_true(r.disk_set && r.disk_file);
    assert_int_equal(json_object_size(r.metadata), 1);
    sandbox_request_done(&r);
    sandbox_request_done(&r);
}

static void test_nothing_is_needed(void **state) {
    (void)state;
    struct sandbox_request r = {0};
    struct api_error e = {0};
    assert_int_equal(sandbox_request_decode("{}", 2, &r, &e), 0);
    assert_null(r.policy);
    assert_null(r.image);
    assert_null(r.from);
    assert_null(r.metadata);
    assert_false(r.disk_set);
    assert_int_equal(r.ttl_ms, 0);
    sandbox_request_done(&r);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        int status;
        const char *code, *field;
    } table[] = {
        {"", 400, "bad_json", ""},
        {"[]", 400, "bad_json", ""},
        {"{\"ttl\":1}", 400, "unknown_field", "/ttl"},
        {"{\"argv\":[\"a\"]}", 400, "unknown_field", "/argv"},
        {"{\"ttl_ms\":1,\"ttl_ms\":1}", 400, "duplicate_field", "/ttl_ms"},
        {"{\"ttl_ms\":99}", 400, "out_of_range", "/ttl_ms"},
        {"{\"ttl_ms\":-1}", 400, "out_of_range", "/ttl_ms"},
        {"{\"ttl_ms\":604800001}", 400, "out_of_range", "/ttl_ms"},
        {"{\"ttl_ms\":1.5}", 400, "wrong_type", "/ttl_ms"},
        {"{\"ttl_ms\":null}", 400, "wrong_type", "/ttl_ms"},
        {"{\"idle_ms\":\"1000\"}", 400, "wrong_type", "/idle_ms"},
        {"{\"idle_ms\":0}", 400, "out_of_range", "/idle_ms"},
        {"{\"policy\":\"../x\"}", 400, "invalid_value", "/policy"},
        {"{\"image\":7}", 400, "wrong_type", "/image"},
        {"{\"from\":true}", 400, "wrong_type", "/from"},
        {"{\"from\":\"a\\u0000b\"}", 400, "invalid_value", "/from"},
        {"{\"disk\":\"tape\"}", 400, "invalid_value", "/disk"},
        {"{\"network\":\"all\"}", 400, "invalid_value", "/network"},
        {"{\"metadata\":[]}", 400, "wrong_type", "/metadata"},
        {"{\"env\":{\"1A\":\"x\"}}", 400, "invalid_value", "/env/1A"},
        {"{\"limits\":{\"mem\":1}}", 400, "unknown_field", "/limits/mem"},
        {"{\"limits\":{\"pids\":0}}", 400, "out_of_range", "/limits/pids"},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        struct sandbox_request r, before;
        struct api_error e = {0};
        memset(&r, 0x5a, sizeof(r));
        before = r;
        char *copy = copy_of(table[i].json);
        assert_int_equal(sandbox_request_decode(copy, strlen(table[i].json), &r, &e), -1);
        free(copy);
        expect(table[i].json, &e, table[i].status, table[i].code, table[i].field);
        assert_memory_equal(&r, &before, sizeof(r));
    }
}

static void test_metadata_is_bounded(void **state) {
    (void)state;
    struct sandbox_request r = {0};
    struct api_error e = {0};
    size_t size = SANDBOX_REQUEST_METADATA_MAX + 64;
    char *json = malloc(size);
    assert_non_null(json);
    size_t text = SANDBOX_REQUEST_METADATA_MAX - 8; /* {"a":"…"} */
    int n = snprintf(json, size, "{\"metadata\":{\"a\":\"%0*d\"}}", (int)text, 0);
    assert_int_equal(sandbox_request_decode(json, (size_t)n, &r, &e), 0);
    sandbox_request_done(&r);
    n = snprintf(json, size, "{\"metadata\":{\"a\":\"%0*d\"}}", (int)text + 1, 0);
    assert_int_equal(sandbox_request_decode(json, (size_t)n, &r, &e), -1);
    expect("metadata", &e, 413, "too_large", "/metadata");
    free(json);
}

static void test_small_bodies(void **state) {
    (void)state;
    struct api_error e = {0};
    uint64_t ttl = 0;
    uint32_t count = 0;
    char name[SANDBOX_REQUEST_NAME_MAX + 1], ref[SANDBOX_REQUEST_REF_MAX + 1];
    assert_int_equal(sandbox_request_ttl("{\"ttl_ms\":100}", 14, &ttl, &e), 0);
    assert_int_equal(ttl, 100);
    assert_int_equal(sandbox_request_ttl("{}", 2, &ttl, &e), -1);
    expect("{}", &e, 400, "missing_field", "/ttl_ms");
    assert_int_equal(sandbox_request_fork("", 0, &count, &e), 0);
    assert_int_equal(count, 1);
    assert_int_equal(sandbox_request_fork("{\"count\":64}", 12, &count, &e), 0);
    assert_int_equal(count, 64);
    assert_int_equal(sandbox_request_fork("{\"count\":65}", 12, &count, &e), -1);
    expect("65", &e, 400, "out_of_range", "/count");
    assert_int_equal(sandbox_request_fork("{\"count\":0}", 11, &count, &e), -1);
    assert_int_equal(sandbox_request_snapshot("", 0, name, &e), 0);
    assert_string_equal(name, "");
    assert_int_equal(sandbox_request_snapshot("{\"name\":\"before\"}", 17, name, &e), 0);
    assert_string_equal(name, "before");
    assert_int_equal(sandbox_request_snapshot("{\"name\":\"a\\nb\"}", 15, name, &e), -1);
    expect("a\\nb", &e, 400, "invalid_value", "/name");
    assert_int_equal(sandbox_request_restore("{}", 2, ref, &e), -1);
    expect("{}", &e, 400, "missing_field", "/snapshot");
    assert_int_equal(sandbox_request_restore("{\"snapshot\":\"snap_1\"}", 21, ref, &e), 0);
    assert_string_equal(ref, "snap_1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_read),
        cmocka_unit_test(test_nothing_is_needed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_metadata_is_bounded),
        cmocka_unit_test(test_small_bodies),
    };
    return cmocka_run_group_tests_name("sandbox_request", tests, NULL, NULL);
}
