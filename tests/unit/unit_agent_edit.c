#include "agent_edit.h"

#include <string.h>

#include "unit.h"

static void works(const char *text, const char *old, const char *fresh, const char *want,
                  size_t line) {
    struct buf out;
    struct err err;
    size_t at = 0;
    unit_works(agent_edit(text, strlen(text), old, fresh, &out, &at, &err), err);
    assert_string_equal(out.data, want);
    assert_int_equal(at, line);
    buf_done(&out);
}

static void refuses(const char *text, const char *old, const char *fresh, const char *word) {
    struct buf out;
    struct err err;
    size_t at = 0;
    unit_fails(agent_edit(text, strlen(text), old, fresh, &out, &at, &err), err, ERR_INVALID);
    if (strstr(err.text, word) == NULL)
        fail_msg("%s: %s is not named", err.text, word);
    buf_done(&out);
}

static void test_exact(void **state) {
    (void)state;
    works("a\nb\nc\n", "b", "x", "a\nx\nc\n", 2);
    works("abc", "b", "", "ac", 1);
    works("one\n\ttwo\n", "\ttwo\n", "\tthree\n\tfour\n", "one\n\tthree\n\tfour\n", 2);
}

static void test_refusals_say_what_to_do(void **state) {
    (void)state;
    refuses("a\n", "", "x", "write");
    refuses("a\n", "a", "a", "the same");
    refuses("x = 1\ny\nx = 1\n", "x = 1", "x = 2", "lines 1, 3");
    refuses("alpha beta\ngamma\n", "delta epsilon", "x", "read the file again");
    refuses("int main(void) {\n    return 0;\n}\n", "int main(void) {\n    return 1;\n", "x",
            "line 1: int main");
    refuses("", "a", "b", "is not in the file");
}

static void test_line_ends_of_the_file_win(void **state) {
    (void)state;
    works("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n", 1);
}

static void test_blanks_at_ends_of_lines(void **state) {
    (void)state;
    works("a  \nb\t\nc\n", "a\nb", "x", "x\nc\n", 1);
    works("a\nb\n", "a  \nb ", "x", "x\n", 1);
}

static void test_indentation_of_the_file_wins(void **state) {
    (void)state;
    works("def f():\n    if x:\n        y\n", "if x:\n    y", "if z:\n    w\n    v",
          "def f():\n    if z:\n        w\n        v\n", 2);
    works("if x:\n    y\n", "    if x:\n        y", "    if z:\n        w", "if z:\n    w\n", 1);
    /* Not of all lines alike: another text. */
    refuses("if x:\n    y\n", "if x:\n  y", "z", "line 1");
}

static void test_copied_line_numbers(void **state) {
    (void)state;
    works("a\nb\nc\n", "    2\tb\n    3\tc", "    2\tx\n    3\ty", "a\nx\ny\n", 2);
}

static void test_nearly_twice_is_refused(void **state) {
    (void)state;
    refuses("  a  \nx\n  a\n", "\ta", "b", "nearly there 2 times");
}

static void test_a_file_without_a_last_newline(void **state) {
    (void)state;
    works("a\nb  ", "b\n", "c\n", "a\nc", 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_refusals_say_what_to_do),
        cmocka_unit_test(test_line_ends_of_the_file_win),
        cmocka_unit_test(test_blanks_at_ends_of_lines),
        cmocka_unit_test(test_indentation_of_the_file_wins),
        cmocka_unit_test(test_copied_line_numbers),
        cmocka_unit_test(test_nearly_twice_is_refused),
        cmocka_unit_test(test_a_file_without_a_last_newline),
    };
    return cmocka_run_group_tests_name("agent_edit", tests, NULL, NULL);
}
