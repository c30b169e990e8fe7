#include "buf.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

static void test_nothing_is_allocated_before_use(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    assert_null(b.data);
    buf_clear(&b);
    buf_consume(&b, 3);
    assert_null(buf_take(&b));
    buf_done(&b);
    buf_done(NULL);
    struct buf zero = {0};
    buf_done(&zero);
}

static void test_append_up_to_the_maximum(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 10);
    unit_works(buf_append(&b, "01234", 5, &err), err);
    unit_works(buf_append(&b, "56789", 5, &err), err);
    assert_string_equal(b.data, "0123456789");
    unit_fails(buf_append(&b, "x", 1, &err), err, ERR_LIMIT);
    unit_fails(buf_append(&b, "x", SIZE_MAX, &err), err, ERR_LIMIT);
    assert_int_equal(b.len, 10);
    assert_string_equal(b.data, "0123456789");
    unit_works(buf_append(&b, "", 0, &err), err);
    buf_done(&b);
}

static void test_append_nothing_to_nothing(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 0);
    unit_works(buf_append(&b, NULL, 0, &err), err);
    assert_string_equal(b.data, "");
    unit_fails(buf_append(&b, "x", 1, &err), err, ERR_LIMIT);
    buf_done(&b);
}

static void test_growth_keeps_the_contents(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 100000);
    for (int i = 0; i < 100000; i++) {
        char c = (char)('a' + i % 26);
        assert_int_equal(buf_append(&b, &c, 1, &err), 0);
        assert_int_equal(b.data[b.len], 0);
        assert_true(b.cap <= 100001);
    }
    for (int i = 0; i < 100000; i++)
        assert_int_equal(b.data[i], 'a' + i % 26);
    buf_done(&b);
}

static void test_binary(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 100);
    unit_works(buf_append(&b, "a\0b", 3, &err), err);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 4);
    buf_done(&b);
}

static void test_printf(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 8);
    unit_works(buf_printf(&b, &err, "%s=%d", "k", 12), err);
    assert_string_equal(b.data, "k=12");
    unit_fails(buf_printf(&b, &err, "%s", "12345"), err, ERR_LIMIT);
    assert_string_equal(b.data, "k=12");
    unit_works(buf_printf(&b, &err, "%s", "1234"), err);
    assert_string_equal(b.data, "k=121234");
    buf_done(&b);
}

static void test_reserve_is_zero(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 1000);
    unit_works(buf_puts(&b, "old bytes that were longer", &err), err);
    buf_clear(&b);
    unit_works(buf_puts(&b, "ab", &err), err);
    char *to = buf_reserve(&b, 500, &err);
    assert_non_null(to);
    for (int i = 0; i <= 500; i++)
        assert_int_equal(to[i], 0);
    memcpy(to, "cd", 2);
    b.len += 2;
    assert_string_equal(b.data, "abcd");
    assert_null(buf_reserve(&b, 997, &err));
    assert_int_equal(err.kind, ERR_LIMIT);
    buf_done(&b);
}

static void test_consume(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 100);
    unit_works(buf_puts(&b, "hello", &err), err);
    buf_consume(&b, 2);
    assert_string_equal(b.data, "llo");
    buf_consume(&b, 0);
    assert_int_equal(b.len, 3);
    buf_consume(&b, 99);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    buf_done(&b);
}

static void test_take(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 100);
    unit_works(buf_puts(&b, "mine", &err), err);
    char *text = buf_take(&b);
    assert_string_equal(text, "mine");
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    unit_works(buf_puts(&b, "again", &err), err);
    assert_string_equal(b.data, "again");
    free(text);
    buf_done(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated_before_use),
        cmocka_unit_test(test_append_up_to_the_maximum),
        cmocka_unit_test(test_append_nothing_to_nothing),
        cmocka_unit_test(test_growth_keeps_the_contents),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_printf),
        cmocka_unit_test(test_reserve_is_zero),
        cmocka_unit_test(test_consume),
        cmocka_unit_test(test_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
