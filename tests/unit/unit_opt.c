#include "opt.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

struct values {
    bool verbose, quick;
    const char *name;
    uint64_t count, bytes, ms;
    struct opt_list env;
};

#define ROWS 8

static void fill_table(struct values *v, struct opt table[ROWS]) {
    *v = (struct values){0};
    const struct opt rows[ROWS] = {
        {"verbose", 'v', NULL, OPT_FLAG, &v->verbose, 0, 0, "say more"},
        {"quick", 'q', NULL, OPT_FLAG, &v->quick, 0, 0, NULL},
        {"name", 'n', "NAME", OPT_STRING, &v->name, 0, 0, "a name"},
        {"count", 0, "N", OPT_U64, &v->count, 2, 9, "how many"},
        {"mem", 0, "SIZE", OPT_BYTES, &v->bytes, 0, 0, "memory"},
        {"wall", 0, "TIME", OPT_DURATION, &v->ms, 0, 0, "time"},
        {"env", 'e', "K=V", OPT_LIST, &v->env, 0, 0, "a variable"},
        {0},
    };
    memcpy(table, rows, sizeof(rows));
}

/* Parses the words of `line`, which must stay for as long as the values are used. */
static int parse(struct values *v, char *line, struct opt_result *result, struct err *err) {
    struct opt table[ROWS];
    char *argv[64] = {"program"};
    int argc = 1;
    char *more = NULL;
    for (char *word = strtok_r(line, " ", &more); word; word = strtok_r(NULL, " ", &more))
        argv[argc++] = word;
    fill_table(v, table);
    return opt_parse(table, argc, argv, result, err);
}

static void test_every_type(void **state) {
    (void)state;
    char line[] = "--verbose --name=x=y --count 9 --mem 64k --wall=1500ms --env A=1 --env=B=2 rest";
    struct values v;
    struct opt_result r;
    struct err err = {0};
    unit_works(parse(&v, line, &r, &err), err);
    assert_true(v.verbose && !v.quick);
    assert_string_equal(v.name, "x=y");
    assert_int_equal(v.count, 9);
    assert_int_equal(v.bytes, 65536);
    assert_int_equal(v.ms, 1500);
    assert_int_equal(v.env.count, 2);
    assert_string_equal(v.env.item[1], "B=2");
    assert_int_equal(r.rest, 11);
    assert_false(r.dashes || r.help);
}

static void test_letters(void **state) {
    (void)state;
    char line[] = "-vq -n one -eA=1 -e B=2";
    struct values v;
    struct opt_result r;
    struct err err = {0};
    unit_works(parse(&v, line, &r, &err), err);
    assert_true(v.verbose && v.quick);
    assert_string_equal(v.name, "one");
    assert_int_equal(v.env.count, 2);
    assert_string_equal(v.env.item[0], "A=1");
    assert_int_equal(r.rest, 7);
}

static void test_where_operands_begin(void **state) {
    (void)state;
    struct values v;
    struct opt_result r;
    struct err err = {0};
    char dashes[] = "-v -- --name x";
    unit_works(parse(&v, dashes, &r, &err), err);
    assert_true(r.dashes);
    assert_int_equal(r.rest, 3);
    assert_null(v.name);
    char operand[] = "word --name x";
    unit_works(parse(&v, operand, &r, &err), err);
    assert_int_equal(r.rest, 1);
    assert_false(r.dashes);
    char hyphen[] = "-v - -q";
    unit_works(parse(&v, hyphen, &r, &err), err);
    assert_int_equal(r.rest, 2);
    char none[] = "";
    unit_works(parse(&v, none, &r, &err), err);
    assert_int_equal(r.rest, 1);
    char last[] = "--";
    unit_works(parse(&v, last, &r, &err), err);
    assert_int_equal(r.rest, 2);
    assert_true(r.dashes);
}

static void test_help_is_everywhere(void **state) {
    (void)state;
    static const char *const lines[] = {"--help", "-h", "-v --help --nonsense", "-vh"};
    for (size_t i = 0; i < UNIT_COUNT(lines); i++) {
        char line[64];
        struct values v;
        struct opt_result r;
        struct err err = {0};
        strncpy(line, lines[i], sizeof(line) - 1);
        line[sizeof(line) - 1] = '\0';
        unit_works(parse(&v, line, &r, &err), err);
        assert_true(r.help);
    }
}

