#include "str.h"

#include <string.h>

#include "unit.h"

static void test_copy(void **state) {
    (void)state;
    char dst[5] = "keep";
    assert_true(str_copy(dst, sizeof(dst), "1234"));
    assert_string_equal(dst, "1234");
    assert_false(str_copy(dst, sizeof(dst), "12345"));
    assert_string_equal(dst, "1234");
    assert_true(str_copy(dst, 1, ""));
    assert_string_equal(dst, "");
    assert_false(str_copy(dst, 0, ""));
}

static void test_u64(void **state) {
    (void)state;
    struct err err = {0};
    uint64_t v = 77;
    unit_works(str_u64("0", 0, 10, &v, &err), err);
    assert_int_equal(v, 0);
    unit_works(str_u64("18446744073709551615", 0, UINT64_MAX, &v, &err), err);
    assert_true(v == UINT64_MAX);
    unit_works(str_u64("007", 7, 7, &v, &err), err);
    assert_int_equal(v, 7);

    static const char *const bad[] = {
        "",
        " 1",
        "1 ",
        "+1",
        "-1",
        "0x10",
        "1.0",
        "1e3",
        "ten",
        "1k",
        "\n1",
        "1\n",
        "\xd9\xa1",
        "18446744073709551616",
        "99999999999999999999999",
    };
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(str_u64(bad[i], 0, UINT64_MAX, &v, &err), err, ERR_INVALID);
    unit_fails(str_u64("4", 5, 9, &v, &err), err, ERR_INVALID);
    unit_fails(str_u64("10", 5, 9, &v, &err), err, ERR_INVALID);
    assert_int_equal(v, 7);
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},
        {"64", 64},
        {"64k", 65536},
        {"64K", 65536},
        {"1M", 1u << 20},
        {"1G", 1ULL << 30},
        {"16777215T", 16777215ULL << 40},
    };
    struct err err = {0};
    uint64_t v = 5;
    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        unit_works(str_bytes(good[i].text, &v, &err), err);
        assert_true(v == good[i].value);
    }
    static const char *const bad[] = {"",    "k",   "-1k", "1kk",       "1 k", "1.5G",
                                      "1KB", "1Ki", "1 ",  "16777216T", "1x",  "k1"};
    v = 5;
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(str_bytes(bad[i], &v, &err), err, ERR_INVALID);
    assert_int_equal(v, 5);
}

static void test_duration(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"1500ms", 1500}, {"30s", 30000},  {"30", 30000},
                {"5m", 300000},   {"2h", 7200000}, {"0ms", 0}};
    struct err err = {0};
    uint64_t v = 5;
    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        unit_works(str_duration_ms(good[i].text, &v, &err), err);
        assert_int_equal(v, good[i].ms);
    }
    static const char *const bad[] = {"", "s", "-1s", "1S", "1d", "1s5ms", "18446744073709551615"};
    v = 5;
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(str_duration_ms(bad[i], &v, &err), err, ERR_INVALID);
    assert_int_equal(v, 5);
}

static void test_what_is_refused_is_shown(void **state) {
    (void)state;
    struct err err = {0};
    uint64_t v;
    unit_fails(str_u64("1\x1b\"", 0, 9, &v, &err), err, ERR_INVALID);
    assert_string_equal(err.text, "\"1\\x1b\\x22\" is not a whole number between 0 and 9");
    unit_fails(str_u64("", 0, 9, &v, &err), err, ERR_INVALID);
    assert_string_equal(err.text, "\"\" is not a whole number between 0 and 9");
    unit_fails(str_bytes("1x", &v, &err), err, ERR_INVALID);
    assert_string_equal(err.text, "\"1x\" is not a number of bytes such as 65536, 64k, 256M or 1G");
    unit_fails(str_duration_ms("s", &v, &err), err, ERR_INVALID);
    assert_string_equal(err.text, "\"s\" is not a duration such as 1500ms, 30s, 5m or 2h");
    unit_fails(str_bytes("99999999999999999999", &v, &err), err, ERR_INVALID);
    assert_string_equal(err.text,
                        "\"99999999999999999999\" is not a number of bytes such as 65536, "
                        "64k, 256M or 1G");
}

