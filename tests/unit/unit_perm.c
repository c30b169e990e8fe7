/* The engine by vectors: tests/permission/NAME.tsv, one command with its right verdict a line.
 *
 * In adversarial.tsv some characters stand for others: "⏎" newline, "␍" carriage return, "␀" NUL,
 * "␉" tab, "‹hex›" the character with this code, "×N«text»" the text N times. */
#include "perm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define WORKSPACE "/work/app"
#define HOME "/home/dev"
#define TEXT_MAX ((size_t)256 * 1024)

struct fixture {
    struct rule_set rules;
    struct perm perm;
};

/* The links of the workspace, so that no test depends on a file system. */
static int links(void *arg, const char *path, char *out, size_t size) {
    static const char *const list[][2] = {
        {"/work/app/innocent", "/work/app/.env"},
        {"/work/app/hooks", "/work/app/.git/hooks"},
        {"/work/app/outside", "/etc"},
        {"/work/app/src/inside", "/work/app/src/a"},
    };
    char flat[4096], *up;

    (void)arg;
    snprintf(flat, sizeof(flat), "%s", path);
    while ((up = strstr(flat, "/../")) != NULL) {
        char *before = up;

        while (before > flat && before[-1] != '/')
            before--;
        memmove(before, up + 4, strlen(up + 4) + 1);
    }
    path = flat;
    if (strstr(path, "/loop") != NULL)
        return -1;
    for (size_t i = 0; i < UNIT_COUNT(list); i++) {
        size_t n = strlen(list[i][0]);

        if (strncmp(path, list[i][0], n) == 0 && (path[n] == '/' || path[n] == '\0')) {
            snprintf(out, size, "%s%s", list[i][1], path + n);
            return 0;
        }
    }
    snprintf(out, size, "%s", path);
    return 0;
}

static char *slurp(const char *name, size_t *len) {
    char path[200];
    FILE *file;
    char *text = malloc(TEXT_MAX);

    snprintf(path, sizeof(path), "tests/permission/%s", name);
    file = fopen(path, "re");
    if (file == NULL || text == NULL)
        fail_msg("cannot read %s; the tests run in the root of the project", path);
    *len = fread(text, 1, TEXT_MAX - 1, file);
    text[*len] = '\0';
    fclose(file);
    return text;
}

static void fixture_load(struct fixture *f, const char *text, size_t len, bool headless) {
    struct perm_config config = {.resolve = links, .headless = headless};
    struct err e = {0};

    unit_works(rule_set_init(&f->rules, WORKSPACE, HOME, &e), e);
    unit_works(rule_load_guard(&f->rules, HOME "/.config/pinfold", HOME "/.state", &e), e);
    unit_works(rule_load(&f->rules, RULE_USER, true, "test.rules", text, len, &e), e);
    unit_works(rule_load_default(&f->rules, &e), e);
    unit_works(perm_init(&f->perm, &f->rules, &config, &e), e);
    unit_works(perm_check_examples(&f->perm, &e), e);
}

static void fixture_file(struct fixture *f, const char *name, bool headless) {
    size_t len;
    char *text = slurp(name, &len);

    fixture_load(f, text, len, headless);
    free(text);
}

static void fixture_done(struct fixture *f) {
    perm_done(&f->perm);
    rule_set_done(&f->rules);
}

static size_t put(char *out, size_t n, const char *text, size_t len) {
    assert_true(n + len < TEXT_MAX);
    memcpy(out + n, text, len);
    return n + len;
}

static size_t put_code(char *out, size_t n, unsigned long c) {
    unsigned char b[4];
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = len; i-- > 1; c >>= 6)
        b[i] = (unsigned char)(0x80 | (c & 0x3f));
    b[0] = (unsigned char)(len == 1 ? c : (0xf00u >> len & 0xffu) | c);
    return put(out, n, (const char *)b, len);
}

