#include "bash_lex.h"

#include <string.h>

static int bash_word_single(struct bash_state *st, struct bash_build *b) {
    st->pos++;
    b->flags |= BASH_WORD_QUOTED;
    while (st->pos < st->len && st->s[st->pos] != '\'')
        bash_build_byte(st, b, st->s[st->pos++]);
    if (st->pos >= st->len)
        return bash_lex_fail(st, "a single quote is not closed");
    st->pos++;
    return 0;
}

/* A backslash outside of quotes. */
static int bash_word_escape(struct bash_state *st, struct bash_build *b) {
    if (st->pos + 1 >= st->len)
        return bash_lex_fail(st, "it ends with a backslash");
    if (st->s[st->pos + 1] == '\n') {
        b->flags |= BASH_WORD_JOINED;
    } else {
        b->flags |= BASH_WORD_QUOTED;
        bash_build_byte(st, b, st->s[st->pos + 1]);
    }
    st->pos += 2;
    return 0;
}

/* A backslash between double quotes: only before these is it more than itself. */
static int bash_word_escape_quoted(struct bash_state *st, struct bash_build *b) {
    char next = bash_lex_at(st, 1);

    if (next == '\n') {
        st->pos += 2;
    } else if (next != '\0' && strchr("$`\"\\", next) != NULL) {
        bash_build_byte(st, b, next);
        st->pos += 2;
    } else {
        bash_build_byte(st, b, '\\');
        st->pos++;
    }
    return 0;
}

int bash_word_quotes(struct bash_state *st, struct bash_build *b) {
    st->pos++;
    b->flags |= BASH_WORD_QUOTED;
    while (st->pos < st->len) {
        char c = st->s[st->pos];
        int rc = 0;

        if (c == '"') {
            st->pos++;
            return 0;
        }
        if (c == '\\')
            rc = bash_word_escape_quoted(st, b);
        else if (c == '$')
            rc = bash_dollar(st, b, BASH_PLACE_QUOTES);
        else if (c == '`')
            rc = bash_dollar_backtick(st, b, BASH_PLACE_QUOTES);
        else
            bash_build_byte(st, b, st->s[st->pos++]);
        if (rc < 0 || st->why != NULL)
            return -1;
    }
    return bash_lex_fail(st, "a double quote is not closed");
}

/* "~" where bash expands it: the home directory, or that of somebody. */
static void bash_word_tilde(struct bash_state *st, struct bash_build *b) {
    char next = bash_lex_at(st, 1);

    st->pos++;
    if (next == '\0' || next == '/' || bash_lex_is_meta(next)) {
        bash_build_byte(st, b, BASH_MARK_TILDE);
        b->flags |= BASH_WORD_DYNAMIC;
        return;
    }
    while (bash_lex_is_name_char(bash_lex_at(st, 0)) || bash_lex_at(st, 0) == '+' ||
           bash_lex_at(st, 0) == '-')
        st->pos++;
    bash_build_any(st, b, 0);
}

static bool bash_word_tilde_here(const struct bash_state *st, const struct bash_build *b) {
    if (st->s[st->pos] != '~')
        return false;
    /* A quote before it may have left no text. */
    return b->len == 0 || b->data[b->len - 1] == '=' || b->data[b->len - 1] == ':';
}

/* One character that is neither quoted nor special to the lexer. */
static void bash_word_plain(struct bash_state *st, struct bash_build *b) {
    char c = st->s[st->pos++];

    switch (c) {
    case '*':
        b->flags |= BASH_WORD_GLOB;
        bash_build_byte(st, b, BASH_MARK_STAR);
        break;
    case '?':
        b->flags |= BASH_WORD_GLOB;
        bash_build_byte(st, b, BASH_MARK_ONE);
        break;
    case '{':
        b->brace = true;
        bash_build_byte(st, b, BASH_BUILD_OPEN);
        break;
    case '}':
        b->brace = true;
        bash_build_byte(st, b, BASH_BUILD_CLOSE);
        break;
    case ',':
        bash_build_byte(st, b, BASH_BUILD_COMMA);
        break;
    case '[':
        b->flags |= BASH_WORD_GLOB;
        bash_build_byte(st, b, BASH_MARK_SET);
        break;
    default:
        bash_build_byte(st, b, c);
    }
}

