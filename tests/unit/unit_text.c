/* UTF-8, base64 and JSON strings. */
#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

struct utf8_case {
    const char *bytes;
    size_t len, prefix;
    bool incomplete;
};

static void test_utf8(void **state) {
    (void)state;
    static const struct utf8_case table[] = {
        {"", 0, 0, false},
        {"abc", 3, 3, false},
        {"a\0b", 3, 3, false},
        {"\x7f", 1, 1, false},
        {"\xc2\x80", 2, 2, false},
        {"\xdf\xbf", 2, 2, false},
        {"\xe0\xa0\x80", 3, 3, false},
        {"\xed\x9f\xbf", 3, 3, false},
        {"\xee\x80\x80", 3, 3, false},
        {"\xef\xbf\xbf", 3, 3, false},
        {"\xf0\x90\x80\x80", 4, 4, false},
        {"\xf4\x8f\xbf\xbf", 4, 4, false},
        /* never UTF-8 */
        {"\x80", 1, 0, false},
        {"a\xbf", 2, 1, false},
        {"\xc0\x80", 2, 0, false},
        {"\xc1\xbf", 2, 0, false},
        {"\xc2\x41", 2, 0, false},
        {"\xe0\x9f\xbf", 3, 0, false},
        {"\xe0\x80", 2, 0, false},
        {"\xed\xa0\x80", 3, 0, false},
        {"\xed\xbf\xbf", 3, 0, false},
        {"\xe1\x80\x41", 3, 0, false},
        {"\xf0\x8f\xbf\xbf", 4, 0, false},
        {"\xf4\x90\x80\x80", 4, 0, false},
        {"\xf5\x80\x80\x80", 4, 0, false},
        {"\xf1\x80\x80\x41", 4, 0, false},
        {"\xf8\x88\x80\x80\x80", 5, 0, false},
        {"\xfe", 1, 0, false},
        {"\xff", 1, 0, false},
        {"12345678\xff", 9, 8, false},
        /* could become one */
        {"\xc2", 1, 0, true},
        {"ab\xe2", 3, 2, true},
        {"ab\xe2\x82", 4, 2, true},
        {"\xf0", 1, 0, true},
        {"\xf0\x9f", 2, 0, true},
        {"\xf0\x9f\x98", 3, 0, true},
        {"\xed\x9f", 2, 0, true},
        /* a beginning that is followed by something else is not incomplete */
        {"\xe2\x82"
         "a",
         3, 0, false},
        {"\xf0\x9f\x98"
         "aa",
         5, 0, false},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        const struct utf8_case *t = &table[i];
        char *copy = malloc(t->len ? t->len : 1);
        bool incomplete = !t->incomplete;
        assert_non_null(copy);
        memcpy(copy, t->bytes, t->len);
        size_t prefix = text_utf8_prefix(copy, t->len, &incomplete);
        if (prefix != t->prefix || incomplete != t->incomplete)
            fail_msg("case %zu: %zu %d", i, prefix, incomplete);
        assert_int_equal(text_is_utf8(copy, t->len), t->prefix == t->len);
        free(copy);
    }
}

/* Every code point, and every pair of bytes against what the encoding's definition says. */
static void test_utf8_all(void **state) {
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        unsigned char b[4];
        size_t n;
        if (c < 0x80) {
            b[0] = (unsigned char)c;
            n = 1;
        } else if (c < 0x800) {
            b[0] = (unsigned char)(0xC0 | c >> 6);
            b[1] = (unsigned char)(0x80 | (c & 63));
            n = 2;
        } else if (c < 0x10000) {
            b[0] = (unsigned char)(0xE0 | c >> 12);
            b[1] = (unsigned char)(0x80 | (c >> 6 & 63));
            b[2] = (unsigned char)(0x80 | (c & 63));
            n = 3;
        } else {
            b[0] = (unsigned char)(0xF0 | c >> 18);
            b[1] = (unsigned char)(0x80 | (c >> 12 & 63));
            b[2] = (unsigned char)(0x80 | (c >> 6 & 63));
            b[3] = (unsigned char)(0x80 | (c & 63));
            n = 4;
        }
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        if (text_is_utf8(b, n) == surrogate)
            fail_msg("U+%04X", c);
        for (size_t cut = 1; cut < n && !surrogate; cut++) {
            bool incomplete;
            assert_int_equal(text_utf8_prefix(b, cut, &incomplete), 0);
            assert_true(incomplete);
        }
    }
    for (unsigned pair = 0x8000; pair <= 0xFFFF; pair++) {
        unsigned char b[2] = {(unsigned char)(pair >> 8), (unsigned char)pair};
        bool right = b[0] >= 0xC2 && b[0] <= 0xDF && b[1] >= 0x80 && b[1] <= 0xBF;
        if (text_is_utf8(b, 2) != right)
            fail_msg("%04x", pair);
    }
}

static void test_orphans(void **state) {
    (void)state;
    assert_int_equal(text_utf8_orphans("", 0), 0);
    assert_int_equal(text_utf8_orphans("abc", 3), 0);
    assert_int_equal(text_utf8_orphans("\x82\xac"
                                       "x",
                                       3),
                     2);
    assert_int_equal(text_utf8_orphans("\x80\x80\x80\x80", 4), 3);
    assert_int_equal(text_utf8_orphans("\x80", 1), 1);
    assert_int_equal(text_utf8_orphans("\xe2\x82", 2), 0);
}

