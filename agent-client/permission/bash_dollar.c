/* Expansions: $name, ${…}, $(…), `…`, $((…)), $'…', <(…). */
#include "bash_lex.h"

#include <string.h>

static unsigned bash_dollar_flags(enum bash_place place) {
    return place == BASH_PLACE_PLAIN ? BASH_WORD_SPLIT : 0u;
}

/* A list up to ")", in a process of its own. The here-documents of the line outside are not those
 * of the lines inside. */
static int bash_dollar_list(struct bash_state *st, struct bash_build *b) {
    struct bash_heredoc *pending = st->pending;
    struct bash_node *list = NULL, *sub;

    if (++st->depth > BASH_DEPTH_MAX)
        return bash_lex_fail(st, "it is nested too deeply");
    st->pending = NULL;
    if (bash_list(st, &list) < 0)
        return -1;
    if (bash_lex_at(st, 0) != ')')
        return bash_lex_fail(st, "a substitution is not closed");
    if (st->pending != NULL)
        return bash_lex_fail(st, "a here-document has no body");
    st->pos++;
    st->depth--;
    st->pending = pending;
    if (list == NULL)
        return 0;
    sub = bash_node_new(st, BASH_SUBSHELL);
    if (sub == NULL)
        return -1;
    sub->a = list;
    bash_build_sub(b, sub);
    return 0;
}

int bash_dollar_process(struct bash_state *st, struct bash_build *b) {
    st->pos += 2;
    bash_build_any(st, b, 0);
    return bash_dollar_list(st, b);
}

/* What is between backticks, with one level of backslashes taken away. */
static char *bash_dollar_unescape(struct bash_state *st, enum bash_place place, size_t *len) {
    char *text = arena_get(st->arena, st->len - st->pos + 1);
    size_t n = 0;

    if (text == NULL) {
        bash_lex_fail(st, "it is too large");
        return NULL;
    }
    for (st->pos++; st->pos < st->len && st->s[st->pos] != '`'; st->pos++) {
        char next = bash_lex_at(st, 1);

        if (st->s[st->pos] == '\\' && next != '\0' &&
            (strchr("$`\\", next) != NULL || (next == '"' && place == BASH_PLACE_QUOTES)))
            st->pos++;
        text[n++] = st->s[st->pos];
    }
    if (st->pos >= st->len) {
        bash_lex_fail(st, "a backtick is not closed");
        return NULL;
    }
    st->pos++;
    *len = n;
    return text;
}

int bash_dollar_backtick(struct bash_state *st, struct bash_build *b, enum bash_place place) {
    struct bash_state inner = {.arena = st->arena, .depth = st->depth + 1};
    struct bash_node *list = NULL, *sub;

    if (inner.depth > BASH_DEPTH_MAX)
        return bash_lex_fail(st, "it is nested too deeply");
    inner.commands = st->commands;
    inner.s = bash_dollar_unescape(st, place, &inner.len);
    if (inner.s == NULL)
        return -1;
    bash_build_any(st, b, bash_dollar_flags(place));
    if (bash_list(&inner, &list) < 0)
        return bash_lex_fail(st, inner.why);
    if (inner.pos < inner.len || inner.pending != NULL)
        return bash_lex_fail(st, "what is between backticks is not a command");
    st->commands = inner.commands;
    if (list == NULL)
        return 0;
    sub = bash_node_new(st, BASH_SUBSHELL);
    if (sub == NULL)
        return -1;
    sub->a = list;
    bash_build_sub(b, sub);
    return 0;
}

/* The word behind an operator of ${name…}, up to the closing brace, which is consumed. `literal`
 * collects it while it is literal. */
