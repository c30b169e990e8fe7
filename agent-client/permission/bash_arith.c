/* Arithmetic. bash evaluates the value of every variable that it names again, and with it any $( )
 * in a subscript there: a name in it is a risk that no reading of the text can rule out. */
#include "bash_lex.h"

#include <string.h>

/* A number, as in 12, 0x1f, 2#101. */
static void bash_arith_number(struct bash_state *st) {
    while (bash_lex_is_name_char(bash_lex_at(st, 0)) || bash_lex_at(st, 0) == '#')
        st->pos++;
}

static int bash_arith_step(struct bash_state *st, struct bash_build *b) {
    char c = st->s[st->pos];

    if (c == '$')
        b->flags |= BASH_WORD_RISKY;
    if (c == '$' &&
        !(bash_lex_is_name_char(bash_lex_at(st, 1)) || strchr("({#?", bash_lex_at(st, 1)) != NULL))
        return bash_lex_fail(st, "arithmetic that is not understood");
    if (c == '$')
        return bash_dollar(st, b, BASH_PLACE_QUOTES);
    if (c == '`') {
        b->flags |= BASH_WORD_RISKY;
        return bash_dollar_backtick(st, b, BASH_PLACE_QUOTES);
    }
    if (c >= '0' && c <= '9') {
        bash_arith_number(st);
        return 0;
    }
    if (bash_lex_is_name_char(c)) {
        b->flags |= BASH_WORD_RISKY;
        st->pos++;
        return 0;
    }
    if (strchr(" \t\n+-*/%<>=!&|^~?:,[].", c) == NULL)
        return bash_lex_fail(st, "arithmetic that is not understood");
    /* A newline before a here-document's body would put that body into the arithmetic. */
    if (c == '\n' && st->pending != NULL)
        return bash_lex_fail(st, "arithmetic over a here-document");
    st->pos++;
    return 0;
}

/* Keeps the balance of brackets. 1 = this one was a bracket. */
static int bash_arith_bracket(struct bash_state *st, char *open, size_t *depth) {
    char c = st->s[st->pos];

    if (c == '(' || c == '[') {
        if (*depth >= BASH_DEPTH_MAX)
            return bash_lex_fail(st, "it is nested too deeply");
        open[(*depth)++] = c == '(' ? ')' : ']';
    } else if (c == ')' || c == ']') {
        if (*depth == 0 || open[*depth - 1] != c)
            return bash_lex_fail(st, "brackets in arithmetic that do not match");
        (*depth)--;
    } else {
        return 0;
    }
    st->pos++;
    return 1;
}

/* bash counts the brackets of the text first, those of a "case" in it included, and takes it for
 * commands when they do not match: then it is not arithmetic at all. */
static bool bash_arith_is_even(const char *s, size_t len) {
    int depth = 0;
    bool nested = false, quotes = false;

    for (size_t i = 0; i < len; i++) {
        depth += (s[i] == '(') - (s[i] == ')');
        nested = nested || s[i] == '`' || (s[i] == '(' && i > 0 && s[i - 1] == '$');
        quotes = quotes || strchr("'\"\\#", s[i]) != NULL;
        if (depth < 0)
            return false;
    }
    return depth == 0 && !(nested && quotes);
}

int bash_arith(struct bash_state *st, struct bash_build *b, const char *end) {
    char open[BASH_DEPTH_MAX];
    size_t depth = 0, n = strlen(end), start = st->pos;

    if (++st->depth > BASH_DEPTH_MAX)
        return bash_lex_fail(st, "it is nested too deeply");
    while (st->pos < st->len) {
        int rc;

        if (depth == 0 && st->len - st->pos >= n && memcmp(st->s + st->pos, end, n) == 0) {
            if (!bash_arith_is_even(st->s + start, st->pos - start))
                return bash_lex_fail(st, "brackets in arithmetic that do not match");
            st->pos += n;
            st->depth--;
            return 0;
        }
        rc = bash_arith_bracket(st, open, &depth);
        if (rc == 0)
            rc = bash_arith_step(st, b);
        if (rc < 0 || st->why != NULL)
            return -1;
    }
    return bash_lex_fail(st, "arithmetic is not closed");
}
