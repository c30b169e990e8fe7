/* Brace expansion: a{b,c}d is abd acd. It happens before every other expansion, on the text. */
#include "bash_lex.h"

#include <string.h>

static char bash_brace_plain(char c) {
    return c == BASH_BUILD_OPEN    ? '{'
           : c == BASH_BUILD_CLOSE ? '}'
           : c == BASH_BUILD_COMMA ? ','
                                   : c;
}

void bash_brace_keep(struct bash_word *word) {
    for (size_t i = 0; i < word->len; i++)
        word->text[i] = bash_brace_plain(word->text[i]);
}

bool bash_brace_there(const struct bash_word *word) {
    return memchr(word->text, BASH_BUILD_OPEN, word->len) != NULL &&
           memchr(word->text, BASH_BUILD_CLOSE, word->len) != NULL;
}

struct bash_brace {
    struct bash_state *st;
    struct bash_word *word;  /* what is expanded: flags and substitutions of the results */
    struct bash_word **link; /* where the next result goes */
    size_t made;
};

/* The brace that closes the one at `open`, and whether a comma or ".." of its own is between. */
static const char *bash_brace_close(const char *open, bool *comma, bool *dots) {
    int depth = 0;

    *comma = *dots = false;
    for (const char *p = open; *p != '\0'; p++) {
        if (*p == BASH_BUILD_OPEN)
            depth++;
        else if (*p == BASH_BUILD_CLOSE && --depth == 0)
            return p;
        else if (depth == 1 && *p == BASH_BUILD_COMMA)
            *comma = true;
        else if (depth == 1 && p[0] == '.' && p[1] == '.')
            *dots = true;
    }
    return NULL;
}

static int bash_brace_emit(struct bash_brace *e, const char *text, size_t len) {
    struct bash_word *w = arena_get(e->st->arena, sizeof(*w));
    char *copy = arena_copy(e->st->arena, text, len);

    if (w == NULL || copy == NULL)
        return bash_lex_fail(e->st, "it is too large");
    if (++e->made > BASH_BRACE_MAX)
        return bash_lex_fail(e->st, "braces that stand for too many words");
    *w = *e->word;
    w->text = copy;
    w->len = len;
    w->next = NULL;
    w->alt = NULL;
    bash_brace_keep(w);
    if (memchr(copy, BASH_MARK_ANY, len) == NULL && memchr(copy, BASH_MARK_TILDE, len) == NULL)
        w->flags &= ~(unsigned)(BASH_WORD_DYNAMIC | BASH_WORD_SPLIT);
    /* An empty one is a word only if a quote was in it, and which one that was is not known here.
     */
    if (len == 0 && (w->flags & (unsigned)BASH_WORD_QUOTED) != 0)
        return bash_lex_fail(e->st, "quotes within braces");
    if (len == 0)
        return 0;
    *e->link = w;
    e->link = &w->next;
    return 0;
}

/* text = before + {…} + after, with each alternative in place of the braces. */
static int bash_brace_step(struct bash_brace *e, const char *text, unsigned depth);

static int bash_brace_alternative(struct bash_brace *e, const char *text, const char *part[3],
                                  unsigned depth) {
    const char *from = part[0], *to = part[1], *after = part[2];
    size_t before = (size_t)(strchr(text, '\0') - text), inner = (size_t)(to - from);
    size_t rest = strlen(after);
    const char *open = memchr(text, BASH_BUILD_OPEN, before);
    size_t head = (size_t)(open - text);
    char *made = arena_get(e->st->arena, head + inner + rest + 1);

    if (made == NULL)
        return bash_lex_fail(e->st, "it is too large");
    memcpy(made, text, head);
    memcpy(made + head, from, inner);
    memcpy(made + head + inner, after, rest + 1);
    return bash_brace_step(e, made, depth + 1);
}

static int bash_brace_sequence(struct bash_brace *e, const char *text, const char *open,
                               const char *close, unsigned depth) {
    size_t head = (size_t)(open - text), rest = strlen(close + 1);
    char *made = arena_get(e->st->arena, head + rest + 2);

    if (made == NULL)
        return bash_lex_fail(e->st, "it is too large");
    memcpy(made, text, head);
    made[head] = BASH_MARK_ANY;
    memcpy(made + head + 1, close + 1, rest + 1);
    e->word->flags |= BASH_WORD_DYNAMIC | BASH_WORD_SPLIT;
    return bash_brace_step(e, made, depth + 1);
}

static int bash_brace_step(struct bash_brace *e, const char *text, unsigned depth) {
    const char *open = strchr(text, BASH_BUILD_OPEN);
    const char *close = NULL, *from;
    bool comma = false, dots = false;
    int level = 0;

    if (depth > BASH_DEPTH_MAX)
        return bash_lex_fail(e->st, "braces that are nested too deeply");
    if (open == NULL)
        return bash_brace_emit(e, text, strlen(text));
    close = bash_brace_close(open, &comma, &dots);
    /* What bash makes of braces that do not match is a matter of its version. */
    if (close == NULL)
        return bash_lex_fail(e->st, "braces that do not match");
    if (!comma && dots)
        return bash_brace_sequence(e, text, open, close, depth);
    if (!comma) {
        /* {} and {x} are themselves. */
        char *made = arena_copy(e->st->arena, text, strlen(text));

        if (made == NULL)
            return bash_lex_fail(e->st, "it is too large");
        made[open - text] = '{';
        made[close - text] = '}';
        return bash_brace_step(e, made, depth + 1);
    }
    from = open + 1;
    for (const char *p = open; p <= close; p++) {
        level += *p == BASH_BUILD_OPEN;
        level -= *p == BASH_BUILD_CLOSE;
        if ((*p == BASH_BUILD_COMMA && level == 1) || p == close) {
            const char *part[3] = {from, p, close + 1};

            if (bash_brace_alternative(e, text, part, depth) < 0)
                return -1;
            from = p + 1;
        }
    }
    return 0;
}

/* Every brace has its partner. */
static bool bash_brace_is_even(const char *text) {
    int depth = 0;

    for (; *text != '\0' && depth >= 0; text++)
        depth += (*text == BASH_BUILD_OPEN) - (*text == BASH_BUILD_CLOSE);
    return depth == 0;
}

struct bash_word **bash_brace_expand(struct bash_state *st, struct bash_word *word,
                                     struct bash_word **link) {
    struct bash_brace e = {.st = st, .word = word, .link = link};
    struct bash_node *subs = word->subs;

    if (!bash_brace_is_even(word->text)) {
        bash_lex_fail(st, "braces that do not match");
        return NULL;
    }
    if (bash_brace_step(&e, word->text, 0) < 0)
        return NULL;
    /* What runs to expand it is judged once, with the first word; it must not be lost with it. */
    if (e.made > 0 && *link == NULL && subs != NULL) {
        bash_lex_fail(st, "braces that become nothing");
        return NULL;
    }
    for (struct bash_word *w = *link; w != NULL && w->next != NULL; w = w->next)
        w->next->subs = NULL;
    return e.link;
}