static int bash_dollar_word(struct bash_state *st, struct bash_build *b, enum bash_place place,
                            struct bash_build *literal) {
    struct bash_build scratch = {0};
    struct bash_build *into = literal;

    while (st->pos < st->len) {
        char c = st->s[st->pos];
        int rc = 0;

        if (c == '}') {
            st->pos++;
            b->flags |= (scratch.flags | literal->flags) & (unsigned)BASH_WORD_RISKY;
            bash_build_sub(b, literal->subs);
            if (literal->last != NULL)
                b->last = literal->last;
            return 0;
        }
        if (place == BASH_PLACE_QUOTES && (c == '\'' || c == '"'))
            return bash_lex_fail(st, "a quote within ${…} within quotes");
        if (c == '\'') {
            const char *close = memchr(st->s + st->pos + 1, '\'', st->len - st->pos - 1);

            if (close == NULL)
                return bash_lex_fail(st, "a single quote is not closed");
            for (st->pos++; st->s + st->pos < close; st->pos++)
                bash_build_byte(st, into, st->s[st->pos]);
            st->pos++;
        } else if (c == '"') {
            rc = bash_word_quotes(st, into);
        } else if (c == '$') {
            rc = bash_dollar(st, into, place);
        } else if (c == '`') {
            rc = bash_dollar_backtick(st, into, place);
        } else if (c == '\\') {
            if (st->pos + 1 >= st->len)
                return bash_lex_fail(st, "it ends with a backslash");
            if (st->s[st->pos + 1] != '\n')
                bash_build_byte(st, into, st->s[st->pos + 1]);
            st->pos += 2;
        } else if ((c == '<' || c == '>') && bash_lex_at(st, 1) == '(') {
            rc = bash_dollar_process(st, into);
        } else if (c == '{') {
            return bash_lex_fail(st, "a brace within ${…}");
        } else {
            bash_build_byte(st, into, c);
            st->pos++;
        }
        if (rc < 0 || st->why != NULL)
            return -1;
    }
    return bash_lex_fail(st, "${ is not closed");
}

/* A subscript: "@", "*" and numbers are only that, anything else is arithmetic. */
static int bash_dollar_subscript(struct bash_state *st, struct bash_build *b) {
    char c = bash_lex_at(st, 1);

    st->pos++;
    if ((c == '@' || c == '*') && bash_lex_at(st, 1) == ']') {
        st->pos += 2;
        return 0;
    }
    return bash_arith(st, b, "]");
}

/* The operator of ${name OP word} at pos: its length, 0 when there is none. */
static size_t bash_dollar_operator(const struct bash_state *st) {
    static const char *const operators[] = {":-", ":=", ":?", ":+", "-",  "=",  "?",
                                            "+",  "##", "#",  "%%", "%",  "//", "/#",
                                            "/%", "/",  "^^", "^",  ",,", ","};

    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        size_t n = strlen(operators[i]);

        if (st->len - st->pos >= n && memcmp(st->s + st->pos, operators[i], n) == 0)
            return n;
    }
    return 0;
}

/* The name in ${…}: of a variable, or one special character. */
static int bash_dollar_name(struct bash_state *st) {
    size_t start = st->pos;

    while (bash_lex_is_name_char(bash_lex_at(st, 0)))
        st->pos++;
    if (st->pos > start) {
        for (size_t i = start; st->s[start] >= '0' && st->s[start] <= '9' && i < st->pos; i++)
            if (st->s[i] < '0' || st->s[i] > '9')
                return bash_lex_fail(st, "${…} has no name");
        return 0;
    }
    if (bash_lex_at(st, 0) == '\0' || strchr("@*#?-$!", bash_lex_at(st, 0)) == NULL)
        return bash_lex_fail(st, "${…} has no name");
    st->pos++;
    return 0;
}

/* Behind the name: an operator with its word, or the end. */
static int bash_dollar_rest(struct bash_state *st, struct bash_build *b, enum bash_place place,
                            bool indirect) {
    char c = bash_lex_at(st, 0);
    struct bash_build literal = {0};
    size_t n;
    bool keeps;

    if (indirect)
        b->flags |= BASH_WORD_RISKY;
    if (c == '}') {
        st->pos++;
        return 0;
    }
    n = bash_dollar_operator(st);
    if (n == 0 && c == ':') {
        st->pos++;
        return bash_arith(st, b, "}");
    }
    if (n == 0 && c == '@') {
        /* ${x@P} runs what is in x. */
        b->flags |= BASH_WORD_RISKY;
        if (memchr("UuLQEPAKak", bash_lex_at(st, 1), 10) == NULL || bash_lex_at(st, 2) != '}')
            return bash_lex_fail(st, "an operator of ${…} that is not known");
        st->pos += 3;
        return 0;
    }
    if (n == 0)
        return bash_lex_fail(st, "an operator of ${…} that is not known");
    keeps = memchr(st->s + st->pos, '-', n) != NULL || memchr(st->s + st->pos, '=', n) != NULL ||
            memchr(st->s + st->pos, '+', n) != NULL;
    /* It assigns: to PATH, perhaps. */
    if (memchr(st->s + st->pos, '=', n) != NULL)
        b->flags |= BASH_WORD_RISKY;
    st->pos += n;
    if (bash_dollar_word(st, b, place, &literal) < 0)
        return -1;
    if (keeps && literal.len > 0 && (literal.flags & (unsigned)BASH_WORD_DYNAMIC) == 0)
        b->alt = literal.data;
    return 0;
}

