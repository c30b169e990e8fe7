#include "token.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static void test_new(void **state) {
    (void)state;
    struct err err = {0};
    char a[TOKEN_TEXT_LEN + 1], b[TOKEN_TEXT_LEN + 1];
    int seen[256] = {0}, kinds = 0;

    for (int i = 0; i < 500; i++) {
        unit_works(token_new(a, &err), err);
        unit_works(token_new(b, &err), err);
        assert_int_equal(strlen(a), TOKEN_TEXT_LEN);
        assert_true(token_is_form(a, strlen(a)));
        assert_string_not_equal(a, b);
        for (size_t k = strlen(TOKEN_PREFIX); k < TOKEN_TEXT_LEN; k++)
            seen[(unsigned char)a[k]] = 1;
    }
    for (int i = 0; i < 256; i++)
        kinds += seen[i];
    assert_int_equal(kinds, 32);
    token_wipe(a, sizeof(a));
    for (size_t i = 0; i < sizeof(a); i++)
        assert_int_equal(a[i], 0);
}

static void test_form(void **state) {
    (void)state;
    char text[TOKEN_TEXT_LEN + 1];
    struct err err = {0};

    unit_works(token_new(text, &err), err);
    assert_false(token_is_form(text, TOKEN_TEXT_LEN - 1));
    assert_false(token_is_form("", 0));
    text[0] = 'q';
    assert_false(token_is_form(text, TOKEN_TEXT_LEN));
    text[0] = 'p';
    static const char wrong[] = {'A', '0', '1', '9', '-', ' ', '\n', '\0', '\x7f'};
    for (size_t i = 0; i < sizeof(wrong); i++) {
        char keep = text[20];
        text[20] = wrong[i];
        assert_false(token_is_form(text, TOKEN_TEXT_LEN));
        text[20] = keep;
    }
    assert_true(token_is_form(text, TOKEN_TEXT_LEN));
}

static void test_hash(void **state) {
    (void)state;
    struct token_hash abc, empty, again;
    struct token_record r = {.name = "n"};
    struct err err = {0};
    char line[TOKEN_LINE_SIZE];

    token_hash("abc", 3, &abc);
    token_hash("", 0, &empty);
    token_hash("abc", 3, &again);
    assert_true(token_equal(&abc, &again));
    assert_false(token_equal(&abc, &empty));
    again.bytes[TOKEN_HASH_SIZE - 1] ^= 1;
    assert_false(token_equal(&abc, &again));
    r.hash = abc;
    unit_works(token_record_format(&r, line, &err), err);
    assert_string_equal(
        line, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad n user\n");
}

static void test_list(void **state) {
    (void)state;
    struct err err = {0};
    struct token_list list = {0};
    struct token_record a = {.name = "ann", .admin = true}, b = {.name = "bob"};
    char one[TOKEN_LINE_SIZE], two[TOKEN_LINE_SIZE], text[512];
    const struct token_record *found;

    token_hash("secret-a", 8, &a.hash);
    token_hash("secret-b", 8, &b.hash);
    unit_works(token_record_format(&a, one, &err), err);
    unit_works(token_record_format(&b, two, &err), err);
    snprintf(text, sizeof(text), "# comment\n%s\n%s", one, two);
    text[strlen(text) - 1] = '\0'; /* no newline at the end */
    unit_works(token_list_parse(text, strlen(text), &list, &err), err);
    assert_int_equal(list.count, 2);
    found = token_list_find(&list, "secret-a", 8);
    assert_non_null(found);
    assert_string_equal(found->name, "ann");
    assert_true(found->admin);
    found = token_list_find(&list, "secret-b", 8);
    assert_non_null(found);
    assert_false(found->admin);
    assert_null(token_list_find(&list, "secret-c", 8));
    assert_null(token_list_find(&list, "secret-a", 7));
    assert_null(token_list_find(&list, "", 0));
    token_list_done(&list);
    assert_null(list.items);
    token_list_done(&list);
    token_list_done(NULL);

    unit_works(token_list_parse("", 0, &list, &err), err);
    assert_int_equal(list.count, 0);
    assert_null(token_list_find(&list, "x", 1));
    token_list_done(&list);
}

static void test_wrong_lists(void **state) {
    (void)state;
#define HEX "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    static const char *const bad[] = {
        "x\n",
        HEX "\n",
        HEX " a\n",
        HEX " a root\n",
        HEX " a admin more\n",
        HEX " -a admin\n",
        HEX " a/b admin\n",
        HEX "0 a admin\n",
        "zz7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad a admin\n",
        HEX " aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa admin\n",
        HEX "\ta\tadmin\n",
        HEX " a admin\r\n",
    };

    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct err err = {0};
        struct token_list list = {.count = 77};
        char text[512];

        snprintf(text, sizeof(text), "# first\n%s", bad[i]);
        unit_fails(token_list_parse(text, strlen(text), &list, &err), err, ERR_INVALID);
        assert_non_null(strstr(err.text, "line 2"));
        assert_null(strstr(err.text, "ba7816"));
        assert_int_equal(list.count, 77);
    }
    struct err err = {0};
    struct token_list list = {0};
    static const char nul[] = HEX " a\0b admin\n";
    unit_fails(token_list_parse(nul, sizeof(nul) - 1, &list, &err), err, ERR_INVALID);
    struct token_record r = {.name = "a b"};
    char line[TOKEN_LINE_SIZE];
    unit_fails(token_record_format(&r, line, &err), err, ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),         cmocka_unit_test(test_form),
        cmocka_unit_test(test_hash),        cmocka_unit_test(test_list),
        cmocka_unit_test(test_wrong_lists),
    };
    return cmocka_run_group_tests_name("token", tests, NULL, NULL);
}
