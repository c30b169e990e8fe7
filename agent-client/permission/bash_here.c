/* Here-documents: << and <<-. The body begins after the line and ends with a line that is the word.
 */
#include "bash_lex.h"

#include <string.h>

int bash_here_add(struct bash_state *st, struct bash_word *end, bool tabs, struct bash_word *body) {
    struct bash_heredoc *h = arena_get(st->arena, sizeof(*h)), **link = &st->pending;

    if (h == NULL)
        return bash_lex_fail(st, "it is too large");
    if ((end->flags & (unsigned)(BASH_WORD_DYNAMIC | BASH_WORD_GLOB)) != 0 ||
        memchr(end->text, '\n', end->len) != NULL)
        return bash_lex_fail(st, "the end of a here-document is not a plain word");
    bash_brace_keep(end);
    *h = (struct bash_heredoc){.end = end->text,
                               .end_len = end->len,
                               .quoted = (end->flags & (unsigned)BASH_WORD_QUOTED) != 0,
                               .tabs = tabs,
                               .word = body};
    while (*link != NULL)
        link = &(*link)->next;
    *link = h;
    return 0;
}

/* What the body expands, in a state that ends where the body does. */
static int bash_here_expand(struct bash_state *st, const struct bash_heredoc *h, size_t start,
                            size_t end) {
    struct bash_state inner = {.arena = st->arena,
                               .s = st->s,
                               .len = end,
                               .pos = start,
                               .depth = st->depth + 1,
                               .commands = st->commands};
    struct bash_build b = {0};

    if (inner.depth > BASH_DEPTH_MAX)
        return bash_lex_fail(st, "it is nested too deeply");
    while (inner.pos < inner.len && inner.why == NULL) {
        char c = inner.s[inner.pos];

        if (c == '$')
            bash_dollar(&inner, &b, BASH_PLACE_QUOTES);
        else if (c == '`')
            bash_dollar_backtick(&inner, &b, BASH_PLACE_QUOTES);
        else
            inner.pos += c == '\\' ? 2 : 1;
    }
    if (inner.why != NULL)
        return bash_lex_fail(st, inner.why);
    st->commands = inner.commands;
    h->word->flags |= b.flags;
    h->word->subs = b.subs;
    return 0;
}

/* The line at pos, without its newline; steps behind it. */
static const char *bash_here_line(struct bash_state *st, size_t *len) {
    const char *line = st->s + st->pos;
    const char *nl = memchr(line, '\n', st->len - st->pos);

    *len = nl != NULL ? (size_t)(nl - line) : st->len - st->pos;
    st->pos += *len + (nl != NULL);
    return line;
}

static bool bash_here_continues(const char *line, size_t len) {
    size_t n = 0;

    while (n < len && line[len - 1 - n] == '\\')
        n++;
    return n % 2 == 1;
}

/* One body. */
static int bash_here_body(struct bash_state *st, const struct bash_heredoc *h) {
    size_t start = st->pos;
    bool continued = false;

    while (st->pos < st->len) {
        size_t at = st->pos, len;
        const char *line = bash_here_line(st, &len);

        while (h->tabs && len > 0 && *line == '\t') {
            line++;
            len--;
        }
        if (!continued && len == h->end_len && memcmp(line, h->end, len) == 0)
            return h->quoted ? 0 : bash_here_expand(st, h, start, at);
        continued = !h->quoted && bash_here_continues(line, len);
        /* Two lines that together are the end. */
        if (continued && len <= h->end_len && memcmp(line, h->end, len - 1) == 0)
            return bash_lex_fail(st, "the end of a here-document may be on two lines");
    }
    return bash_lex_fail(st, "a here-document has no end");
}

int bash_here_read(struct bash_state *st) {
    while (st->pending != NULL) {
        const struct bash_heredoc *h = st->pending;

        st->pending = h->next;
        if (bash_here_body(st, h) < 0)
            return -1;
    }
    return 0;
}
