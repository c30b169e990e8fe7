#include "bash_lex.h"

#include <string.h>

int bash_lex_fail(struct bash_state *st, const char *why) {
    if (st->why == NULL) {
        st->why = why;
        st->at = st->pos;
    }
    return -1;
}

bool bash_lex_is_meta(char c) {
    return c != '\0' && strchr(" \t\n;&|<>()", c) != NULL;
}

bool bash_lex_is_name(const char *s, size_t len) {
    if (len == 0 || (s[0] >= '0' && s[0] <= '9'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!bash_lex_is_name_char(s[i]))
            return false;
    return true;
}

void bash_lex_blank(struct bash_state *st) {
    for (;;) {
        char c = bash_lex_at(st, 0);

        if (c == ' ' || c == '\t') {
            st->pos++;
        } else if (c == '\\' && bash_lex_at(st, 1) == '\n') {
            st->pos += 2;
        } else {
            break;
        }
    }
    if (bash_lex_at(st, 0) == '#')
        while (st->pos < st->len && st->s[st->pos] != '\n')
            st->pos++;
}

int bash_lex_operator(struct bash_state *st, size_t n) {
    size_t p = st->pos + n;

    st->pos = p;
    while (p + 1 < st->len && st->s[p] == '\\' && st->s[p + 1] == '\n')
        p += 2;
    if (p > st->pos && p < st->len && strchr("&|<>;(-!", st->s[p]) != NULL)
        return bash_lex_fail(st, "a line that ends within an operator");
    return 0;
}

/* Past the newline that is next. */
static int bash_lex_newline(struct bash_state *st) {
    st->pos++;
    return st->pending != NULL ? bash_here_read(st) : 0;
}

int bash_lex_lines(struct bash_state *st) {
    for (;;) {
        bash_lex_blank(st);
        if (bash_lex_at(st, 0) != '\n')
            return 0;
        if (bash_lex_newline(st) < 0)
            return -1;
    }
}

void bash_build_byte(struct bash_state *st, struct bash_build *b, char c) {
    if (b->len + 1 >= b->cap) {
        size_t cap = b->cap == 0 ? 32 : b->cap * 2;
        char *data = arena_get(st->arena, cap);

        if (data == NULL) {
            b->failed = true;
            bash_lex_fail(st, "it is too large");
            return;
        }
        if (b->len > 0)
            memcpy(data, b->data, b->len);
        b->data = data;
        b->cap = cap;
    }
    b->data[b->len++] = c;
    b->data[b->len] = '\0';
}

void bash_build_any(struct bash_state *st, struct bash_build *b, unsigned flags) {
    b->flags |= BASH_WORD_DYNAMIC | flags;
    /* Two unknown texts side by side are one. */
    if (b->len == 0 || b->data[b->len - 1] != BASH_MARK_ANY)
        bash_build_byte(st, b, BASH_MARK_ANY);
}

void bash_build_sub(struct bash_build *b, struct bash_node *node) {
    if (node == NULL)
        return;
    if (b->last == NULL)
        b->subs = node;
    else
        b->last->next = node;
    b->last = node;
}

struct bash_word *bash_build_end(struct bash_state *st, struct bash_build *b) {
    struct bash_word *w = arena_get(st->arena, sizeof(*w));

    if (w == NULL || b->failed) {
        bash_lex_fail(st, "it is too large");
        return NULL;
    }
    if (b->data == NULL)
        b->data = arena_copy(st->arena, "", 0);
    if (b->data == NULL) {
        bash_lex_fail(st, "it is too large");
        return NULL;
    }
    *w = (struct bash_word){
        .text = b->data, .len = b->len, .flags = b->flags, .subs = b->subs, .alt = b->alt};
    return w;
}