/* Copies `text` with the characters that stand for others replaced. */
static size_t unfold(const char *text, char *out) {
    static const char *const marks[][2] = {{"⏎", "\n"}, {"␍", "\r"}, {"␉", "\t"}};
    size_t n = 0;

    while (*text != '\0') {
        const char *before = text;

        for (size_t i = 0; i < UNIT_COUNT(marks); i++)
            if (strncmp(text, marks[i][0], strlen(marks[i][0])) == 0) {
                n = put(out, n, marks[i][1], 1);
                text += strlen(marks[i][0]);
            }
        if (strncmp(text, "␀", 3) == 0) {
            n = put(out, n, "", 1);
            text += 3;
        } else if (strncmp(text, "‹", 3) == 0) {
            char *end;

            n = put_code(out, n, strtoul(text + 3, &end, 16));
            text = end + 3;
        } else if (strncmp(text, "×", 2) == 0) {
            char *open;
            unsigned long times = strtoul(text + 2, &open, 10);
            const char *from = open + 2, *close = strstr(from, "»");

            assert_non_null(close);
            while (times-- > 0)
                n = put(out, n, from, (size_t)(close - from));
            text = close + 2;
        }
        if (text == before)
            n = put(out, n, text++, 1);
    }
    return n;
}

/* What the words of the public list stand for. */
static size_t spell(const char *id, const char *text, char *out) {
    size_t n = 0;

    if (strcmp(id, "v061") == 0)
        return put(out, 0, "PATH=/tmp/evil:$PATH cat <<EOF\nx\nEOF\n", 37);
    if (strcmp(id, "v065") == 0)
        return put(out, 0, "cat <<'EOF' > F\nx\nEOF\n", 22);
    if (strcmp(id, "v102") == 0)
        return put(out, 0, "git commit -m \"$(cat <<'EOF'\nit's \"x\" `y`\nEOF\n)\"", 48);
    if (strcmp(id, "v105") == 0) {
        for (size_t i = 0; i < 60; i++)
            n = put(out, n, "true;", 5);
        return put(out, n, "curl http://x", 13);
    }
    if (strcmp(id, "v106") == 0) {
        n = put(out, n, "echo ", 5);
        while (n < (size_t)11 * 1024)
            n = put(out, n, "a", 1);
        return put(out, n, " ; curl x", 9);
    }
    if (strcmp(id, "v108") == 0)
        return put(out, 0, "ls\rcurl x", 9);
    return strcmp(id, "v126") == 0 ? 0 : unfold(text, out);
}

static const char *said(const struct perm_verdict *v) {
    return v->empty ? "error" : rule_verdict_name(v->verdict);
}

/* "deny-or-ask" is either. */
static bool fits(const char *expected, const char *verdict) {
    const char *at = strstr(expected, verdict);

    return at != NULL && strcmp(verdict, "allow") != 0 ? true : strcmp(expected, verdict) == 0;
}

/* The tab before the field that is a verdict. */
static char *verdict_field(char *command) {
    static const char *const names[] = {"allow", "ask", "deny", "error", "deny-or-ask"};

    for (char *tab = strchr(command, '\t'); tab != NULL; tab = strchr(tab + 1, '\t'))
        for (size_t i = 0; i < UNIT_COUNT(names); i++) {
            size_t n = strlen(names[i]);

            if (strncmp(tab + 1, names[i], n) == 0 && strchr("\t\n", tab[n + 1]) != NULL)
                return tab;
        }
    return NULL;
}

