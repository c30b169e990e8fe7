#include "bash_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define ARENA_MAX ((size_t)8 * 1024 * 1024)

static struct arena arena;

static int setup(void **state) {
    (void)state;
    arena_init(&arena, ARENA_MAX);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    arena_done(&arena);
    return 0;
}

static const struct bash_node *parse(const char *text) {
    struct bash_result r;

    arena_reset(&arena);
    if (bash_parse(&arena, text, strlen(text), &r) < 0)
        fail_msg("%s: %s at %zu", text, r.why, r.at);
    return r.tree;
}

static const char *refused(const char *text) {
    struct bash_result r;

    arena_reset(&arena);
    if (bash_parse(&arena, text, strlen(text), &r) == 0)
        fail_msg("%s: is understood", text);
    assert_null(r.tree);
    return r.why;
}

/* The words of a list, joined by "|"; marks as @ * ? ~. */
static const char *words(const struct bash_word *w) {
    static char out[2000];
    size_t n = 0;

    for (; w != NULL; w = w->next) {
        for (const char *p = w->text; *p != '\0'; p++)
            out[n++] = *p == BASH_MARK_ANY     ? '@'
                       : *p == BASH_MARK_STAR  ? '*'
                       : *p == BASH_MARK_ONE   ? '?'
                       : *p == BASH_MARK_TILDE ? '~'
                                               : *p;
        if (w->next != NULL)
            out[n++] = '|';
    }
    out[n] = '\0';
    return out;
}

static void test_words(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"a b  c\td", "a|b|c|d"},
        {"a'b c'd \"e f\" g\\ h", "ab cd|e f|g h"},
        {"'' \"\" x", "||x"},
        {"$'a\\x41\\101\\u0041\\n' $'it\\'s'", "aAAA\n|it's"},
        {"\"a\\b\\\"\\$\"", "a\\b\"$"},
        {"a\\\nb c\\\n d", "ab|c|d"},
        {"$x a$y ${z} \"$a\"b $1 $? $$", "@|a@|@|@b|@|@|@"},
        {"a$ $", "a$|$"},
        {"*.c a?b x[ab]y [ ]", "*.c|a?b|x?y|[|]"},
        {"x[[:alpha:]] x[a/b]", "x@|x@"},
        {"~ ~/x a~ '~' ~joe/x a=~/b", "~|~/x|a~|~|@/x|a=~/b"},
        {"{a,b}c x{1,{2,3}}y {} {a} a{b", "ac|bc|x1y|x2y|x3y|{}|{a}|a{b"},
        {"{1..3} '{a,b}' \\{a,b}", "@|{a,b}|{a,b}"},
        {"a#b '#'c #d", "a#b|#c"},
        {"a=b -x --y=z", "a=b|-x|--y=z"},
        {"x$(ls)y `ls` <(ls)", "x@y|@|@"},
        {"$((1+2)) ${#x} ${x:-y} ${x//a/b} ${x:1:2}", "@|@|@|@|@"},
        {"é ✓", "é|✓"},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        char text[200];

        snprintf(text, sizeof(text), "p %s", cases[i].text);
        assert_string_equal(words(parse(text)->words->next), cases[i].words);
    }
}

static void test_flags(void **state) {
    (void)state;
    const struct bash_word *w =
        parse("p $x \"$x\" a* 'a*' $((x)) ${x@P} $((1)) ${x:=y} ${x:-cmd}")->words->next;
    static const unsigned expected[] = {
        BASH_WORD_DYNAMIC | BASH_WORD_SPLIT,
        BASH_WORD_DYNAMIC | BASH_WORD_QUOTED,
        BASH_WORD_GLOB,
        BASH_WORD_QUOTED,
        BASH_WORD_DYNAMIC | BASH_WORD_SPLIT | BASH_WORD_RISKY,
        BASH_WORD_DYNAMIC | BASH_WORD_SPLIT | BASH_WORD_RISKY,
        BASH_WORD_DYNAMIC | BASH_WORD_SPLIT,
        BASH_WORD_DYNAMIC | BASH_WORD_SPLIT | BASH_WORD_RISKY,
        BASH_WORD_DYNAMIC | BASH_WORD_SPLIT,
    };

    for (size_t i = 0; i < UNIT_COUNT(expected); i++, w = w->next) {
        assert_non_null(w);
        assert_int_equal(w->flags, expected[i]);
        if (i == 8)
            assert_string_equal(w->alt, "cmd");
    }
    assert_null(w);
}

