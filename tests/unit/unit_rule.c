#include "rule.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

struct fixture {
    struct rule_set set;
};

static int setup(void **state) {
    static struct fixture f;
    struct err e = {0};

    unit_works(rule_set_init(&f.set, "/w/app", "/home/me/", &e), e);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    rule_set_done(&((struct fixture *)*state)->set);
    return 0;
}

static int load(struct fixture *f, const char *text, struct err *e) {
    return rule_load(&f->set, RULE_USER, true, "r", text, strlen(text), e);
}

static void test_a_rule_has_its_parts(void **state) {
    struct fixture *f = *state;
    const struct rule *r;
    struct err e = {0};

    unit_works(load(f,
                    "policy 1\n# comment\n\n  deny \texec  git  push **  \"people push\"  # why\n"
                    "allow exec npm run {test,lint:*} 'a  b'\nask read ~/.ssh/** a/{b,c}\n",
                    &e),
               e);
    assert_int_equal(f->set.count, 5);
    r = &f->set.rules[0];
    assert_int_equal(r->verdict, RULE_DENY);
    assert_int_equal(r->kind, RULE_EXEC);
    assert_string_equal(r->text, "deny exec git push **");
    assert_string_equal(r->reason, "people push");
    assert_int_equal(r->line, 4);
    assert_int_equal(r->tokens, 3);
    assert_int_equal(r->token[2].type, RULE_TOKEN_REST);
    r = &f->set.rules[1];
    assert_int_equal(r->token[2].count, 2);
    assert_string_equal(r->token[2].alt[1], "lint:*");
    assert_string_equal(r->token[3].alt[0], "a  b");
    r = &f->set.rules[2];
    assert_string_equal(r->parts.part[0], "home");
    assert_string_equal(r->parts.part[2], ".ssh");
    /* One rule per alternative; of the workspace when it does not begin with a slash. */
    assert_string_equal(f->set.rules[3].parts.part[3], "b");
}

static void test_errors_name_file_and_line(void **state) {
    static const char *const cases[] = {
        "permit exec x",
        "deny run x",
        "deny",
        "deny exec",
        "deny exec ** x",
        "deny exec a**",
        "deny exec <file>",
        "allow exec <path>* x",
        "deny exec {a,{b,c}}",
        "deny exec 'a",
        "deny exec a \"b",
        "deny exec a \"b\" c",
        "deny read a/../b",
        "deny read [ab]",
        "deny read a**b",
        "deny read **/a/**/b/**/c/**/d/**",
        "policy 2",
        "deny exec x\npolicy 1",
        "? x",
        "deny exec a\n?  ",
        "deny exec a\x01",
        "deny exec \"reason only\"",
        "allow read \\x",
    };
    struct fixture *f = *state;
    struct err e = {0};

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        unit_fails(load(f, cases[i], &e), e, ERR_INVALID);
        if (strncmp(e.text, "r:1: ", 5) != 0 && strncmp(e.text, "r:2: ", 5) != 0)
            fail_msg("%s: %s", cases[i], e.text);
    }
}

static void test_examples_belong_to_the_line_before(void **state) {
    struct fixture *f = *state;
    struct err e = {0};

    unit_works(load(f, "deny read a b\n? a\n! c\nallow exec x ** \"y\" ? x 1 ! y 2 ? x\n", &e), e);
    assert_int_equal(f->set.example_count, 5);
    assert_int_equal(f->set.examples[0].first, 0);
    assert_int_equal(f->set.examples[0].count, 2);
    assert_true(f->set.examples[0].must);
    assert_false(f->set.examples[1].must);
    assert_string_equal(f->set.examples[2].text, "x 1");
    assert_string_equal(f->set.examples[3].text, "y 2");
    assert_false(f->set.examples[3].must);
    assert_string_equal(f->set.examples[4].text, "x");
}

static void test_digest_tells_every_change(void **state) {
    struct fixture *f = *state;
    unsigned char seen[4][32];
    static const char *const texts[] = {"deny exec a\n", "deny exec a \n", "deny exec b\n"};
    struct err e = {0};

    (void)f;
    for (size_t i = 0; i < 4; i++) {
        struct rule_set set;

        unit_works(rule_set_init(&set, "/w", "/h", &e), e);
        unit_works(rule_load(&set, RULE_USER, i < 3, "r", texts[i % 3], strlen(texts[i % 3]), &e),
                   e);
        memcpy(seen[i], set.digest, 32);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(seen[i], seen[k], 32);
        rule_set_done(&set);
    }
}

static void test_untrusted_allow_does_not_count(void **state) {
    struct fixture *f = *state;
    struct err e = {0};

    unit_works(
        rule_load(&f->set, RULE_WORKSPACE, false, "w", "allow exec a\ndeny exec b\n", 25, &e), e);
    assert_true(f->set.rules[0].untrusted);
    assert_false(f->set.rules[1].untrusted);
}

