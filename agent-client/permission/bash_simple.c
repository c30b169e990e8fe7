/* Simple commands, redirections, assignments, and the definition of a function by name(). */
#include "bash_lex.h"

#include <string.h>

/* The operators, longest first. */
static const struct {
    const char *text;
    enum bash_redir_op op;
} bash_simple_ops[] = {
    {"&>>", BASH_OUT}, {"<<<", BASH_HERE_STRING}, {"<<-", BASH_HERE}, {"&>", BASH_OUT},
    {"<<", BASH_HERE}, {"<>", BASH_BOTH},         {"<&", BASH_DUP},   {">>", BASH_OUT},
    {">|", BASH_OUT},  {">&", BASH_DUP},          {"<", BASH_IN},     {">", BASH_OUT},
};
#define BASH_SIMPLE_OPS (sizeof(bash_simple_ops) / sizeof(bash_simple_ops[0]))

/* What stands before an operator: digits, or {name}. Its length; 0 = nothing. */
static size_t bash_simple_prefix(const struct bash_state *st) {
    size_t n = 0;

    if (bash_lex_at(st, 0) == '{') {
        for (n = 1; bash_lex_is_name_char(bash_lex_at(st, n));)
            n++;
        if (n == 1 || bash_lex_at(st, n) != '}')
            return 0;
        n++;
    } else {
        while (bash_lex_at(st, n) >= '0' && bash_lex_at(st, n) <= '9')
            n++;
    }
    return bash_lex_at(st, n) == '<' || bash_lex_at(st, n) == '>' ? n : 0;
}

/* Which operator is at pos + n; BASH_SIMPLE_OPS when none. */
static size_t bash_simple_op(const struct bash_state *st, size_t n) {
    size_t i = 0, rest = st->len - st->pos - n;

    for (; i < BASH_SIMPLE_OPS; i++) {
        size_t len = strlen(bash_simple_ops[i].text);

        if (len <= rest && memcmp(st->s + st->pos + n, bash_simple_ops[i].text, len) == 0)
            break;
    }
    return i;
}

/* ">&2", "<&-", "2>&1-": a descriptor, not a file. */
static bool bash_simple_is_fd(const struct bash_word *w) {
    size_t n = 0;

    while (n < w->len && w->text[n] >= '0' && w->text[n] <= '9')
        n++;
    return w->len > 0 && (n == w->len || (n == w->len - 1 && w->text[n] == '-'));
}

static int bash_simple_target(struct bash_state *st, struct bash_redir *r, size_t op) {
    const char *text = bash_simple_ops[op].text;

    bash_lex_blank(st);
    /* "-" behind ">&" is a token of its own: in ">&-curl x", bash runs curl. */
    if (r->op == BASH_DUP && bash_lex_at(st, 0) == '-') {
        struct bash_build b = {0};

        bash_build_byte(st, &b, '-');
        st->pos++;
        r->word = bash_build_end(st, &b);
        return r->word == NULL ? -1 : 0;
    }
    r->word = bash_word_read(st);
    if (r->word == NULL)
        return -1;
    if (r->op == BASH_HERE) {
        struct bash_word *end = r->word;

        r->word = arena_get(st->arena, sizeof(*r->word));
        if (r->word == NULL)
            return bash_lex_fail(st, "it is too large");
        r->word->text = end->text;
        r->word->len = end->len;
        return bash_here_add(st, end, text[2] == '-', r->word);
    }
    if (bash_brace_there(r->word) && r->op != BASH_HERE_STRING)
        return bash_lex_fail(st, "braces in the name of a file");
    bash_brace_keep(r->word);
    if (r->op == BASH_DUP && !bash_simple_is_fd(r->word))
        r->op = text[0] == '>' ? BASH_OUT : BASH_BOTH;
    return 0;
}

int bash_simple_redir(struct bash_state *st, struct bash_redir ***link) {
    size_t n = bash_simple_prefix(st), op = bash_simple_op(st, n);
    char next;
    struct bash_redir *r;

    if (op == BASH_SIMPLE_OPS)
        return 0;
    next = bash_lex_at(st, n + 1);
    if (next == '(' && strlen(bash_simple_ops[op].text) == 1)
        return n == 0 ? 0 : bash_lex_fail(st, "a number before a process substitution");
    r = arena_get(st->arena, sizeof(*r));
    if (r == NULL)
        return bash_lex_fail(st, "it is too large");
    r->op = bash_simple_ops[op].op;
    r->var = bash_lex_at(st, 0) == '{';
    if (r->var && !bash_lex_is_name(st->s + st->pos + 1, n - 2))
        return bash_lex_fail(st, "a name is missing");
    if (bash_lex_operator(st, n + strlen(bash_simple_ops[op].text)) < 0 ||
        bash_simple_target(st, r, op) < 0)
        return -1;
    **link = r;
    *link = &r->next;
    return 1;
}

/* Is an assignment next? The length of its name; *array: "name=(" . */
static size_t bash_simple_assign(struct bash_state *st, bool *array, bool *unsure) {
    size_t n = 0, end;

    *array = *unsure = false;
    while (bash_lex_is_name_char(bash_lex_at(st, n)))
        n++;
    if (n == 0 || !bash_lex_is_name(st->s + st->pos, n))
        return 0;
    end = n;
    if (bash_lex_at(st, n) == '[') {
        for (end++; bash_lex_is_name_char(bash_lex_at(st, end));)
            end++;
        /* Any other subscript may hold blanks and quotes of its own. */
        *unsure = bash_lex_at(st, end) != ']';
        if (*unsure)
            return 0;
        end++;
    }
    end += bash_lex_at(st, end) == '+' && bash_lex_at(st, end + 1) == '=';
    if (bash_lex_at(st, end) != '=')
        return 0;
    *array = bash_lex_at(st, end + 1) == '(';
    return n;
}