static void test_base64(void **state) {
    (void)state;
    static const struct {
        const char *plain, *text;
    } table[] = {{"", ""},
                 {"f", "Zg=="},
                 {"fo", "Zm8="},
                 {"foo", "Zm9v"},
                 {"foob", "Zm9vYg=="},
                 {"fooba", "Zm9vYmE="},
                 {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        struct buf out;
        char dst[16];
        size_t size = 99, len = strlen(table[i].text);
        buf_init(&out, 64);
        assert_int_equal(buf_puts(&out, ">", NULL), 0);
        assert_int_equal(text_base64_encode(table[i].plain, strlen(table[i].plain), &out, NULL), 0);
        assert_string_equal(out.data + 1, table[i].text);
        assert_int_equal(out.len, 1 + len);
        assert_int_equal(text_base64_len(strlen(table[i].plain)), len);
        assert_int_equal(text_base64_decode(table[i].text, len, dst, &size, NULL), 0);
        assert_int_equal(size, strlen(table[i].plain));
        assert_memory_equal(dst, table[i].plain, size);
        buf_done(&out);
    }
    struct buf small;
    buf_init(&small, 7);
    assert_int_equal(text_base64_encode("foob", 4, &small, NULL), -1);
    assert_int_equal(small.len, 0);
    buf_done(&small);
}

static void test_base64_wrong(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } table[] = {{"Z", 1},     {"Zg", 2},     {"Zg=", 3},    {"Zg===", 5},
                 {"Zh==", 4},  {"Zm9", 3},    {"Zm9=", 4},   {"Zm 9v", 5},
                 {"Zm9v!", 5}, {"Zm9v\0", 5}, {"\0Zm9v", 5}, {"Zg==Zg==", 8},
                 {"Zm-_", 4},  {"====", 4},   {"=", 1},      {"Zg=\t=", 5}};
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        struct err err = {0};
        char dst[16];
        size_t size = 99;
        if (text_base64_decode(table[i].text, table[i].len, dst, &size, &err) == 0)
            fail_msg("case %zu", i);
        assert_int_equal(size, 99);
        assert_int_equal(err.kind, ERR_INVALID);
    }
}

static void test_json_pair(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *json;
    } table[] = {
        {"", 0, "{\"out\":\"\",\"out_encoding\":\"utf-8\"}"},
        {"a\n\0", 3, "{\"out\":\"a\\n\\u0000\",\"out_encoding\":\"utf-8\"}"},
        {"\xff", 1, "{\"out\":\"/w==\",\"out_encoding\":\"base64\"}"},
        {"a\xe2\x82", 3, "{\"out\":\"YeKC\",\"out_encoding\":\"base64\"}"},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        json_t *object = json_object();
        struct buf back;
        assert_int_equal(text_to_json(object, "out", table[i].bytes, table[i].len), 0);
        char *json = json_dumps(object, JSON_COMPACT);
        assert_string_equal(json, table[i].json);
        buf_init(&back, 64);
        assert_int_equal(text_from_json(object, "out", &back, NULL), 0);
        assert_int_equal(back.len, table[i].len);
        if (back.len)
            assert_memory_equal(back.data, table[i].bytes, back.len);
        buf_done(&back);
        free(json);
        json_decref(object);
    }
}

static void test_json_pair_wrong(void **state) {
    (void)state;
    static const char *const table[] = {
        "{}",
        "{\"out\":1}",
        "{\"out\":null,\"out_encoding\":\"utf-8\"}",
        "{\"out\":\"\",\"out_encoding\":\"latin1\"}",
        "{\"out\":\"\",\"out_encoding\":null}",
        "{\"out\":\"a\",\"out_encoding\":\"base64\"}",
        "{\"out\":\"12345678901234567890\"}",
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        json_t *object = json_loads(table[i], 0, NULL);
        struct buf out;
        buf_init(&out, 16);
        assert_int_equal(buf_puts(&out, "kept", NULL), 0);
        assert_int_equal(text_from_json(object, "out", &out, NULL), -1);
        assert_string_equal(out.data, "kept");
        assert_int_equal(out.len, 4);
        buf_done(&out);
        json_decref(object);
    }
}

static void test_append_json(void **state) {
    (void)state;
    char all[512];
    size_t n = 0;
    for (int c = 0; c < 0x80; c++)
        all[n++] = (char)c;
    n += (size_t)snprintf(all + n, sizeof(all) - n, "%s",
                          "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\"\\end");
    /* Every alignment, against what the JSON library reads back. */
    for (size_t from = 0; from < n; from++) {
        struct buf out;
        if (((unsigned char)all[from] & 0xC0) == 0x80)
            continue;
        buf_init(&out, 4096);
        assert_int_equal(text_append_json(&out, all + from, n - from, NULL), 0);
        json_t *value = json_loadb(out.data, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        assert_int_equal(json_string_length(value), n - from);
        assert_memory_equal(json_string_value(value), all + from, n - from);
        json_decref(value);
        buf_done(&out);
    }
    struct buf small;
    buf_init(&small, 8);
    assert_int_equal(buf_puts(&small, "ab", NULL), 0);
    assert_int_equal(text_append_json(&small, "a\nbc", 4, NULL), -1);
    assert_string_equal(small.data, "ab");
    assert_int_equal(small.len, 2);
    assert_int_equal(text_append_json(&small, "a\nb", 3, NULL), 0);
    assert_string_equal(small.data, "ab\"a\\nb\"");
    buf_done(&small);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_utf8_all),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_base64_wrong),
        cmocka_unit_test(test_json_pair),
        cmocka_unit_test(test_json_pair_wrong),
        cmocka_unit_test(test_append_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
