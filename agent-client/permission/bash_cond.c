/* [[ … ]] */
#include "bash_lex.h"

#include <string.h>

struct bash_cond {
    struct bash_state *st;
    struct bash_node *node;
    struct bash_word **link;
};

static int bash_cond_or(struct bash_cond *c);

static struct bash_word *bash_cond_word(struct bash_cond *c) {
    struct bash_word *w;

    bash_lex_blank(c->st);
    if (bash_command_is(c->st, "]]")) {
        bash_lex_fail(c->st, "an operand is missing");
        return NULL;
    }
    w = bash_word_read(c->st);
    if (w == NULL)
        return NULL;
    bash_brace_keep(w);
    *c->link = w;
    c->link = &w->next;
    return w;
}

/* An operand that is evaluated as arithmetic, or as a name with a subscript. */
static void bash_cond_evaluates(struct bash_cond *c, const struct bash_word *w) {
    for (size_t i = 0; i < w->len; i++)
        if (w->text[i] < '0' || w->text[i] > '9')
            c->node->risky = true;
}

static bool bash_cond_is_unary(const struct bash_word *w) {
    return w->len == 2 && w->text[0] == '-' &&
           strchr("abcdefghkprstuwxGLNOSznovR", w->text[1]) != NULL;
}

static bool bash_cond_is_binary(const struct bash_word *w, bool *arith) {
    static const char *const names[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=",
                                        "==",  "!=",  "=~",  "-nt", "-ot", "-ef"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(w->text, names[i]) == 0) {
            *arith = i < 6;
            return true;
        }
    return false;
}

static bool bash_cond_at_end(const struct bash_state *st) {
    char c = bash_lex_at(st, 0);

    return bash_command_is(st, "]]") || c == ')' || c == '&' || c == '|' || c == '\n';
}

/* Behind the first operand. */
static int bash_cond_binary(struct bash_cond *c, const struct bash_word *left) {
    struct bash_state *st = c->st;
    char first = bash_lex_at(st, 0), second = bash_lex_at(st, 1);
    struct bash_word *right, *op;
    bool arith = false;

    if ((first == '<' || first == '>') && (second == ' ' || second == '\t')) {
        st->pos++;
        return bash_cond_word(c) == NULL ? -1 : 0;
    }
    op = bash_cond_word(c);
    if (op == NULL)
        return -1;
    /* "!=" and "==" hold no mark; "=~" is no tilde of a word. */
    if (op->len == 2 && op->text[0] == '=' && op->text[1] == BASH_MARK_TILDE)
        op->text[1] = '~';
    if ((op->flags & (unsigned)BASH_WORD_QUOTED) != 0 || !bash_cond_is_binary(op, &arith))
        return bash_lex_fail(st, "an operator of [[ that is not known");
    right = bash_cond_word(c);
    if (right == NULL)
        return -1;
    if (arith) {
        bash_cond_evaluates(c, left);
        bash_cond_evaluates(c, right);
    }
    return 0;
}

static int bash_cond_term(struct bash_cond *c) {
    struct bash_state *st = c->st;
    struct bash_word *w;

    bash_lex_blank(st);
    if (++st->depth > BASH_DEPTH_MAX)
        return bash_lex_fail(st, "it is nested too deeply");
    if (bash_command_is(st, "!")) {
        st->pos++;
        if (bash_cond_term(c) < 0)
            return -1;
    } else if (bash_lex_at(st, 0) == '(') {
        st->pos++;
        if (bash_cond_or(c) < 0)
            return -1;
        bash_lex_blank(st);
        if (bash_lex_at(st, 0) != ')')
            return bash_lex_fail(st, "a bracket is not closed");
        st->pos++;
    } else {
        w = bash_cond_word(c);
        if (w == NULL)
            return -1;
        bash_lex_blank(st);
        if (bash_cond_is_unary(w)) {
            struct bash_word *operand;

            if ((w->flags & (unsigned)BASH_WORD_QUOTED) != 0)
                return bash_lex_fail(st, "an operator of [[ in quotes");
            operand = bash_cond_word(c);
            if (operand == NULL)
                return -1;
            if ((w->text[1] == 'v' || w->text[1] == 'R') &&
                !bash_lex_is_name(operand->text, operand->len))
                c->node->risky = true;
        } else if (!bash_cond_at_end(st) && bash_cond_binary(c, w) < 0) {
            return -1;
        }
    }
    st->depth--;
    return 0;
}

/* term && term || … : which binds tighter does not matter for what is run. */
static int bash_cond_or(struct bash_cond *c) {
    struct bash_state *st = c->st;

    for (;;) {
        char first;

        if (bash_cond_term(c) < 0)
            return -1;
        bash_lex_blank(st);
        first = bash_lex_at(st, 0);
        if ((first != '&' && first != '|') || bash_lex_at(st, 1) != first)
            return 0;
        st->pos += 2;
        if (bash_lex_lines(st) < 0)
            return -1;
    }
}

struct bash_node *bash_cond(struct bash_state *st) {
    struct bash_cond c = {.st = st, .node = bash_node_new(st, BASH_COND)};

    if (c.node == NULL)
        return NULL;
    c.link = &c.node->words;
    if (bash_cond_or(&c) < 0)
        return NULL;
    bash_lex_blank(st);
    return bash_command_need(st, "]]") < 0 ? NULL : c.node;
}