static void test_shape(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum bash_kind kind;
    } cases[] = {
        {"a", BASH_SIMPLE},
        {"a; b", BASH_SEQ},
        {"a\nb", BASH_SEQ},
        {"a &", BASH_ASYNC},
        {"a && b", BASH_AND},
        {"a && b || c", BASH_OR},
        {"a | b", BASH_PIPE},
        {"! a", BASH_NOT},
        {"! ! a", BASH_SIMPLE},
        {"{ a; }", BASH_GROUP},
        {"(a)", BASH_SUBSHELL},
        {"if a; then b; fi", BASH_IF},
        {"until a; do b; done", BASH_WHILE},
        {"for i in a; do b; done", BASH_FOR},
        {"for ((i=0;i<2;i++)); do b; done", BASH_FOR},
        {"select i; do b; done", BASH_FOR},
        {"case a in b) c;; esac", BASH_CASE},
        {"f() { a; }", BASH_FUNCTION},
        {"function f { a; }", BASH_FUNCTION},
        {"[[ a == b ]]", BASH_COND},
        {"((1))", BASH_ARITH},
        {"coproc a", BASH_ASYNC},
        {"time -p a", BASH_SIMPLE},
        {"X=1 if", BASH_SIMPLE},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        if (parse(cases[i].text)->kind != cases[i].kind)
            fail_msg("%s: kind %d", cases[i].text, (int)parse(cases[i].text)->kind);
    assert_null(parse(""));
    assert_null(parse(" \n\t# only this\n"));
}

static void test_redirections(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum bash_redir_op op;
        const char *word;
    } cases[] = {
        {"a <f", BASH_IN, "f"},        {"a 2>f", BASH_OUT, "f"},
        {"a >>f", BASH_OUT, "f"},      {"a >|f", BASH_OUT, "f"},
        {"a &>f", BASH_OUT, "f"},      {"a &>>f", BASH_OUT, "f"},
        {"a >&f", BASH_OUT, "f"},      {"a <>f", BASH_BOTH, "f"},
        {"a 2>&1", BASH_DUP, "1"},     {"a <&3-", BASH_DUP, "3-"},
        {"a >&-", BASH_DUP, "-"},      {"a <<<x", BASH_HERE_STRING, "x"},
        {"a <<E\nE", BASH_HERE, "E"},  {"a {v}>f", BASH_OUT, "f"},
        {">f", BASH_OUT, "f"},         {"{ a; } >f", BASH_OUT, "f"},
        {"a >'f g'", BASH_OUT, "f g"}, {"a 3<&$x", BASH_BOTH, "@"},
        {"(a) <f", BASH_IN, "f"},      {"if a; then b; fi >f", BASH_OUT, "f"},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        const struct bash_redir *r = parse(cases[i].text)->redirs;

        assert_non_null(r);
        assert_int_equal(r->op, cases[i].op);
        assert_string_equal(words(r->word), cases[i].word);
        assert_int_equal(r->var, strchr(cases[i].text, 'v') != NULL);
    }
}

static void test_here_documents(void **state) {
    (void)state;
    const struct bash_node *n = parse("a <<E <<'F'; b\n$(c)\nE\n$(d)\nF\ne");
    const struct bash_node *a = n->a;

    assert_string_equal(words(a->words), "a");
    assert_non_null(a->redirs->word->subs);
    assert_string_equal(words(a->redirs->word->subs->a->words), "c");
    assert_null(a->redirs->next->word->subs);
    assert_string_equal(words(a->next->words), "b");
    assert_string_equal(words(a->next->next->words), "e");
    n = parse("a <<-E\n\tx\n\tE\nb");
    assert_string_equal(words(n->a->next->words), "b");
    n = parse("a \"$(b <<E\nx\nE\n)\"");
    assert_string_equal(words(n->words->next->subs->a->words), "b");
}

static void test_substitutions(void **state) {
    (void)state;
    static const char *const cases[] = {
        "p $(q)", "p \"$(q)\"", "p `q`",         "p \"`q`\"",        "p ${x:-$(q)}", "p ${x#`q`}",
        "p <(q)", "p >(q)",     "p $(( $(q) ))", "p ${a[$(q)]}",     "p x$(q)y",     "p {a,$(q)}",
        "x=$(q)", "x=(a $(q))", "p ${x:$(q)}",   "p \"${x:-$(q)}\"",
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        const struct bash_node *n = parse(cases[i]), *sub = NULL;

        for (const struct bash_word *w = n->assigns; w != NULL; w = w->next)
            sub = sub != NULL ? sub : w->subs;
        for (const struct bash_word *w = n->words; w != NULL; w = w->next)
            sub = sub != NULL ? sub : w->subs;
        if (sub == NULL)
            fail_msg("%s: nothing found in it", cases[i]);
        assert_int_equal(sub->kind, BASH_SUBSHELL);
        assert_string_equal(words(sub->a->words), "q");
    }
}

