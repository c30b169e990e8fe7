#include "target.h"

#include <string.h>

#include "unit.h"

static void test_good(void **state) {
    (void)state;
    static const struct {
        const char *url, *kept;
        bool loopback;
    } good[] = {
        {NULL, TARGET_DEFAULT_URL, true},
        {"", TARGET_DEFAULT_URL, true},
        {"http://localhost:1/", "http://localhost:1", true},
        {"http://[::1]:7070", "http://[::1]:7070", true},
        {"HTTPS://example.org/pinfold//", "HTTPS://example.org/pinfold", false},
        {"http://10.0.0.1", "http://10.0.0.1", false},
    };

    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        struct err err = {0};
        struct target t;

        unit_works(target_init(&t, good[i].url, "pf_x", &err), err);
        assert_string_equal(t.url, good[i].kept);
        assert_string_equal(t.token, "pf_x");
        assert_int_equal(t.loopback, good[i].loopback);
        target_done(&t);
        assert_string_equal(t.token, "");
    }
    struct err err = {0};
    struct target t;
    unit_works(target_init(&t, NULL, NULL, &err), err);
    assert_string_equal(t.token, "");
}

static void test_bad(void **state) {
    (void)state;
    static const char *const urls[] = {"ftp://x",           "x",
                                       "http://",           "http:///path",
                                       "http://a b",        "http://a\r\nX:",
                                       "http://u@h",        "http://h/?q=1",
                                       "http://u:secret@h", "file:///etc/passwd",
                                       "http://h#f",        "https://",
                                       "http://h\x01/x",    "http://h\xc3\xa9.org"};
    static const char *const tokens[] = {"a b", "a\r\nX-Evil: 1", "a\n", "\x7f", "t\xc3\xa9"};
    struct target t;

    for (size_t i = 0; i < UNIT_COUNT(urls); i++) {
        struct err err = {0};

        unit_fails(target_init(&t, urls[i], "pf_secret", &err), err, ERR_INVALID);
        assert_null(strstr(err.text, "secret"));
    }
    for (size_t i = 0; i < UNIT_COUNT(tokens); i++) {
        struct err err = {0};

        unit_fails(target_init(&t, NULL, tokens[i], &err), err, ERR_INVALID);
        assert_null(strstr(err.text, tokens[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