/* name=( words ), as one word: its elements are unknown text, what they run is kept. */
static struct bash_word *bash_simple_array(struct bash_state *st, size_t name_len) {
    struct bash_build b = {0};
    struct bash_word *w;

    while (bash_lex_at(st, 0) != '(')
        bash_build_byte(st, &b, st->s[st->pos++]);
    st->pos++;
    bash_build_any(st, &b, BASH_WORD_RISKY);
    for (;;) {
        if (bash_lex_lines(st) < 0)
            return NULL;
        if (bash_lex_at(st, 0) == ')')
            break;
        w = bash_word_read(st);
        if (w == NULL)
            return NULL;
        for (struct bash_node *sub = w->subs, *next; sub != NULL; sub = next) {
            next = sub->next;
            sub->next = NULL;
            bash_build_sub(&b, sub);
        }
    }
    st->pos++;
    if (st->pos < st->len && !bash_lex_is_meta(st->s[st->pos])) {
        bash_lex_fail(st, "something right behind an array");
        return NULL;
    }
    w = bash_build_end(st, &b);
    if (w != NULL)
        w->name_len = name_len;
    return w;
}

static bool bash_simple_declares(const struct bash_node *n) {
    static const char *const names[] = {"declare", "typeset", "local", "export", "readonly"};

    for (size_t i = 0; n->words != NULL && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(n->words->text, names[i]) == 0)
            return true;
    return false;
}

struct bash_simple {
    struct bash_node *node;
    struct bash_word **assigns, **words;
    struct bash_redir **redirs;
};

static int bash_simple_word(struct bash_state *st, struct bash_simple *s) {
    struct bash_node *n = s->node;
    bool array = false, unsure = false, first = n->words == NULL;
    size_t name = first || bash_simple_declares(n) ? bash_simple_assign(st, &array, &unsure) : 0;
    struct bash_word ***link = first ? &s->assigns : &s->words;

    if (unsure)
        return bash_lex_fail(st, "a subscript that is not understood");
    if (name > 0 && (array || first)) {
        **link = array ? bash_simple_array(st, name) : bash_word_read(st);
        if (**link == NULL)
            return -1;
        bash_brace_keep(**link);
        (**link)->name_len = name;
        /* A subscript is arithmetic. */
        if (strchr("=+", (**link)->text[name]) == NULL)
            (**link)->flags |= BASH_WORD_RISKY;
        *link = &(**link)->next;
        return 0;
    }
    s->words = bash_word_expand(st, s->words);
    return s->words == NULL ? -1 : 0;
}

/* A word that became a reserved one when its lines were joined. */
static int bash_simple_check(struct bash_state *st, const struct bash_word *w) {
    static const char *const reserved[] = {
        "if",  "then", "else",   "elif", "fi", "do", "done",     "case",   "esac", "while", "until",
        "for", "in",   "select", "time", "{",  "}",  "function", "coproc", "!",    "[["};

    if (w == NULL || (w->flags & (unsigned)BASH_WORD_JOINED) == 0)
        return 0;
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (strcmp(w->text, reserved[i]) == 0)
            return bash_lex_fail(st, "a reserved word on two lines");
    return 0;
}

/* name () compound */
static struct bash_node *bash_simple_function(struct bash_state *st, struct bash_node *n) {
    struct bash_word *name = n->words;

    if (name == NULL || name->next != NULL || n->assigns != NULL || n->redirs != NULL ||
        !bash_lex_is_name(name->text, name->len) || name->flags != 0) {
        bash_lex_fail(st, "a bracket that cannot stand there");
        return NULL;
    }
    st->pos++;
    bash_lex_blank(st);
    if (bash_lex_at(st, 0) != ')') {
        bash_lex_fail(st, "a bracket that cannot stand there");
        return NULL;
    }
    st->pos++;
    if (bash_lex_lines(st) < 0)
        return NULL;
    n->kind = BASH_FUNCTION;
    n->name = name->text;
    n->words = NULL;
    n->a = bash_command_starts(st) && !bash_command_is(st, "function") ? bash_command(st) : NULL;
    if (n->a == NULL || n->a->kind == BASH_SIMPLE || n->a->kind == BASH_FUNCTION ||
        n->a->kind == BASH_ASYNC) {
        bash_lex_fail(st, "a function has no body");
        return NULL;
    }
    return n;
}

struct bash_node *bash_simple(struct bash_state *st) {
    struct bash_simple s = {.node = bash_node_new(st, BASH_SIMPLE)};
    struct bash_node *n = s.node;

    if (n == NULL)
        return NULL;
    s.assigns = &n->assigns;
    s.words = &n->words;
    s.redirs = &n->redirs;
    for (;;) {
        int rc;
        char c;

        bash_lex_blank(st);
        rc = bash_simple_redir(st, &s.redirs);
        if (rc < 0)
            return NULL;
        if (rc == 1)
            continue;
        c = bash_lex_at(st, 0);
        if (c == '(')
            return bash_simple_function(st, n);
        if (st->pos >= st->len || (bash_lex_is_meta(c) && c != '<' && c != '>'))
            break;
        if (bash_simple_word(st, &s) < 0)
            return NULL;
    }
    if (bash_simple_check(st, n->words) < 0)
        return NULL;
    if (n->words == NULL && n->assigns == NULL && n->redirs == NULL) {
        bash_lex_fail(st, "a command is missing");
        return NULL;
    }
    return n;
}