static void test_glob(void **state) {
    (void)state;
    assert_true(rule_glob("", ""));
    assert_true(rule_glob("*", "anything"));
    assert_true(rule_glob("a*c", "abbc"));
    assert_true(rule_glob("*.pem", "x.pem"));
    assert_false(rule_glob("*.pem", "x.pema"));
    assert_false(rule_glob("a", "ab"));
    assert_true(rule_glob(".env", ".e\002"));
    assert_true(rule_glob(".env", "\001"));
    assert_true(rule_glob(".env", ".\003nv"));
    assert_false(rule_glob(".env", ".x\002"));
}

static struct rule_path path(const char *text) {
    struct rule_path p = {.anywhere = text[0] != '/'};
    static char copy[10][300];
    static size_t turn;
    char *save = NULL, *mine = copy[turn++ % 10];

    snprintf(mine, sizeof(copy[0]), "%s", text);
    for (char *part = strtok_r(mine, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        p.marked = p.marked || strpbrk(part, "\001\002\003\005") != NULL;
        p.part[p.count++] = part;
    }
    return p;
}

static void test_paths_are_compared_by_component(void **state) {
    static const struct {
        const char *pattern, *path;
        enum rule_fit deny;
        bool allow;
    } cases[] = {
        {"src/**", "/w/app/src/a/b", RULE_FIT_YES, true},
        {"src/**", "/w/app/src", RULE_FIT_YES, false},
        {"src/**", "/w/app/srcs/a", RULE_FIT_NO, false},
        {"src/**", "/w/app-evil/src/a", RULE_FIT_NO, false},
        {"src", "/w/app/src/a", RULE_FIT_NO, false},
        {"src/", "/w/app/src/a", RULE_FIT_YES, true},
        {"**/.env", "/w/app/.env", RULE_FIT_YES, true},
        {"**/.env", "/other/.env", RULE_FIT_YES, false},
        {"**/.env", "/w/app/.env/x", RULE_FIT_NO, false},
        {"**/a/**/b", "/w/app/a/x/y/b", RULE_FIT_YES, true},
        {"**/a/**/b", "/w/app/a/b", RULE_FIT_YES, true},
        {"*.c", "/w/app/x.c", RULE_FIT_YES, true},
        {"*.c", "/w/app/d/x.c", RULE_FIT_NO, false},
        {"~/.ssh/**", "/home/me/.ssh/id", RULE_FIT_YES, true},
        {"/etc/*", "/etc/passwd", RULE_FIT_YES, true},
        {"**/.env", ".env", RULE_FIT_YES, false},
        {".git/**", "config", RULE_FIT_MAYBE, false},
        {".git/config", "config", RULE_FIT_YES, false},
        {".git/**", "/w/app/\001/config", RULE_FIT_MAYBE, false},
        {"**/.env", "/w/app/\001", RULE_FIT_MAYBE, false},
        {"**/.env", "/w/app/.e\002", RULE_FIT_YES, false},
        {"**/.env", "/w/app/\002", RULE_FIT_NO, false},
        {"**/x/**", "/w/app/\002", RULE_FIT_MAYBE, false},
    };
    struct fixture *f = *state;
    struct err e = {0};

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct rule_parts deny, allow;
        struct rule_path p = path(cases[i].path);

        unit_works(rule_path_compile(&f->set, cases[i].pattern, false, &deny, &e), e);
        unit_works(rule_path_compile(&f->set, cases[i].pattern, true, &allow, &e), e);
        if (rule_path_may(&deny, &p) != cases[i].deny ||
            rule_path_must(&allow, &p) != cases[i].allow)
            fail_msg("%s and %s: deny %d, allow %d", cases[i].pattern, cases[i].path,
                     (int)rule_path_may(&deny, &p), (int)rule_path_must(&allow, &p));
    }
}

static void test_subjects(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    const struct rule *r;

    unit_works(load(f, "allow net *.example.org:443 a.b\nallow model local\n", &e), e);
    r = f->set.rules;
    assert_true(rule_subject_fits(&r[0], "x.example.org:443"));
    assert_false(rule_subject_fits(&r[0], "x.example.org:80"));
    assert_false(rule_subject_fits(&r[0], "example.org.evil:443"));
    assert_true(rule_subject_fits(&r[1], "a.b:22"));
    assert_false(rule_subject_fits(&r[1], "a.b.c:22"));
    assert_true(rule_subject_fits(&r[2], "local"));
    assert_false(rule_subject_fits(&r[2], "localhost"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_rule_has_its_parts),
        TEST(test_errors_name_file_and_line),
        TEST(test_examples_belong_to_the_line_before),
        TEST(test_digest_tells_every_change),
        TEST(test_untrusted_allow_does_not_count),
        TEST(test_glob),
        TEST(test_paths_are_compared_by_component),
        TEST(test_subjects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