static void test_wrong_input(void **state) {
    (void)state;
    static const char *const lines[] = {
        "--nonsense",    "--nam x",  "--names x", "-x",         "--verbose=1",
        "--name",        "-n",       "--count 1", "--count 10", "--count nine",
        "--count=",      "--mem 1q", "--wall 1d", "-v -v",      "-v --verbose",
        "-n a --name b", "--help=1", "---name x", "--=x",
    };
    for (size_t i = 0; i < UNIT_COUNT(lines); i++) {
        char line[64];
        struct values v;
        struct opt_result r = {.rest = 77};
        struct err err = {0};
        strncpy(line, lines[i], sizeof(line) - 1);
        line[sizeof(line) - 1] = '\0';
        unit_fails(parse(&v, line, &r, &err), err, ERR_INVALID);
        assert_int_equal(r.rest, 77);
    }
}

static void test_hostile_names_are_escaped(void **state) {
    (void)state;
    char line[] = "--\x1b[2J\x07";
    struct values v;
    struct opt_result r;
    struct err err = {0};
    unit_fails(parse(&v, line, &r, &err), err, ERR_INVALID);
    assert_null(strchr(err.text, '\x1b'));
}

static void test_lists_are_bounded(void **state) {
    (void)state;
    char *argv[1 + 2 * (OPT_LIST_MAX + 1)] = {"program"};
    for (size_t i = 1; i < UNIT_COUNT(argv); i += 2) {
        argv[i] = "--env";
        argv[i + 1] = "A=1";
    }
    struct values v;
    struct opt table[ROWS];
    struct opt_result r;
    struct err err = {0};
    fill_table(&v, table);
    unit_works(opt_parse(table, 1 + 2 * OPT_LIST_MAX, argv, &r, &err), err);
    assert_int_equal(v.env.count, OPT_LIST_MAX);
    fill_table(&v, table);
    unit_fails(opt_parse(table, 1 + 2 * (OPT_LIST_MAX + 1), argv, &r, &err), err, ERR_INVALID);
}

static void test_help_text(void **state) {
    (void)state;
    struct values v;
    struct opt table[ROWS];
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fill_table(&v, table);
    opt_help(out, "program [options]", "Does it.", table);
    fclose(out);
    assert_string_equal(text, "program [options]\n"
                              "\n"
                              "Does it.\n"
                              "\n"
                              "Options:\n"
                              "  -v, --verbose    say more\n"
                              "  -q, --quick\n"
                              "  -n, --name NAME  a name\n"
                              "      --count N    how many\n"
                              "      --mem SIZE   memory\n"
                              "      --wall TIME  time\n"
                              "  -e, --env K=V    a variable\n"
                              "  -h, --help       show this and exit\n");
    free(text);
}

static void test_help_is_wrapped(void **state) {
    (void)state;
    bool flag = false;
    char word[121];
    memset(word, 'w', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    const struct opt table[] = {
        {"exact", 0, NULL, OPT_FLAG, &flag, 0, 0,
         "what fills the line up to its last column, and has nothing behind it: it stays whole."},
        {"more", 0, NULL, OPT_FLAG, &flag, 0, 0,
         "what is longer than the line, so that the word at its end stands in the next one: here"},
        {"word", 0, NULL, OPT_FLAG, &flag, 0, 0, word},
        {0},
    };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    opt_help(out, "program", "Does it.", table);
    fclose(out);
    assert_non_null(strstr(text, "\n      --exact  what fills the line up to its last column, and "
                                 "has nothing behind it: it stays whole.\n"));
    assert_non_null(strstr(text, "\n      --more   what is longer than the line, so that the word "
                                 "at its end stands in the next one:\n               here\n"));
    assert_non_null(strstr(text, word)); /* nowhere to break it: whole */
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_where_operands_begin),
        cmocka_unit_test(test_help_is_everywhere),
        cmocka_unit_test(test_wrong_input),
        cmocka_unit_test(test_hostile_names_are_escaped),
        cmocka_unit_test(test_lists_are_bounded),
        cmocka_unit_test(test_help_text),
        cmocka_unit_test(test_help_is_wrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
