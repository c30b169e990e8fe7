/* The format of receipts: canonical JSON, signatures, digests of files. */
#include "receipt.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static void canonical_is(const char *text, const char *wanted) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    struct buf out;
    struct err err;
    assert_non_null(value);
    buf_init(&out, 4096);
    unit_works(receipt_canonical(value, &out, &err), err);
    assert_string_equal(out.data, wanted);
    buf_done(&out);
    json_decref(value);
}

static void test_canonical(void **state) {
    (void)state;
    canonical_is("{ \"b\" : 1, \"a\" : [ 2, {\"z\":\"\", \"y\":-3} ] }",
                 "{\"a\":[2,{\"y\":-3,\"z\":\"\"}],\"b\":1}");
    canonical_is("\"\\u0001\\n\\u00e9/\\\"\\\\\\u007f\"", "\"\\u0001\\n\xc3\xa9/\\\"\\\\\x7f\"");
    canonical_is("{}", "{}");
    canonical_is("[]", "[]");
}

static void test_canonical_refuses(void **state) {
    (void)state;
    static const char *const texts[] = {"[true]", "{\"a\":null}", "[1.5]", "false"};
    for (size_t i = 0; i < UNIT_COUNT(texts); i++) {
        json_t *value = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        struct buf out;
        struct err err;
        buf_init(&out, 4096);
        unit_fails(receipt_canonical(value, &out, &err), err, ERR_INVALID);
        buf_done(&out);
        json_decref(value);
    }
    json_t *deep = json_array();
    for (int i = 0; i < 40; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    struct buf out;
    struct err err;
    buf_init(&out, 4096);
    unit_fails(receipt_canonical(deep, &out, &err), err, ERR_INVALID);
    buf_done(&out);
    json_decref(deep);
}

struct signer {
    struct receipt_public public;
    unsigned char secret[64];
};

/* A signed receipt with one more field. */
static json_t *receipt_of(const struct signer *s, const char *id, json_t *more) {
    char key[RECEIPT_KEY_ID_SIZE], message[RECEIPT_MESSAGE_SIZE], hex[129];
    unsigned char signature[64];
    struct buf text;
    receipt_key_id(&s->public, key);
    json_t *body =
        json_pack("{s:i, s:s, s:s, s:o}", "receipt", 1, "key", key, "id", id, "more", more);
    buf_init(&text, 65536);
    assert_int_equal(receipt_canonical(body, &text, NULL), 0);
    receipt_message(text.data, text.len, message);
    crypto_sign_detached(signature, NULL, (unsigned char *)message, strlen(message), s->secret);
    receipt_hex(signature, sizeof(signature), hex);
    buf_done(&text);
    return json_pack("{s:o, s:s}", "body", body, "signature", hex);
}

static void test_signature(void **state) {
    (void)state;
    struct signer s, other;
    struct err err;
    crypto_sign_keypair(s.public.bytes, s.secret);
    crypto_sign_keypair(other.public.bytes, other.secret);
    json_t *r = receipt_of(&s, "run_1", json_integer(5));
    unit_works(receipt_check(r, &s.public, &err), err);
    unit_fails(receipt_check(r, &other.public, &err), err, ERR_INVALID);
    assert_non_null(strstr(err.text, "another key"));
    json_object_set_new(json_object_get(r, "body"), "more", json_integer(6));
    unit_fails(receipt_check(r, &s.public, &err), err, ERR_INVALID);
    assert_non_null(strstr(err.text, "does not fit"));
    json_object_set_new(json_object_get(r, "body"), "more", json_integer(5));
    unit_works(receipt_check(r, &s.public, &err), err);
    json_object_set_new(r, "signature", json_string("00"));
    unit_fails(receipt_check(r, &s.public, &err), err, ERR_INVALID);
    json_decref(r);
}

static void test_other_order_and_blanks(void **state) {
    (void)state;
    struct signer s;
    struct err err;
    crypto_sign_keypair(s.public.bytes, s.secret);
    json_t *r = receipt_of(&s, "run_\xc3\xa9", json_pack("[s, i]", "x\ny", 1));
    char *text = json_dumps(r, JSON_INDENT(4) | JSON_ENSURE_ASCII);
    json_t *again = json_loads(text, 0, NULL);
    unit_works(receipt_check(again, &s.public, &err), err);
    free(text);
    json_decref(again);
    json_decref(r);
}

static void test_no_receipt(void **state) {
    (void)state;
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "\"x\"",
                                        "{\"body\":{}}",
                                        "{\"body\":[],\"signature\":\"\"}",
                                        "{\"body\":{},\"signature\":7}"};
    struct receipt_public key = {{0}};
    struct err err;
    for (size_t i = 0; i < UNIT_COUNT(texts); i++) {
        json_t *value = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        unit_fails(receipt_check(value, &key, &err), err, ERR_INVALID);
        json_decref(value);
    }
    unit_fails(receipt_check(NULL, &key, &err), err, ERR_INVALID);
}

static void test_keys(void **state) {
    (void)state;
    struct receipt_public key;
    struct err err;
    char text[80], id[RECEIPT_KEY_ID_SIZE];
    memset(text, 'A', 64);
    memcpy(text + 64, "\r\n", 3);
    unit_works(receipt_key_parse(text, 66, &key, &err), err);
    assert_int_equal(key.bytes[31], 0xaa);
    unit_fails(receipt_key_parse(text, 63, &key, &err), err, ERR_INVALID);
    unit_fails(receipt_key_parse("", 0, &key, &err), err, ERR_INVALID);
    text[3] = 'g';
    unit_fails(receipt_key_parse(text, 66, &key, &err), err, ERR_INVALID);
    memset(key.bytes, 0, sizeof(key.bytes));
    receipt_key_id(&key, id);
    assert_string_equal(id, "66687aadf862bd77"); /* SHA-256 of 32 zero bytes */
}

static void test_files(void **state) {
    (void)state;
    uint8_t root[32], wanted[32];
    struct receipt_file files[] = {
        {.path = "b", .path_len = 1, .mode = 0644, .size = 3},
        {.path = "a/b", .path_len = 3, .mode = 0755, .size = 0},
        {.path = "a", .path_len = 1, .error = "not_found"},
    };
    memset(files[0].sha256, 0x11, 32);
    memset(files[1].sha256, 0x22, 32);
    receipt_files_sort(files, 3);
    assert_string_equal(files[0].path, "a");
    assert_string_equal(files[1].path, "a/b");
    receipt_files_root(files, 3, root);
    char text[512], ones[65], twos[65];
    memset(ones, '1', 64);
    memset(twos, '2', 64);
    ones[64] = twos[64] = '\0';
    int n = snprintf(text, sizeof(text), "error not_found a%c0755 0 %s a/b%c0644 3 %s b%c", 0, twos,
                     0, ones, 0);
    crypto_hash_sha256(wanted, (unsigned char *)text, (unsigned)n);
    assert_memory_equal(root, wanted, 32);
    receipt_files_root(NULL, 0, root);
    crypto_hash_sha256(wanted, (const unsigned char *)"", 0);
    assert_memory_equal(root, wanted, 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical),  cmocka_unit_test(test_canonical_refuses),
        cmocka_unit_test(test_signature),  cmocka_unit_test(test_other_order_and_blanks),
        cmocka_unit_test(test_no_receipt), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_files),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