static int bash_dollar_brace(struct bash_state *st, struct bash_build *b, enum bash_place place) {
    bool indirect = false;
    char c;

    st->pos += 2;
    if (++st->depth > BASH_DEPTH_MAX)
        return bash_lex_fail(st, "it is nested too deeply");
    bash_build_any(st, b, bash_dollar_flags(place));
    c = bash_lex_at(st, 0);
    if (c == '#' && bash_lex_at(st, 1) != '}') {
        /* A length; ${#-x} and the like mean something else. */
        st->pos++;
        if (!bash_lex_is_name_char(bash_lex_at(st, 0)) && bash_lex_at(st, 1) != '}')
            return bash_lex_fail(st, "an operator of ${…} that is not known");
        if (bash_dollar_name(st) < 0)
            return -1;
        if (bash_lex_at(st, 0) == '[' && bash_dollar_subscript(st, b) < 0)
            return -1;
        if (bash_lex_at(st, 0) != '}')
            return bash_lex_fail(st, "${#…} is not closed");
        st->pos++;
        st->depth--;
        return 0;
    }
    if (c == '!' && bash_lex_is_name_char(bash_lex_at(st, 1))) {
        indirect = true;
        st->pos++;
    }
    if (bash_dollar_name(st) < 0)
        return -1;
    if (indirect && (bash_lex_at(st, 0) == '@' || bash_lex_at(st, 0) == '*') &&
        bash_lex_at(st, 1) == '}')
        st->pos++;
    if (bash_lex_at(st, 0) == '[' && bash_dollar_subscript(st, b) < 0)
        return -1;
    if (bash_dollar_rest(st, b, place, indirect) < 0)
        return -1;
    st->depth--;
    return 0;
}

/* "$(": a command, or "$((": arithmetic. */
static int bash_dollar_paren(struct bash_state *st, struct bash_build *b, enum bash_place place) {
    bash_build_any(st, b, bash_dollar_flags(place));
    if (bash_lex_at(st, 2) == '(') {
        st->pos += 3;
        return bash_arith(st, b, "))");
    }
    st->pos += 2;
    return bash_dollar_list(st, b);
}

int bash_dollar(struct bash_state *st, struct bash_build *b, enum bash_place place) {
    char next = bash_lex_at(st, 1);

    if (next == '(')
        return bash_dollar_paren(st, b, place);
    if (next == '{')
        return bash_dollar_brace(st, b, place);
    if (next == '[')
        return bash_lex_fail(st, "arithmetic of the old form $[…]");
    if (next == '\\' && bash_lex_at(st, 2) == '\n')
        return bash_lex_fail(st, "a line that ends within an expansion");
    if (place == BASH_PLACE_PLAIN && next == '\'') {
        st->pos += 2;
        return bash_ansi(st, b);
    }
    if (place == BASH_PLACE_PLAIN && next == '"') {
        st->pos++;
        bash_build_any(st, b, BASH_WORD_QUOTED);
        return bash_word_quotes(st, b);
    }
    if (bash_lex_is_name_char(next) && !(next >= '0' && next <= '9')) {
        for (st->pos++; bash_lex_is_name_char(bash_lex_at(st, 0));)
            st->pos++;
        if (bash_lex_at(st, 0) == '\\' && bash_lex_at(st, 1) == '\n')
            return bash_lex_fail(st, "a line that ends within an expansion");
        bash_build_any(st, b, bash_dollar_flags(place));
        return 0;
    }
    if (next != '\0' && strchr("@*#?-$!0123456789", next) != NULL) {
        st->pos += 2;
        bash_build_any(st, b, bash_dollar_flags(place));
        return 0;
    }
    bash_build_byte(st, b, '$');
    st->pos++;
    return 0;
}
