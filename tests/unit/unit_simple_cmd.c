#include "simple_cmd.h"

#include <string.h>

#include "unit.h"

/* Operands that are left, joined by commas; "!" = wrong usage. */
static void parse(const char *const *words, bool mixed, const char **name, bool *flag,
                  char out[128]) {
    const struct opt table[] = {{"name", 'n', "N", OPT_STRING, name, 0, 0, "a name"},
                                {"flag", 'f', NULL, OPT_FLAG, flag, 0, 0, "a flag"},
                                {0}};
    const struct simple_cmd cmd = {.name = "test",
                                   .usage = "",
                                   .about = "",
                                   .table = table,
                                   .max_operands = 5,
                                   .mixed = mixed};
    char *argv[16];
    int argc = 0, first;

    for (; words[argc] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    *name = NULL;
    *flag = false;
    *out = '\0';
    if (simple_cmd_parse(&cmd, argc, argv, &first) <= 0) {
        strncat(out, "!", 2);
        return;
    }
    for (int i = first; i < argc; i++) {
        strncat(out, argv[i], 20);
        strncat(out, ",", 2);
    }
}

static void test_mixed(void **state) {
    (void)state;
    static const struct {
        const char *words[10], *left, *name;
        bool flag;
    } cases[] = {
        {{"x"}, "", NULL, false},
        {{"x", "a"}, "a,", NULL, false},
        {{"x", "a", "b", "c"}, "a,b,c,", NULL, false},
        {{"x", "-f", "a", "b"}, "a,b,", NULL, true},
        {{"x", "a", "-f", "b"}, "a,b,", NULL, true},
        {{"x", "a", "b", "-f"}, "a,b,", NULL, true},
        {{"x", "a", "--name", "n", "b", "-f", "c"}, "a,b,c,", "n", true},
        {{"x", "--name=n", "a", "b"}, "a,b,", "n", false},
        {{"x", "a", "--", "-f", "b"}, "a,-f,b,", NULL, false},
        {{"x", "-f", "--", "a"}, "a,", NULL, true},
        {{"x", "a", "-", "-f"}, "a,-,", NULL, true},
        {{"x", "a", "--name"}, "!", NULL, false},
        {{"x", "a", "--none"}, "!", NULL, false},
        {{"x", "a", "b", "c", "d", "e", "f"}, "!", NULL, false},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        const char *name;
        char left[128];
        bool flag;

        parse(cases[i].words, true, &name, &flag, left);
        assert_string_equal(left, cases[i].left);
        if (left[0] == '!')
            continue;
        assert_int_equal(flag, cases[i].flag);
        if (cases[i].name != NULL)
            assert_string_equal(name, cases[i].name);
        else
            assert_null(name);
    }
}

static void test_strict(void **state) {
    (void)state;
    static const char *const words[] = {"x", "a", "-f", NULL};
    const char *name;
    char left[128];
    bool flag;

    parse(words, false, &name, &flag, left);
    assert_string_equal(left, "a,-f,");
    assert_false(flag);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixed), cmocka_unit_test(test_strict)};
    return cmocka_run_group_tests_name("simple_cmd", tests, NULL, NULL);
}
