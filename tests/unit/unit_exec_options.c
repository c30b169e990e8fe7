#include "exec_options.h"

#include <string.h>

#include "unit.h"

static int parse(bool operand, const char *const *words, struct exec_options *out,
                 struct err *err) {
    static char *copy[32];
    int argc = 0;

    for (; words[argc] != NULL; argc++)
        copy[argc] = (char *)(uintptr_t)words[argc];
    copy[argc] = NULL;
    return exec_options_parse(operand, argc, copy, out, err);
}

static void test_inside(void **state) {
    (void)state;
    static const char *const plain[] = {"exec", "sb_1", "--", "echo", "--tty", NULL};
    static const char *const bare[] = {"exec", "sb_1", "ls", "-l", NULL};
    static const char *const both[] = {"exec", "-t", "sb_1", "--cwd", "/x", "-c", "a b", NULL};
    static const char *const help[] = {"exec", "sb_1", "--help", NULL};
    struct err err = {0};
    struct exec_options o;

    unit_works(parse(true, plain, &o, &err), err);
    assert_string_equal(o.sandbox, "sb_1");
    assert_int_equal(o.argc, 2);
    assert_string_equal(o.argv[1], "--tty");
    assert_false(o.tty);
    for (int i = 0; i < LIMIT_COUNT; i++)
        assert_true(o.limits.value[i] == LIMIT_OPTIONS_UNSET);
    unit_works(parse(true, bare, &o, &err), err);
    assert_int_equal(o.argc, 2);
    unit_works(parse(true, both, &o, &err), err);
    assert_true(o.tty);
    assert_string_equal(o.cwd, "/x");
    assert_string_equal(o.shell, "a b");
    unit_works(parse(true, help, &o, &err), err);
    assert_true(o.help);
}

static void test_outside(void **state) {
    (void)state;
    static const char *const words[] = {"exec",
                                        "-s",
                                        "sb_1",
                                        "--wall",
                                        "5m",
                                        "--output",
                                        "2k",
                                        "-e",
                                        "A=1",
                                        "-e",
                                        "B=",
                                        "-b",
                                        "--id",
                                        "ex_mine",
                                        "--stdin",
                                        "-",
                                        "--merge-stderr",
                                        "--",
                                        "make",
                                        NULL};
    static const char *const none[] = {"exec", "make", NULL};
    struct err err = {0};
    struct exec_options o;

    unit_works(parse(false, words, &o, &err), err);
    assert_string_equal(o.sandbox, "sb_1");
    assert_int_equal(o.limits.value[LIMIT_WALL_MS], 300000);
    assert_int_equal(o.limits.value[LIMIT_OUTPUT_BYTES], 2048);
    assert_int_equal(o.env.count, 2);
    assert_true(o.background && o.merge_stderr && !o.json && !o.tty);
    assert_string_equal(o.id, "ex_mine");
    assert_string_equal(o.input, "-");
    unit_works(parse(false, none, &o, &err), err);
    assert_null(o.sandbox);
    assert_int_equal(o.argc, 1);
}

static void test_wrong(void **state) {
    (void)state;
    static const struct {
        bool operand;
        const char *words[8];
    } bad[] = {
        {false, {"exec"}},
        {false, {"exec", "-c", "x", "y"}},
        {false, {"exec", "-s", "a/b", "x"}},
        {false, {"exec", "-t", "-b", "x"}},
        {false, {"exec", "-t", "--json", "x"}},
        {false, {"exec", "--id", "a b", "x"}},
        {false, {"exec", "--env", "A", "x"}},
        {false, {"exec", "--wall", "0", "x"}},
        /* What belongs to the whole sandbox. */
        {false, {"exec", "--disk", "1M", "x"}},
        {false, {"exec", "-s", "sb_1", "--policy", "ci", "x"}},
        {true, {"exec"}},
        {true, {"exec", "sb_1"}},
        {true, {"exec", "--", "x"}},
        {true, {"exec", "a/b", "x"}},
        {true, {"exec", "--sandbox", "x", "y"}},
        {true, {"exec", "sb_1", "--nonsense", "x"}},
    };

    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct err err = {0};
        struct exec_options o = {.argc = 77};

        unit_fails(parse(bad[i].operand, bad[i].words, &o, &err), err, ERR_INVALID);
        assert_int_equal(o.argc, 77);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_inside),
                                       cmocka_unit_test(test_outside),
                                       cmocka_unit_test(test_wrong)};
    return cmocka_run_group_tests_name("exec_options", tests, NULL, NULL);
}