static int bash_word_step(struct bash_state *st, struct bash_build *b) {
    switch (st->s[st->pos]) {
    case '\\':
        return bash_word_escape(st, b);
    case '\'':
        return bash_word_single(st, b);
    case '"':
        return bash_word_quotes(st, b);
    case '$':
        return bash_dollar(st, b, BASH_PLACE_PLAIN);
    case '`':
        return bash_dollar_backtick(st, b, BASH_PLACE_PLAIN);
    default:
        break;
    }
    if (bash_word_tilde_here(st, b))
        bash_word_tilde(st, b);
    else
        bash_word_plain(st, b);
    return 0;
}

/* Does it stand for one character whatever is in the directory? */
static bool bash_word_set_is_plain(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!bash_lex_is_name_char(s[i]) && strchr(".-!^+%@", s[i]) == NULL)
            return false;
    return len > 0;
}

/* "[abc]" becomes one unknown character; a "[" that nothing closes is itself. Where a class, a
 * quote, a slash or a second "]" is involved, all up to the last "]" may be any text. */
static void bash_word_sets(struct bash_word *w) {
    size_t out = 0;
    bool glob = false;

    for (size_t i = 0; i < w->len; i++) {
        char c = w->text[i];
        char *close;

        glob = glob || c == BASH_MARK_STAR || c == BASH_MARK_ONE;
        if (c != BASH_MARK_SET) {
            w->text[out++] = c;
            continue;
        }
        close = memrchr(w->text + i + 1, ']', w->len - i - 1);
        if (close == NULL) {
            w->text[out++] = '[';
            continue;
        }
        glob = true;
        if (bash_word_set_is_plain(w->text + i + 1, (size_t)(close - w->text) - i - 1)) {
            w->text[out++] = BASH_MARK_ONE;
        } else {
            w->flags |= BASH_WORD_DYNAMIC;
            w->text[out++] = BASH_MARK_ANY;
        }
        i = (size_t)(close - w->text);
    }
    w->text[out] = '\0';
    w->len = out;
    if (!glob)
        w->flags &= ~(unsigned)BASH_WORD_GLOB;
}

/* "2" and "{v}" right before "<" or ">" belong to a redirection, which cannot stand there. */
static bool bash_word_is_prefix(const struct bash_state *st, size_t start) {
    char next = bash_lex_at(st, 0);
    bool digits = true;

    if (next != '<' && next != '>')
        return false;
    for (size_t i = start; i < st->pos; i++)
        digits = digits && st->s[i] >= '0' && st->s[i] <= '9';
    return digits || (st->s[start] == '{' && st->s[st->pos - 1] == '}');
}

struct bash_word *bash_word_read(struct bash_state *st) {
    struct bash_build b = {0};
    size_t start = st->pos;
    struct bash_word *w;

    while (st->pos < st->len) {
        char c = st->s[st->pos];
        bool process = (c == '<' || c == '>') && bash_lex_at(st, 1) == '(';

        if (bash_lex_is_meta(c) && !process)
            break;
        if ((process ? bash_dollar_process(st, &b) : bash_word_step(st, &b)) < 0 || st->why != NULL)
            return NULL;
    }
    if (st->pos == start) {
        bash_lex_fail(st, "a word is missing");
        return NULL;
    }
    if (bash_word_is_prefix(st, start)) {
        bash_lex_fail(st, "a redirection that cannot stand there");
        return NULL;
    }
    w = bash_build_end(st, &b);
    if (w == NULL)
        return NULL;
    if ((w->flags & BASH_WORD_GLOB) != 0)
        bash_word_sets(w);
    if (w->alt != NULL && (w->len != 1 || w->text[0] != BASH_MARK_ANY))
        w->alt = NULL;
    if (!b.brace)
        bash_brace_keep(w);
    return w;
}

struct bash_word **bash_word_expand(struct bash_state *st, struct bash_word **link) {
    struct bash_word *w = bash_word_read(st);

    if (w == NULL)
        return NULL;
    if (bash_brace_there(w))
        return bash_brace_expand(st, w, link);
    bash_brace_keep(w);
    *link = w;
    return &w->next;
}
