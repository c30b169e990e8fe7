#include "say.h"

#include <string.h>

#include "unit.h"

static void test_clean(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"plain \"text\" 100%", "plain \"text\" 100%"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x91", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x91"},
        {"a\x1b[31mb", "a?[31mb"},
        {"a\nb\r\tc\x7f", "a?b??c?"},
        {"\xc2\x9b"
         "31m",
         "?31m"},
        {"a\xff\xfe", "a??"},
        {"cut \xe2\x82", "cut ??"},
        {"\xed\xa0\x80", "???"},
        {"over\xc0\xaf", "over??"},
        {"\xe2\x80\xae"
         "evil\xe2\x80\x8b\xef\xbb\xbf",
         "?evil??"},
        {"\xf3\xa0\x80\xa1", "?"},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        char out[64];

        assert_string_equal(say_clean(out, sizeof(out), cases[i].in), cases[i].out);
    }
}

static void test_cut(void **state) {
    (void)state;
    char out[5];

    assert_string_equal(say_clean(out, sizeof(out), "abcdef"), "abcd");
    assert_string_equal(say_clean(out, sizeof(out), "abc\xc3\xa9"), "abc");
    assert_string_equal(say_clean(out, sizeof(out), "ab\xc3\xa9z"), "ab\xc3\xa9");
    assert_string_equal(say_clean(out, 1, "a"), "");
}

static void test_columns(void **state) {
    (void)state;
    assert_int_equal(say_columns(""), 0);
    assert_int_equal(say_columns("abc"), 3);
    assert_int_equal(say_columns("\xc3\xa9\xe2\x82\xac"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clean), cmocka_unit_test(test_cut),
                                       cmocka_unit_test(test_columns)};
    return cmocka_run_group_tests_name("say", tests, NULL, NULL);
}