static void vectors(const char *file, struct fixture *f, bool public, size_t least) {
    size_t len, count = 0, wrong = 0;
    char *text = slurp(file, &len), *save = NULL, *out = malloc(TEXT_MAX);
    char both[] = "deny-or-ask"; /* "deny acceptable", says the list */

    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *command = strchr(line, '\t'), *expected;
        size_t n;
        const struct perm_verdict *v;

        if (line[0] == '#' || command == NULL)
            continue;
        *command++ = '\0';
        /* A command may hold tabs. */
        expected = verdict_field(command);
        if (expected == NULL)
            fail_msg("%s: %s has no verdict", file, line);
        *expected++ = '\0';
        expected[strcspn(expected, "\t")] = '\0';
        if (public && strcmp(line, "v014") == 0)
            expected = both;
        n = public ? spell(line, command, out) : unfold(command, out);
        out[n] = '\0';
        v = perm_judge(&f->perm, out, n);
        count++;
        if (!fits(expected, said(v))) {
            wrong++;
            print_message("# %s: %s: %s, not %s (%s; %s)\n", line, command, said(v), expected,
                          v->why, v->rule != NULL ? v->rule->text : "no rule");
        }
    }
    free(text);
    free(out);
    if (wrong > 0 || count < least)
        fail_msg("%s: %zu of %zu verdicts are wrong", file, wrong, count);
}

static void test_public_vectors(void **state) {
    struct fixture f;

    (void)state;
    fixture_file(&f, "P0.rules", false);
    vectors("vectors.tsv", &f, true, 100);
    fixture_done(&f);
}

static void test_adversarial_vectors(void **state) {
    struct fixture f;

    (void)state;
    fixture_file(&f, "adversarial.rules", false);
    vectors("adversarial.tsv", &f, false, 150);
    fixture_done(&f);
}

static int rank(const struct perm_verdict *v) {
    return v->verdict == RULE_ALLOW ? 0 : v->verdict == RULE_ASK ? 1 : 2;
}

/* With so little memory that the first, the second, … piece of it is missing. -> how often the
 * verdict was less strict than with enough. */
static size_t wider(struct perm *p, const char *text, size_t len) {
    const size_t enough = p->arena.max;
    const struct perm_verdict *v = perm_judge(p, text, len);
    const int full = rank(v);
    const bool argv = v->argv != NULL;
    const size_t used = p->arena.total;
    size_t wrong = 0;

    for (p->arena.max = 0; p->arena.max < used; p->arena.max += 16) {
        v = perm_judge(p, text, len);
        wrong += rank(v) < full || (rank(v) < 2 && argv != (v->argv != NULL));
    }
    p->arena.max = enough;
    return wrong;
}

static void test_without_memory_nothing_becomes_wider(void **state) {
    static const char *const more[] = {"/usr/bin/curl x", "${x:-curl} x", "cat a:b",
                                       "tar -C .env:x -f y", "docker run -v .env:/x i"};
    char *text, *line, *at, *command = NULL, *out = malloc(TEXT_MAX);
    struct fixture f;
    size_t len, wrong = 0;

    (void)state;
    fixture_file(&f, "P0.rules", false);
    text = slurp("vectors.tsv", &len);
    assert_non_null(out);
    for (line = strtok_r(text, "\n", &at); line != NULL; line = strtok_r(NULL, "\n", &at)) {
        char *field = line;
        if (*line == '#' || strsep(&field, "\t") == NULL ||
            (command = strsep(&field, "\t")) == NULL)
            continue;
        if (strlen(command) > 2000)
            continue;
        len = unfold(command, out);
        size_t found = wider(&f.perm, out, len);
        if (found > 0)
            print_message("# %s: wider %zu times\n", command, found);
        wrong += found;
    }
    for (size_t i = 0; i < UNIT_COUNT(more); i++)
        wrong += wider(&f.perm, more[i], strlen(more[i]));
    for (f.perm.arena.max = 0; f.perm.arena.max < 4096; f.perm.arena.max += 16) {
        assert_int_equal(perm_judge_path(&f.perm, RULE_READ, "/work/app/.env")->verdict, RULE_DENY);
        assert_int_not_equal(perm_judge_subject(&f.perm, RULE_MODEL, "local")->verdict, RULE_ALLOW);
    }
    free(text);
    free(out);
    assert_int_equal(wrong, 0);
    fixture_done(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_vectors),
        cmocka_unit_test(test_adversarial_vectors),
        cmocka_unit_test(test_without_memory_nothing_becomes_wider),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
