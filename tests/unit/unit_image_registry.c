#include "image_registry.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_parse(void **state) {
    (void)state;
    static const struct {
        const char *text, *host, *path, *tag, *hex;
        bool loopback;
    } good[] = {
        {"r.example/py", "r.example", "py", "latest", "", false},
        {"r.example/a/b/c:3.11-slim", "r.example", "a/b/c", "3.11-slim", "", false},
        {"r.example:5000/py@sha256:" HEX, "r.example:5000", "py", "", HEX, false},
        {"r.example:5000/py:3@sha256:" HEX, "r.example:5000", "py", "3", HEX, false},
        {"localhost/py", "localhost", "py", "latest", "", true},
        {"localhost:5000/py", "localhost:5000", "py", "latest", "", true},
        {"127.0.0.1:80/py", "127.0.0.1:80", "py", "latest", "", true},
        {"[::1]:80/py", "[::1]:80", "py", "latest", "", true},
        {"127.0.0.1.evil.example/py", "127.0.0.1.evil.example", "py", "latest", "", false},
        {"localhost.evil.example/py", "localhost.evil.example", "py", "latest", "", false},
    };
    static const char *const bad[] = {"",
                                      "/",
                                      "py",
                                      "py:3",
                                      "team/py",
                                      "r.example",
                                      "r.example/",
                                      "r.example//py",
                                      "r.example/py/",
                                      "r.example/Py",
                                      "r.example/../py",
                                      "r.example/a/.b",
                                      "r.example/py:",
                                      "r.example/py:-x",
                                      "r.example/py:a/b",
                                      "r.example/py@sha256:12",
                                      "r.example/py@" HEX,
                                      "r.example/py@sha512:" HEX,
                                      "https://r.example/py",
                                      "u:p@r.example/py",
                                      "r.example/py?x",
                                      "r.example/py#x",
                                      "r.example/p y",
                                      "r.exam ple/py",
                                      "r.example/py:3@",
                                      "r.ex\nample/py"};
    struct image_registry_ref ref;
    struct err err = {0};

    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        if (image_registry_parse(good[i].text, &ref, &err) != 0)
            fail_msg("%s: %s", good[i].text, err.text);
        assert_string_equal(ref.host, good[i].host);
        assert_string_equal(ref.path, good[i].path);
        assert_string_equal(ref.tag, good[i].tag);
        assert_string_equal(ref.hex, good[i].hex);
        assert_int_equal(ref.loopback, good[i].loopback);
    }
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        if (image_registry_parse(bad[i], &ref, &err) == 0)
            fail_msg("%s was taken", bad[i]);
}

static void test_challenge(void **state) {
    (void)state;
    struct image_registry_challenge c;
    char text[3000];

    assert_true(image_registry_challenge(" Bearer realm=\"https://a.example/t\",service=\"s\","
                                         "scope=\"repository:a:pull,push\",error=\"x\"",
                                         &c));
    assert_string_equal(c.realm, "https://a.example/t");
    assert_string_equal(c.service, "s");
    assert_string_equal(c.scope, "repository:a:pull,push");
    assert_false(c.basic);
    assert_true(image_registry_challenge("Basic realm=\"x\"", &c));
    assert_true(c.basic);
    assert_false(image_registry_challenge("", &c));
    assert_false(image_registry_challenge("Bearer", &c));
    assert_false(image_registry_challenge("Bearer service=\"s\"", &c));
    assert_false(image_registry_challenge("Bearer realm=\"https://a", &c));
    assert_false(image_registry_challenge("Bearer realm=https://a", &c));
    assert_false(image_registry_challenge("Negotiate x", &c));
    snprintf(text, sizeof(text), "Bearer realm=\"%01100d\"", 0);
    assert_false(image_registry_challenge(text, &c));
    snprintf(text, sizeof(text), "Bearer realm=\"https://a\",service=\"%0300d\"", 0);
    assert_false(image_registry_challenge(text, &c));
}

static void test_url(void **state) {
    (void)state;
    assert_true(image_registry_url_ok("https://a.example/x", false));
    assert_true(image_registry_url_ok("http://127.0.0.1:5000/t", true));
    assert_false(image_registry_url_ok("http://127.0.0.1:5000/t", false));
    assert_false(image_registry_url_ok("http://a.example/x", true));
    assert_false(image_registry_url_ok("http://127.0.0.1.a.example/x", true));
    assert_false(image_registry_url_ok("http://127.0.0.1@a.example/x", true));
    assert_false(image_registry_url_ok("https://u@a.example/x", false));
    assert_false(image_registry_url_ok("file:///etc/shadow", true));
    assert_false(image_registry_url_ok("https://", false));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_challenge),
        cmocka_unit_test(test_url),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
