#include "permission_exec.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

struct fixture {
    struct rule_set set;
    struct perm perm;
    struct permission_exec exec;
};

static void begin(struct fixture *f, bool headless) {
    static const char rules[] = "deny exec curl ** \"nothing is fetched\"\nallow exec ls **\n"
                                "allow write out/**\ndeny tool shell\nallow tool *\n";
    struct perm_config config = {.headless = headless};
    struct err e = {0};

    unit_works(rule_set_init(&f->set, "/w", "/h", &e), e);
    unit_works(rule_load(&f->set, RULE_USER, true, "r", rules, sizeof(rules) - 1, &e), e);
    unit_works(perm_init(&f->perm, &f->set, &config, &e), e);
    permission_exec_init(&f->exec, &f->perm);
}

static void end(struct fixture *f) {
    permission_exec_done(&f->exec);
    perm_done(&f->perm);
    rule_set_done(&f->set);
}

static enum permission_answer command(struct fixture *f, const char *text) {
    const struct perm_verdict *v;

    return permission_exec_command(&f->exec, text, strlen(text), &v);
}

static void test_one_literal_command_runs_without_a_shell(void **state) {
    static const struct {
        const char *text;
        size_t words;
    } cases[] = {{"ls -l 'a b'", 3}, {"ls\\\n -l", 2}, {"ls; ls", 0}, {"ls *", 0},
                 {"ls $x", 0},       {"ls >out/a", 0}, {"A=1 ls", 0}, {"ls | ls", 0}};
    struct fixture f;
    const struct perm_verdict *v;

    (void)state;
    begin(&f, false);
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        size_t n = 0;

        assert_int_equal(permission_exec_command(&f.exec, cases[i].text, strlen(cases[i].text), &v),
                         PERMISSION_RUN);
        while (v->argv != NULL && v->argv[n] != NULL)
            n++;
        assert_int_equal(n, cases[i].words);
    }
    end(&f);
}

static void test_without_a_person_ask_is_deny(void **state) {
    struct fixture f;
    const struct perm_verdict *v;

    (void)state;
    begin(&f, false);
    assert_int_equal(command(&f, "make"), PERMISSION_ASK);
    assert_int_equal(f.exec.count, 0);
    end(&f);
    begin(&f, true);
    assert_int_equal(command(&f, "make"), PERMISSION_DENIED);
    assert_int_equal(command(&f, "ls && make x"), PERMISSION_DENIED);
    assert_int_equal(permission_exec_path(&f.exec, RULE_WRITE, "x", &v), PERMISSION_DENIED);
    assert_int_equal(permission_exec_path(&f.exec, RULE_WRITE, "out/x", &v), PERMISSION_RUN);
    assert_int_equal(permission_exec_subject(&f.exec, RULE_TOOL, "shell", &v), PERMISSION_DENIED);
    assert_int_equal(permission_exec_subject(&f.exec, RULE_TOOL, "read", &v), PERMISSION_RUN);
    end(&f);
}

static void test_denials_are_listed_with_their_rule(void **state) {
    struct fixture f;

    (void)state;
    begin(&f, true);
    assert_int_equal(command(&f, "ls; curl x"), PERMISSION_DENIED);
    assert_int_equal(command(&f, "make"), PERMISSION_DENIED);
    assert_int_equal(f.exec.count, 2);
    assert_string_equal(f.exec.denial[0].subject, "ls; curl x");
    assert_string_equal(f.exec.denial[0].rule, "r:1: deny exec curl **");
    assert_string_equal(f.exec.denial[0].why, "nothing is fetched");
    assert_null(f.exec.denial[1].rule);
    end(&f);
}

static void test_the_same_denial_twice_is_a_loop(void **state) {
    struct fixture f;
    const struct perm_verdict *v;

    (void)state;
    begin(&f, false);
    assert_int_equal(command(&f, "curl x"), PERMISSION_DENIED);
    assert_int_equal(command(&f, "curl y"), PERMISSION_DENIED);
    assert_int_equal(command(&f, "curl x"), PERMISSION_LOOP);
    assert_int_equal(f.exec.denial[0].times, 2);
    /* Also what a person refused. */
    assert_int_equal(permission_exec_command(&f.exec, "make", 4, &v), PERMISSION_ASK);
    assert_int_equal(permission_exec_refused(&f.exec, "make", v), PERMISSION_DENIED);
    assert_int_equal(permission_exec_refused(&f.exec, "make", v), PERMISSION_LOOP);
    end(&f);
}

static void test_a_full_list_ends_it(void **state) {
    struct fixture f;
    char text[20];

    (void)state;
    begin(&f, true);
    for (unsigned i = 0; i < PERMISSION_DENIALS_MAX; i++) {
        snprintf(text, sizeof(text), "curl %u", i);
        assert_int_equal(command(&f, text), PERMISSION_DENIED);
    }
    assert_int_equal(command(&f, "curl more"), PERMISSION_LOOP);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_literal_command_runs_without_a_shell),
        cmocka_unit_test(test_without_a_person_ask_is_deny),
        cmocka_unit_test(test_denials_are_listed_with_their_rule),
        cmocka_unit_test(test_the_same_denial_twice_is_a_loop),
        cmocka_unit_test(test_a_full_list_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