static void test_assignments(void **state) {
    (void)state;
    const struct bash_node *n = parse("A=1 B+='x y' c[2]=d e A=2");

    assert_string_equal(words(n->assigns), "A=1|B+=x y|c?=d");
    assert_int_equal(n->assigns->name_len, 1);
    assert_int_equal(n->assigns->flags, 0);
    assert_int_equal(n->assigns->next->next->flags & (unsigned)BASH_WORD_RISKY, BASH_WORD_RISKY);
    assert_string_equal(words(n->words), "e|A=2");
    n = parse("declare -a x=(1 2) y");
    assert_string_equal(words(n->words), "declare|-a|x=@|y");
    n = parse("a=(1\n2 # three\n'4')");
    assert_null(n->words);
    assert_int_equal(n->assigns->flags & (unsigned)BASH_WORD_RISKY, BASH_WORD_RISKY);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "a &&",
        "a |",
        "| a",
        "a ; ; b",
        "a )",
        "(a",
        "()",
        "{ }",
        "{ a }",
        "if a; then fi",
        "a '",
        "a \"",
        "a `",
        "a $(",
        "a ${",
        "a ${x",
        "a ${x!y}",
        "a $[1]",
        "a \\",
        "a <",
        "a > > b",
        "a <<E",
        "a <<E\nx",
        "a | ! b",
        "for i ; in a; do b; done",
        "case a b) c;; esac",
        "case a in b) c; ;",
        "case a in b) c; ;d;; esac",
        "f() a",
        "a (b)",
        "a b (c)",
        "a;;b",
        "then",
        "a <2>f",
        "[[ a b ]]",
        "[[ a",
        "[[ -f ]]",
        "((1)",
        "$((1)",
        "a +(b)",
        "{a,b",
        "x[1 2]=3 a",
        "a $'\\cx'",
        "a $'\\x00'",
        "a\rb",
        "a\x01",
        "a \xff",
        "a \xc0\xaf",
        "a \xe2\x80\x8b",
        "th\\\nen a",
        "wh\\\nile a; do b; done",
        "a $(( $(case x in x) b;; esac) ))",
        "time -f a b",
        "coproc x { a; }",
        "\"${x:-'}'}\"",
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        if (strcmp(cases[i], "{a,b") == 0)
            continue; /* a word with a brace: bash takes it as it is */
        assert_non_null(refused(cases[i]));
    }
}

static void test_bounds(void **state) {
    (void)state;
    char *text = malloc(BASH_TEXT_MAX + 2);
    struct bash_result r;

    memset(text, 'a', BASH_TEXT_MAX + 1);
    assert_int_equal(bash_parse(&arena, text, BASH_TEXT_MAX, &r), 0);
    assert_int_equal(bash_parse(&arena, text, BASH_TEXT_MAX + 1, &r), -1);
    memset(text, '(', 4000);
    assert_int_equal(bash_parse(&arena, text, 4000, &r), -1);
    assert_string_equal(r.why, "it is nested too deeply");
    for (size_t i = 0; i < 8000; i++)
        text[i] = i % 2 == 0 ? 'a' : ';';
    assert_int_equal(bash_parse(&arena, text, 2 * BASH_COMMANDS_MAX, &r), 0);
    assert_int_equal(bash_parse(&arena, text, 2 * BASH_COMMANDS_MAX + 2, &r), -1);
    assert_string_equal(r.why, "it has too many commands");
    assert_string_equal(refused("p {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"),
                        "braces that stand for too many words");
    free(text);
}

static void test_small_arena(void **state) {
    (void)state;
    struct arena small;
    struct bash_result r;
    static const char text[] = "for i in a b; do echo \"$(ls)\" {a,b} <<E\nx\nE\ndone";
    int ok = 0;

    for (size_t max = 0; max < 8192; max += 64) {
        arena_init(&small, max);
        ok += bash_parse(&small, text, sizeof(text) - 1, &r) == 0;
        assert_true(r.why == NULL || strcmp(r.why, "it is too large") == 0);
        arena_done(&small);
    }
    assert_true(ok > 0);
}

static void test_visible(void **state) {
    (void)state;
    size_t at = 0;

    assert_null(bash_visible("a\n\té🐑", 9, &at));
    assert_non_null(bash_visible("a\0b", 3, &at));
    assert_int_equal(at, 1);
    assert_non_null(bash_visible("\x7f", 1, &at));
    assert_non_null(bash_visible("\xc2\x85", 2, &at));
    assert_non_null(bash_visible("\xe2\x80\xae", 3, &at));
    assert_non_null(bash_visible("\xf3\xa0\x80\x81", 4, &at));
    assert_non_null(bash_visible("\xed\xa0\x80", 3, &at));
    assert_non_null(bash_visible("\xf0\x9f\x90", 3, &at));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_words),        TEST(test_flags),          TEST(test_shape),
        TEST(test_redirections), TEST(test_here_documents), TEST(test_substitutions),
        TEST(test_assignments),  TEST(test_refused),        TEST(test_bounds),
        TEST(test_small_arena),  TEST(test_visible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