static void test_hash(void **state) {
    (void)state;
    assert_true(str_hash("", 0) == 0x811c9dc5u && str_hash("a", 1) == 0xe40c292cu);
    assert_true(str_hash("foobar", 6) == 0xbf9cf968u);
    assert_true(str_hash("a\xff\0b", 4) != str_hash("a\xff\0c", 4));
}

static void test_names(void **state) {
    (void)state;
    char longest[65];
    memset(longest, 'a', sizeof(longest));
    longest[63] = '\0';
    assert_true(str_is_name(longest));
    longest[63] = 'a';
    longest[64] = '\0';
    assert_false(str_is_name(longest));
    static const char *const good[] = {"a", "_", "9", "default", "debian-12.1_x", "a.."};
    static const char *const bad[] = {"",     ".",   "..",   "-a",    ".hidden", "a/b", "a b",
                                      "a\nb", "a\\", "\xe9", "a\x7f", "a:b",     "a%"};
    for (size_t i = 0; i < UNIT_COUNT(good); i++)
        assert_true(str_is_name(good[i]));
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        assert_false(str_is_name(bad[i]));
}

static void test_escape(void **state) {
    (void)state;
    char out[64];
    str_escape(out, sizeof(out), "plain text~", 11);
    assert_string_equal(out, "plain text~");
    str_escape(out, sizeof(out), "a\"b\\c%d", 7);
    assert_string_equal(out, "a\\x22b\\x5cc\\x25d");
    str_escape(out, sizeof(out), "\0\n\x1b[\x7f\xff", 6);
    assert_string_equal(out, "\\x00\\x0a\\x1b[\\x7f\\xff");
    str_escape(out, sizeof(out), NULL, 0);
    assert_string_equal(out, "");
}

static void test_escape_cuts(void **state) {
    (void)state;
    char out[8];
    str_escape(out, sizeof(out), "1234567", 7);
    assert_string_equal(out, "1234567");
    str_escape(out, sizeof(out), "12345678", 8);
    assert_string_equal(out, "1234...");
    str_escape(out, sizeof(out), "\x01\x02", 2);
    assert_string_equal(out, "\\x01...");
    str_escape(out, 3, "12345", 5);
    assert_string_equal(out, "..");
    str_escape(out, 1, "12345", 5);
    assert_string_equal(out, "");
    memset(out, 'x', sizeof(out));
    str_escape(out, 0, "1", 1);
    assert_int_equal(out[0], 'x');
    /* Every size and every length stay within the buffer (the sanitizer watches). */
    for (size_t size = 1; size < 40; size++) {
        char *exact = test_malloc(size);
        for (size_t len = 0; len < 12; len++) {
            str_escape(exact, size,
                       "ab\x01"
                       "cd\x02"
                       "ef\x03"
                       "gh\x04",
                       len);
            assert_true(strlen(exact) < size);
        }
        test_free(exact);
    }
}

static void test_human(void **state) {
    (void)state;
    char out[32];
    static const struct {
        uint64_t ms;
        const char *text;
    } times[] = {{0, "0 ms"}, {999, "999 ms"}, {1000, "1.0 s"}, {2049, "2.0 s"}, {90000, "90.0 s"}};
    for (size_t i = 0; i < UNIT_COUNT(times); i++) {
        str_human_ms(out, sizeof(out), times[i].ms);
        assert_string_equal(out, times[i].text);
    }
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0 bytes"},          {1023, "1023 bytes"},     {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},       {64u << 20, "64.0 MiB"},  {(1u << 20) - 1, "1023.9 KiB"},
        {1ULL << 40, "1.0 TiB"}, {UINT64_MAX, "15.9 EiB"},
    };
    for (size_t i = 0; i < UNIT_COUNT(sizes); i++) {
        str_human_bytes(out, sizeof(out), sizes[i].bytes);
        assert_string_equal(out, sizes[i].text);
    }
    str_human_bytes(out, 4, 64u << 20);
    assert_string_equal(out, "64.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_u64),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_what_is_refused_is_shown),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_escape_cuts),
        cmocka_unit_test(test_human),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
