#include "ws_ignore.h"

#include <string.h>

#include "unit.h"

static void test_glob(void **state) {
    static const struct {
        const char *pattern, *path;
        bool fits;
    } rows[] = {
        {"a", "a", true},           {"a", "b", false},           {"*.o", "x.o", true},
        {"*.o", "x/y.o", false},    {"*", "a/b", false},         {"a*b*c", "axxbyyc", true},
        {"a*b*c", "axxbyy", false}, {"?", "/", false},           {"?x", "ax", true},
        {"[a-c]x", "bx", true},     {"[!a-c]x", "bx", false},    {"[!a-c]x", "dx", true},
        {"[]a]", "]", true},        {"[a", "[a", true},          {"\\*", "*", true},
        {"\\*", "x", false},        {"**", "a/b", true},         {"**/b", "b", true},
        {"**/b", "a/x/b", true},    {"**/b", "ab", false},       {"a/**", "a/b/c", true},
        {"a/**", "a", false},       {"a/**/b", "a/b", true},     {"a/**/b", "a/x/y/b", true},
        {"a/**/b", "a/xb", false},  {"a**", "abc", true},        {"a**b", "a/b", false},
        {"a/*/c", "a/b/c", true},   {"a/*/c", "a/b/d/c", false}, {"", "", true},
        {"[/]", "/", false},        {"x[", "x[", true},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        if (ws_ignore_glob(rows[i].pattern, rows[i].path) != rows[i].fits)
            fail_msg("%s on %s", rows[i].pattern, rows[i].path);
}

/* A pattern that asks for exponential time is given up. */
static void test_glob_is_bounded(void **state) {
    char pattern[200] = "", path[400] = "";
    (void)state;
    for (int i = 0; i < 24; i++) {
        strncat(pattern, "**/*a/", sizeof(pattern) - strlen(pattern) - 1);
        strncat(path, "aa/aa/aa/", sizeof(path) - strlen(path) - 1);
    }
    strncat(pattern, "x", sizeof(pattern) - strlen(pattern) - 1);
    assert_false(ws_ignore_glob(pattern, path));
}

static void expect(struct ws_ignore *g, const char *path, bool is_dir, bool out) {
    if (ws_ignore_covers(g, path, is_dir) != out)
        fail_msg("%s is %s", path, out ? "taken in" : "left out");
}

static void add(struct ws_ignore *g, const char *directory, const char *text) {
    struct err err;
    unit_works(ws_ignore_add(g, directory, text, strlen(text), &err), err);
}

static void test_rules(void **state) {
    struct ws_ignore g;
    struct err err;
    (void)state;
    unit_works(ws_ignore_init(&g, &err), err);
    add(&g, "",
        "# a comment\n\n*.log\n!keep.log\nbuild/\n/only-here\ndoc/*.txt\r\nspace\\ \nend\n");
    add(&g, "sub", "local\n!*.log\n/deep/x");
    expect(&g, ".git", true, true);
    expect(&g, "a/.git/config", false, true);
    expect(&g, ".gitignore", false, false);
    expect(&g, ".pinfold/permissions.rules", false, true);
    expect(&g, "x.log", false, true);
    expect(&g, "a/b/x.log", false, true);
    expect(&g, "keep.log", false, false);
    expect(&g, "build", false, false); /* only directories */
    expect(&g, "build", true, true);
    expect(&g, "build/a/b.c", false, true);
    expect(&g, "a/build/b.c", false, true);
    expect(&g, "only-here", false, true);
    expect(&g, "a/only-here", false, false);
    expect(&g, "doc/a.txt", false, true);
    expect(&g, "doc/a/a.txt", false, false);
    expect(&g, "x/doc/a.txt", false, false);
    expect(&g, "space ", false, true);
    expect(&g, "end", false, true);
    expect(&g, "local", false, false);
    expect(&g, "sub/local", false, true);
    expect(&g, "sub/a/local", false, true);
    expect(&g, "subx/local", false, false);
    expect(&g, "sub/x.log", false, false);
    expect(&g, "sub/deep/x", false, true);
    expect(&g, "sub/a/deep/x", false, false);
    ws_ignore_done(&g);
}

/* Below what is left out, nothing is taken in again. */
static void test_nothing_returns_from_below(void **state) {
    struct ws_ignore g;
    struct err err;
    (void)state;
    unit_works(ws_ignore_init(&g, &err), err);
    add(&g, "", "out/\n!out/keep\nhalf/*\n!half/keep\n");
    expect(&g, "out/keep", false, true);
    expect(&g, "half/keep", false, false);
    ws_ignore_done(&g);
}

static void test_git_and_pinfold_stay_whatever_is_said(void **state) {
    struct ws_ignore g;
    struct err err;
    (void)state;
    unit_works(ws_ignore_init(&g, &err), err);
    expect(&g, "a/__pycache__/x.pyc", false, true);
    add(&g, "", "!.git\n!.git/\n!/.git/**\n!**/.pinfold\n!*\n");
    add(&g, "a", "!.git\n!.pinfold/\n!__pycache__\n");
    expect(&g, ".git", true, true);
    expect(&g, ".git", false, true); /* of a worktree or a submodule */
    expect(&g, ".git/hooks/pre-commit", false, true);
    expect(&g, "a/b/.git/config", false, true);
    expect(&g, ".GIT/config", false, true);
    expect(&g, ".pinfold/permissions.rules", false, true);
    expect(&g, "a/.Pinfold/x", false, true);
    expect(&g, ".github/x", false, false);
    expect(&g, "a/__pycache__/x.pyc", false, false);
    ws_ignore_done(&g);
}

/* What a pattern that takes too long may be meant to keep here, stays. */
static void test_a_pattern_that_is_given_up_leaves_out(void **state) {
    struct ws_ignore g;
    struct err err;
    char pattern[400] = "", path[400] = "";
    (void)state;
    for (int i = 0; i < 24; i++) {
        strncat(pattern, "**/*a/", sizeof(pattern) - strlen(pattern) - 1);
        strncat(path, "aa/aa/aa/", sizeof(path) - strlen(path) - 1);
    }
    strncat(pattern, "x", sizeof(pattern) - strlen(pattern) - 1);
    strncat(path, "y", sizeof(path) - strlen(path) - 1);
    unit_works(ws_ignore_init(&g, &err), err);
    add(&g, "", pattern);
    assert_true(ws_ignore_match(&g, path, false));
    assert_false(ws_ignore_match(&g, "b/y", false));
    ws_ignore_done(&g);
}

static void test_what_loosens(void **state) {
    static const struct {
        const char *was, *now;
        bool loosens;
    } rows[] = {
        {"", "a\n", false},
        {"", "a\n!b\n", true},
        {"a\nb\n", "a\nb", false},
        {"a\nb\n", "a\n# new\n\nc\nb\nd\n", false},
        {"a\nb\n", "b\na\n", true},
        {"a\nb\n", "b\n", true},
        {"a\n", "", true},
        {"a\n!b\n", "a\n!b\nc\n", false},
        {"a\n!b\n", "a\n", true}, /* all that was there, in order, is easy to be sure of */
        {"a\n", "a\n!a\n", true},
        {"a \n", "a\r\n", false},
        {"", "", false},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        if (ws_ignore_loosens(rows[i].was, strlen(rows[i].was), rows[i].now, strlen(rows[i].now)) !=
            rows[i].loosens)
            fail_msg("row %zu", i);
    assert_true(ws_ignore_is_file("a/.gitignore") && ws_ignore_is_file(".pinfoldignore"));
    assert_false(ws_ignore_is_file("gitignore"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob),
        cmocka_unit_test(test_glob_is_bounded),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_nothing_returns_from_below),
        cmocka_unit_test(test_git_and_pinfold_stay_whatever_is_said),
        cmocka_unit_test(test_a_pattern_that_is_given_up_leaves_out),
        cmocka_unit_test(test_what_loosens),
    };
    return cmocka_run_group_tests_name("ws_ignore", tests, NULL, NULL);
}
