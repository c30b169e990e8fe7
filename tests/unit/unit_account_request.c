#include "account_request.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static const char *const quotas[] = {"runs", "mem_bytes", NULL};
static struct account_request r;
static struct api_error error;

static int decode(const char *json, enum account_request_kind kind) {
    memset(&error, 0, sizeof(error));
    return account_request_decode(json, strlen(json), kind, quotas, &r, &error);
}

static void test_user(void **state) {
    (void)state;
    assert_int_equal(decode("{\"name\":\"ann\",\"admin\":true,\"weight\":7,"
                            "\"quota\":{\"mem_bytes\":5,\"runs\":null}}",
                            ACCOUNT_REQUEST_USER),
                     0);
    assert_string_equal(r.name, "ann");
    assert_true(r.admin && r.admin_set && !r.disabled_set);
    assert_int_equal(r.weight, 7);
    assert_true(r.quota_set[0] && r.quota_set[1]);
    assert_true(r.quota[0] == ACCOUNT_REQUEST_NO_BOUND);
    assert_int_equal(r.quota[1], 5);
    account_request_done(&r);
    assert_int_equal(decode("{\"disabled\":false}", ACCOUNT_REQUEST_USER_CHANGE), 0);
    assert_true(r.disabled_set && !r.disabled && !r.admin_set && r.weight == 0);
    assert_false(r.quota_set[0]);
    account_request_done(&r);
}

static void test_token(void **state) {
    (void)state;
    assert_int_equal(decode("{\"user\":\"ann\",\"label\":\"für später\",\"scopes\":[\"run\","
                            "\"read\"],\"policies\":[\"ci\"],\"expires_at\":1790000000000,"
                            "\"budget\":{\"cpu_ms\":1,\"runs\":0,\"until\":null}}",
                            ACCOUNT_REQUEST_TOKEN),
                     0);
    assert_string_equal(r.name, "ann");
    assert_string_equal(r.label, "für später");
    assert_true(r.scopes_set && r.scopes.count == 2 && r.policies_set && r.policies.count == 1);
    assert_string_equal(r.scopes.item[1], "read");
    assert_true(r.expires_at == 1790000000000 && r.ttl_ms == ACCOUNT_REQUEST_NO_BOUND);
    assert_true(r.cpu_ms == 1 && r.runs == 0 && r.until == ACCOUNT_REQUEST_NO_BOUND);
    account_request_done(&r);
    assert_int_equal(decode("{}", ACCOUNT_REQUEST_CHILD), 0);
    assert_false(r.scopes_set || r.policies_set);
    assert_true(r.runs == ACCOUNT_REQUEST_NO_BOUND);
    account_request_done(&r);
    assert_int_equal(
        decode("{\"policies\":null,\"ttl_ms\":5,\"from_run\":\"run_x\"}", ACCOUNT_REQUEST_CHILD),
        0);
    assert_true(!r.policies_set && r.ttl_ms == 5);
    account_request_done(&r);
}

static void test_wrong(void **state) {
    (void)state;
    static const struct {
        enum account_request_kind kind;
        const char *json, *field;
    } rows[] = {
        {ACCOUNT_REQUEST_USER, "{}", "/name"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a/b\"}", "/name"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"nmae\":1}", "/nmae"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"weight\":0}", "/weight"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"weight\":10001}", "/weight"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"disabled\":true}", "/disabled"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"quota\":{\"rums\":1}}", "/quota/rums"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"quota\":{\"runs\":-1}}", "/quota/runs"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"quota\":{\"runs\":1.5}}", "/quota/runs"},
        {ACCOUNT_REQUEST_USER, "{\"name\":\"a\",\"quota\":null}", "/quota"},
        {ACCOUNT_REQUEST_USER_CHANGE, "{\"name\":\"b\"}", "/name"},
        {ACCOUNT_REQUEST_USER_CHANGE, "{\"disabled\":1}", "/disabled"},
        {ACCOUNT_REQUEST_TOKEN, "{}", "/user"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"from_run\":\"run_x\"}", "/from_run"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"scopes\":[]}", "/scopes"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"scopes\":\"run\"}", "/scopes"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"scopes\":[\"run\",1]}", "/scopes/1"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"policies\":[\"../x\"]}", "/policies/0"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"label\":\"a\\nb\"}", "/label"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"expires_at\":0}", "/expires_at"},
        {ACCOUNT_REQUEST_TOKEN, "{\"user\":\"a\",\"ttl_ms\":1,\"expires_at\":1}", "/ttl_ms"},
        {ACCOUNT_REQUEST_CHILD, "{\"user\":\"a\"}", "/user"},
        {ACCOUNT_REQUEST_CHILD, "{\"budget\":{\"cpu\":1}}", "/budget/cpu"},
        {ACCOUNT_REQUEST_CHILD, "{\"budget\":{\"runs\":\"1\"}}", "/budget/runs"},
        {ACCOUNT_REQUEST_CHILD, "{\"budget\":[]}", "/budget"},
        {ACCOUNT_REQUEST_CHILD, "[]", ""},
        {ACCOUNT_REQUEST_CHILD, "", ""},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        if (decode(rows[i].json, rows[i].kind) == 0)
            fail_msg("%s was taken", rows[i].json);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.field, rows[i].field);
    }
    char many[1024];
    char *at = stpcpy(many, "{\"scopes\":[\"a\"");
    for (unsigned i = 0; i < ACCOUNT_REQUEST_LIST_MAX; i++)
        at = stpcpy(at, ",\"a\"");
    stpcpy(at, "]}");
    assert_int_equal(decode(many, ACCOUNT_REQUEST_CHILD), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests_name("account_request", tests, NULL, NULL);
}
