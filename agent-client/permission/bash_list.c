#include <string.h>

#include "bash_lex.h"

struct bash_node *bash_node_new(struct bash_state *st, enum bash_kind kind) {
    struct bash_node *n = arena_get(st->arena, sizeof(*n));

    if (n == NULL) {
        bash_lex_fail(st, "it is too large");
        return NULL;
    }
    if (kind == BASH_SIMPLE && ++st->commands > BASH_COMMANDS_MAX) {
        bash_lex_fail(st, "it has too many commands");
        return NULL;
    }
    n->kind = kind;
    return n;
}

static struct bash_node *bash_list_wrap(struct bash_state *st, enum bash_kind kind,
                                        struct bash_node *a) {
    struct bash_node *n = bash_node_new(st, kind);

    if (n != NULL)
        n->a = a;
    return n;
}

/* command | command … */
static struct bash_node *bash_list_pipe(struct bash_state *st) {
    struct bash_node *first = bash_command(st), *last = first;

    while (last != NULL) {
        struct bash_node *next;

        bash_lex_blank(st);
        if (bash_lex_at(st, 0) != '|' || bash_lex_at(st, 1) == '|')
            break;
        if (bash_lex_operator(st, bash_lex_at(st, 1) == '&' ? 2 : 1) < 0 || bash_lex_lines(st) < 0)
            return NULL;
        next = bash_command_starts(st) ? bash_command(st) : NULL;
        if (next == NULL) {
            bash_lex_fail(st, "a pipe has no command behind it");
            return NULL;
        }
        last->next = next;
        last = next;
    }
    if (last == NULL || last == first)
        return last;
    return bash_list_wrap(st, BASH_PIPE, first);
}

/* "time" and "!" before a pipeline. */
static struct bash_node *bash_list_pipeline(struct bash_state *st) {
    struct bash_node *n;
    bool not = false;

    while (bash_command_is(st, "time") || bash_command_is(st, "!")) {
        bool timed = st->s[st->pos] == 't';

        not = timed ? not : !not ;
        st->pos += timed ? 4 : 1;
        bash_lex_blank(st);
        if (timed && bash_command_is(st, "-p")) {
            st->pos += 2;
            bash_lex_blank(st);
        }
        /* To bash, anything else is a command of that name; to other shells, time is a program. */
        if (timed && bash_lex_at(st, 0) == '-') {
            bash_lex_fail(st, "an option of time");
            return NULL;
        }
        if (!bash_command_starts(st)) {
            bash_lex_fail(st, "a command is missing");
            return NULL;
        }
    }
    n = bash_list_pipe(st);
    return n != NULL && not ? bash_list_wrap(st, BASH_NOT, n) : n;
}

/* pipeline && pipeline || … */
static struct bash_node *bash_list_and_or(struct bash_state *st) {
    struct bash_node *left = bash_list_pipeline(st);

    while (left != NULL) {
        struct bash_node *both;
        char c;

        bash_lex_blank(st);
        c = bash_lex_at(st, 0);
        if ((c != '&' && c != '|') || bash_lex_at(st, 1) != c)
            break;
        st->pos += 2;
        if (bash_lex_lines(st) < 0)
            return NULL;
        both = bash_list_wrap(st, c == '&' ? BASH_AND : BASH_OR, left);
        if (both == NULL)
            return NULL;
        both->b = bash_command_starts(st) ? bash_list_pipeline(st) : NULL;
        if (both->b == NULL) {
            bash_lex_fail(st, "a command is missing");
            return NULL;
        }
        left = both;
    }
    return left;
}

/* What separates commands. 1 = another one may follow, 0 = the list ends here. */
static int bash_list_separator(struct bash_state *st, struct bash_node **node) {
    char c, next;

    bash_lex_blank(st);
    c = bash_lex_at(st, 0);
    next = bash_lex_at(st, 1);
    if (c == '\n')
        return bash_lex_lines(st) < 0 ? -1 : 1;
    if (c == ';' && next != ';' && next != '&')
        return bash_lex_operator(st, 1) < 0 || bash_lex_lines(st) < 0 ? -1 : 1;
    if (c == '&' && next != '&' && next != '>') {
        struct bash_node *both = bash_list_wrap(st, BASH_ASYNC, *node);

        *node = both;
        return both == NULL || bash_lex_operator(st, 1) < 0 || bash_lex_lines(st) < 0 ? -1 : 1;
    }
    return 0;
}

int bash_list(struct bash_state *st, struct bash_node **node) {
    struct bash_node *first = NULL, **link = &first;
    int more = 1;

    if (bash_lex_lines(st) < 0)
        return -1;
    while (more == 1 && bash_command_starts(st)) {
        *link = bash_list_and_or(st);
        if (*link == NULL) {
            bash_lex_fail(st, "it is no command");
            return -1;
        }
        more = bash_list_separator(st, link);
        if (more < 0)
            return -1;
        link = &(*link)->next;
    }
    if (first == NULL || first->next == NULL) {
        *node = first;
        return st->why != NULL ? -1 : 0;
    }
    *node = bash_list_wrap(st, BASH_SEQ, first);
    return *node == NULL ? -1 : 0;
}
