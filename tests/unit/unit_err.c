#include "err.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

static void test_set(void **state) {
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_LIMIT, 7, "%d bytes of %s", 3, "x"), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_int_equal(err.code, 7);
    assert_string_equal(err.text, "3 bytes of x");
    err_clear(&err);
    assert_int_equal(err.kind, ERR_NONE);
    assert_string_equal(err.text, "");
}

static void test_null(void **state) {
    (void)state;
    assert_int_equal(err_set(NULL, ERR_STATE, 0, "x"), -1);
    assert_int_equal(err_sys(NULL, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
    assert_int_equal(err_plain(NULL, ERR_STATE, 0, "x"), -1);
    err_clear(NULL);
}

static void test_sys_names_the_reason_and_keeps_errno(void **state) {
    (void)state;
    struct err err = {0};
    errno = ENOENT;
    assert_int_equal(err_sys(&err, "cannot open %s", "/x"), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(err.kind, ERR_SYSTEM);
    assert_int_equal(err.code, ENOENT);
    assert_string_equal(err.text, "cannot open /x: No such file or directory");
    errno = 9999;
    err_sys(&err, "odd");
    assert_string_equal(err.text, "odd: error 9999");
}

static void test_wrap_keeps_kind_and_code(void **state) {
    (void)state;
    struct err err = {0};
    err_set(&err, ERR_INVALID, 22, "inner");
    assert_int_equal(err_wrap(&err, "outer %d", 1), -1);
    assert_string_equal(err.text, "outer 1: inner");
    assert_int_equal(err.kind, ERR_INVALID);
    assert_int_equal(err.code, 22);
}

static void test_text_may_be_its_own_argument(void **state) {
    (void)state;
    struct err err = {0};
    err_set(&err, ERR_INVALID, 0, "tail");
    err_set(&err, ERR_LIMIT, 0, "head %s", err.text);
    assert_string_equal(err.text, "head tail");
}

static void test_long_texts_are_cut(void **state) {
    (void)state;
    char text[1000];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct err err = {0};
    err_set(&err, ERR_STATE, 0, "%s", text);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    err_plain(&err, ERR_STATE, 0, text);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    err_wrap(&err, "%s", text);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

static void test_plain_does_not_format(void **state) {
    (void)state;
    struct err err = {0};
    assert_int_equal(err_plain(&err, ERR_PROTOCOL, 3, "100%s %n"), -1);
    assert_string_equal(err.text, "100%s %n");
    assert_int_equal(err.kind, ERR_PROTOCOL);
    assert_int_equal(err.code, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_sys_names_the_reason_and_keeps_errno),
        cmocka_unit_test(test_wrap_keeps_kind_and_code),
        cmocka_unit_test(test_text_may_be_its_own_argument),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_plain_does_not_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
