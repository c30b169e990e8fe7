#include "cp_path.h"

#include <string.h>

#include "unit.h"

static void test_parse(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool remote, std, into, contents;
        const char *id, *path, *base;
    } cases[] = {
        {"main.c", false, false, false, false, "", "main.c", "main.c"},
        {"./a:b", false, false, false, false, "", "./a:b", "a:b"},
        {"dir/a:b", false, false, false, false, "", "dir/a:b", "a:b"},
        {"/abs", false, false, false, false, "", "/abs", "abs"},
        {"dir/", false, false, true, false, "", "dir/", "dir"},
        {".", false, false, false, true, "", ".", ""},
        {"..", false, false, false, false, "", "..", ""},
        {"dir/.", false, false, false, true, "", "dir/.", ""},
        {"...", false, false, false, false, "", "...", "..."},
        {"..a", false, false, false, false, "", "..a", "..a"},
        {"-", false, true, false, false, "", "", ""},
        {"sb_1:/a/b", true, false, false, false, "sb_1", "/a/b", "b"},
        {"sb_1:a", true, false, false, false, "sb_1", "/workspace/a", "a"},
        {"sb_1:", true, false, true, false, "sb_1", "/workspace", "workspace"},
        {"sb_1:/", true, false, true, false, "sb_1", "/", ""},
        {"sb_1:.", true, false, false, true, "sb_1", "/workspace", "workspace"},
        {"sb_1:/a//./b/", true, false, true, false, "sb_1", "/a/b", "b"},
        {"sb_1:/a/.", true, false, false, true, "sb_1", "/a", "a"},
        {"sb_1:x:y", true, false, false, false, "sb_1", "/workspace/x:y", "x:y"},
        {"sb_1:/...", true, false, false, false, "sb_1", "/...", "..."},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct err err = {0};
        struct cp_path p;
        char space[256];

        unit_works(cp_path_parse(cases[i].text, &p, &err), err);
        assert_int_equal(p.remote, cases[i].remote);
        assert_int_equal(p.std, cases[i].std);
        assert_int_equal(p.into, cases[i].into);
        assert_int_equal(p.contents, cases[i].contents);
        assert_string_equal(p.id, cases[i].id);
        assert_string_equal(p.path, cases[i].path);
        if (!p.contents)
            assert_string_equal(cp_path_base(&p, space, sizeof(space)), cases[i].base);
    }
}

static void test_wrong(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        ":x",
        "a b:/x",
        "sb_1:..",
        "sb_1:/a/../b",
        "sb_1:../x",
        "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij:/x"};
    char longest[8300] = "sb_1:/";
    struct cp_path p;
    struct err err = {0};

    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(cp_path_parse(bad[i], &p, &err), err, ERR_INVALID);
    memset(longest + 6, 'x', 300);
    unit_fails(cp_path_parse(longest, &p, &err), err, ERR_INVALID);
    for (size_t i = 6; i + 1 < sizeof(longest); i++)
        longest[i] = i % 2 == 0 ? 'x' : '/';
    unit_fails(cp_path_parse(longest, &p, &err), err, ERR_INVALID);
}

static void test_url(void **state) {
    (void)state;
    static const struct {
        const char *text, *url;
    } cases[] = {
        {"sb_1:/a/b", "/v1/sandboxes/sb_1/files/a/b?q=1"},
        {"sb_1:/", "/v1/sandboxes/sb_1/files/?q=1"},
        {"sb_1:/a b/100%", "/v1/sandboxes/sb_1/files/a%20b/100%25?q=1"},
        {"sb_1:/?x#y&z=+", "/v1/sandboxes/sb_1/files/%3Fx%23y%26z%3D%2B?q=1"},
        {"sb_1:/\xc3\xbc\xff\n", "/v1/sandboxes/sb_1/files/%C3%BC%FF%0A?q=1"},
        {"sb_1:/~a-b_c.d", "/v1/sandboxes/sb_1/files/~a-b_c.d?q=1"},
    };
    struct err err = {0};
    struct cp_path p;
    char url[256];

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        unit_works(cp_path_parse(cases[i].text, &p, &err), err);
        unit_works(cp_path_url(&p, "files", "?q=1", url, sizeof(url), &err), err);
        assert_string_equal(url, cases[i].url);
    }
    for (size_t size = 24; size < 31; size++)
        unit_fails(cp_path_url(&p, "files", "?q=1", url, size, &err), err, ERR_INVALID);
}

static void test_append(void **state) {
    (void)state;
    struct err err = {0};
    struct cp_path p;

    unit_works(cp_path_parse("sb_1:/", &p, &err), err);
    unit_works(cp_path_append(&p, "a", &err), err);
    unit_works(cp_path_append(&p, "b c", &err), err);
    assert_string_equal(p.path, "/a/b c");
    memset(p.path, 'x', sizeof(p.path) - 1);
    p.path[sizeof(p.path) - 1] = '\0';
    unit_fails(cp_path_append(&p, "y", &err), err, ERR_INVALID);
}

static void test_links(void **state) {
    (void)state;
    static const struct {
        const char *path, *target;
        bool stays;
    } cases[] = {
        {"a", "b", true},
        {"a", "b/c/d", true},
        {"a", "./b", true},
        {"a", ".", true},
        {"a", "/etc/passwd", false},
        {"a", "", false},
        {"a", "..", false},
        {"a", "../b", false},
        {"d/a", "../b", true},
        {"d/a", "..", true},
        {"d/a", "../..", false},
        {"d/e/a", "../../b", true},
        {"d/e/a", "./.././../b", true},
        {"d/e/a", "../../../b", false},
        /* With another link on the way, ".." behind it could lead anywhere. */
        {"d/e/a", "x/..", false},
        {"a", "d/up/../..", false},
        {"d/a", "../x/../y", false},
        {"a", "..b/c", true},
        {"a", "b/...", true},
        {"a", "b//c", true},
        {"d/a", "..//b", true},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        if (cp_path_link_stays(cases[i].path, cases[i].target) != cases[i].stays)
            fail_msg("%s -> %s", cases[i].path, cases[i].target);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_url), cmocka_unit_test(test_append),
                                       cmocka_unit_test(test_links)};
    return cmocka_run_group_tests_name("cp_path", tests, NULL, NULL);
}
