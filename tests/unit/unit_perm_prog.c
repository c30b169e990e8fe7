#include "perm_prog.h"

#include <string.h>

#include "unit.h"

#define WORDS_MAX 16u

/* "a b c" as words. */
static struct perm_words split(const char *text) {
    static struct bash_word store[WORDS_MAX];
    static const struct bash_word *list[WORDS_MAX];
    static char copy[200];
    size_t n = 0;
    char *save = NULL;

    strncpy(copy, text, sizeof(copy) - 1);
    for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        store[n] = (struct bash_word){.text = w, .len = strlen(w)};
        list[n] = &store[n];
        n++;
    }
    return (struct perm_words){list, n};
}

static void test_table_is_in_order(void **state) {
    size_t count;
    const struct perm_prog *rows = perm_prog_table(&count);

    (void)state;
    for (size_t i = 1; i < count; i++)
        if (strcmp(rows[i - 1].name, rows[i].name) >= 0)
            fail_msg("%s stands before %s", rows[i - 1].name, rows[i].name);
    for (size_t i = 0; i < count; i++)
        assert_ptr_equal(perm_prog_find(rows[i].name), &rows[i]);
    assert_null(perm_prog_find(""));
    assert_null(perm_prog_find("zzzz"));
}

static void test_where_the_inner_command_begins(void **state) {
    static const struct {
        const char *text, *inner;
        bool exact;
    } cases[] = {
        {"env ls", "ls", true},
        {"env -i A=1 B=2 ls", "ls", true},
        {"env -u A --chdir=/ ls", "ls", true},
        {"env --unset A ls", "ls", true},
        {"env -- ls", "ls", true},
        {"env", NULL, true},
        {"env --bogus ls", NULL, false},
        {"timeout 5 ls", "ls", true},
        {"timeout -k 1 --signal=9 5 ls", "ls", true},
        {"nice ls", "ls", true},
        {"nice -n 5 ls", "ls", true},
        {"nice -10 ls", "ls", true},
        {"xargs -n1 -I {} ls", "ls", true},
        {"xargs -0 ls", "ls", true},
        {"sudo -u root ls", "ls", true},
        {"sudo -Hu root ls", "ls", true},
        {"taskset -c 0 ls", NULL, false},
        {"taskset 1 ls", "ls", true},
        {"exec -a x ls", "ls", true},
        {"ssh -p 22 host ls", "ls", true},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct perm_words w = split(cases[i].text);
        struct perm_inner in = perm_prog_inner(perm_prog_find(w.word[0]->text), &w);
        const char *found = in.exact && in.at < w.count ? w.word[in.at]->text : NULL;

        if (in.exact != cases[i].exact || (found == NULL) != (cases[i].inner == NULL) ||
            (found != NULL && strcmp(found, cases[i].inner) != 0))
            fail_msg("%s: %s %d", cases[i].text, found != NULL ? found : "nothing", in.exact);
    }
}

static void test_options_that_write_or_run(void **state) {
    static const struct {
        const char *text;
        size_t at; /* of the first risky word; 0 = none */
    } cases[] = {
        {"git log --oneline -5", 0}, {"git log --output=x", 2}, {"git log --outp x", 2},
        {"git -C x log", 1},         {"git --no-pager log", 0}, {"git grep -O x", 2},
        {"sort -k2 f", 0},           {"sort -uo x f", 1},       {"find . -name x", 0},
        {"find . -delete", 2},       {"tar -xf a -I x", 3},     {"make SHELL=x", 1},
        {"make -j2 all", 0},         {"sed -n 1,3p f", 0},      {"sed w f", 1},
        {"sed s/a/b/ f", 0},         {"sed s/a/b/e f", 1},      {"sed -i s/a/b/ f", 1},
        {"sed -e p -e w f", 4},      {"uniq a b", 2},           {"uniq -c a", 0},
        {"npm run x -- -C y", 0},    {"npm -C y run x", 1},     {"cat -o x", 0},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct perm_words w = split(cases[i].text);
        const struct perm_prog *prog = perm_prog_find(w.word[0]->text);
        size_t at = 0;

        for (size_t k = 1; k < w.count && at == 0; k++)
            at = perm_prog_risky(prog, &w, k) ? k : 0;
        if (at != cases[i].at)
            fail_msg("%s: %zu", cases[i].text, at);
    }
}

static void test_variables(void **state) {
    (void)state;
    assert_true(perm_prog_benign("LC_ALL", 6));
    assert_true(perm_prog_benign("A", 1));
    assert_false(perm_prog_benign("PATH", 4));
    assert_false(perm_prog_benign("npm_config_script_shell", 23));
    assert_false(perm_prog_benign("LAN", 3));
    assert_true(perm_prog_local("file1", 5));
    assert_false(perm_prog_local("http_proxy", 10));
    assert_false(perm_prog_local("IFS", 3));
}

static void test_what_always_never_covers(void **state) {
    static const char *const never[] = {"bash", "sh",   "env",  "sudo", "python3", "xargs",
                                        "find", "make", "node", "ssh",  "docker",  "sed"};
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(never); i++)
        assert_true(perm_prog_runs_anything(never[i]));
    assert_false(perm_prog_runs_anything("git"));
    assert_false(perm_prog_runs_anything("unknown"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_in_order),
        cmocka_unit_test(test_where_the_inner_command_begins),
        cmocka_unit_test(test_options_that_write_or_run),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_what_always_never_covers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
