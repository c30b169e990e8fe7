#include "json_out.h"

#include <jansson.h>
#include <string.h>
#include <sys/uio.h>

#include "unit.h"

static void test_shapes(void **state) {
    (void)state;
    struct buf b;
    struct json_out j;
    struct err err = {0};
    buf_init(&b, 4096);
    json_out_init(&j, &b);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "a", UINT64_MAX);
    json_out_i64(&j, "b", INT64_MIN);
    json_out_open(&j, "c", '[');
    json_out_bool(&j, NULL, true);
    json_out_null(&j, NULL);
    json_out_open(&j, NULL, '{');
    json_out_close(&j, '}');
    json_out_str(&j, NULL, "q\"\\\n\x01");
    json_out_close(&j, ']');
    json_out_i64(&j, "d", -1);
    json_out_u64(&j, "e", 0);
    json_out_str(&j, "f", "\xff\xc3\"x");
    json_out_hex(&j, "g", (const uint8_t *)"\x00\x9f\xff", 3);
    json_out_hex(&j, "h", NULL, 0);
    json_out_str(&j, "i", " ~");
    json_out_str(&j, "j", "\x7f\xc3\xa9");
    json_out_str(&j, "k", "");
    json_out_close(&j, '}');
    unit_works(json_out_end(&j, &err), err);
    assert_string_equal(b.data, "{\"a\":18446744073709551615,\"b\":-9223372036854775808,"
                                "\"c\":[true,null,{},\"q\\\"\\\\\\n\\u0001\"],\"d\":-1,\"e\":0,"
                                "\"f\":\"???x\",\"g\":\"009fff\",\"h\":\"\","
                                "\"i\":\" ~\",\"j\":\"\x7f\xc3\xa9\",\"k\":\"\"}");
    buf_done(&b);
}

static void test_bytes(void **state) {
    (void)state;
    struct buf b;
    struct json_out j;
    struct err err = {0};
    char one[] = "ab\xc3", two[] = "\xa9\n", three[] = "";
    const struct iovec parts[] = {{one, 3}, {two, 2}, {three, 0}};
    buf_init(&b, 4096);
    json_out_init(&j, &b);
    json_out_open(&j, NULL, '{');
    json_out_bytes(&j, &(struct json_out_bytes){"x", "xe", parts, 3, true});
    json_out_bytes(&j, &(struct json_out_bytes){"y", "ye", parts, 3, false});
    json_out_bytes(&j, &(struct json_out_bytes){"z", "ze", parts, 0, true});
    json_out_bytes(&j, &(struct json_out_bytes){"w", "we", parts + 2, 1, false});
    json_out_close(&j, '}');
    unit_works(json_out_end(&j, &err), err);
    assert_string_equal(b.data, "{\"x\":\"ab\xc3\xa9\\n\",\"xe\":\"utf-8\","
                                "\"y\":\"YWLDqQo=\",\"ye\":\"base64\",\"z\":\"\",\"ze\":\"utf-8\","
                                "\"w\":\"\",\"we\":\"base64\"}");
    buf_done(&b);
}

/* An error sticks, whatever comes after it. */
static void test_full(void **state) {
    (void)state;
    for (size_t max = 0; max < 60; max++) {
        struct buf b;
        struct json_out j;
        struct err err = {0};
        buf_init(&b, max);
        json_out_init(&j, &b);
        json_out_open(&j, NULL, '{');
        json_out_str(&j, "key", "a longer value than fits");
        json_t *tree = json_pack("{s:i}", "n", 1);
        json_out_tree(&j, "tree", tree);
        json_decref(tree);
        json_out_u64(&j, "k", 7);
        json_out_close(&j, '}');
        int rc = json_out_end(&j, &err);
        if (rc == 0)
            assert_string_equal(
                b.data, "{\"key\":\"a longer value than fits\",\"tree\":{\"n\":1},\"k\":7}");
        else
            assert_true(max < 56 && err.text[0] != '\0');
        buf_done(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests_name("json_out", tests, NULL, NULL);
}
