/* Compound commands. */
#include "bash_lex.h"

#include <string.h>

bool bash_command_is(const struct bash_state *st, const char *reserved) {
    size_t n = strlen(reserved);

    if (st->len - st->pos < n || memcmp(st->s + st->pos, reserved, n) != 0)
        return false;
    return st->pos + n == st->len || bash_lex_is_meta(st->s[st->pos + n]);
}

bool bash_command_starts(const struct bash_state *st) {
    static const char *const ends[] = {"then", "do", "done", "fi", "else", "elif", "esac", "}"};
    char c = bash_lex_at(st, 0);

    if (st->pos >= st->len || c == ')' || c == ';' || c == '|' || c == '\n')
        return false;
    if (c == '&')
        return bash_lex_at(st, 1) == '>';
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (bash_command_is(st, ends[i]))
            return false;
    return true;
}

int bash_command_need(struct bash_state *st, const char *reserved) {
    if (!bash_command_is(st, reserved))
        return bash_lex_fail(st, "a reserved word is missing");
    st->pos += strlen(reserved);
    return 0;
}

/* A list that must hold a command and end with this reserved word, which is consumed. */
static int bash_command_body(struct bash_state *st, struct bash_node **node, const char *end) {
    if (bash_list(st, node) < 0)
        return -1;
    if (*node == NULL)
        return bash_lex_fail(st, "a command is missing");
    return bash_command_need(st, end);
}

/* Behind "if" or "elif". */
static struct bash_node *bash_command_if(struct bash_state *st) {
    struct bash_node *n = bash_node_new(st, BASH_IF);

    if (n == NULL || bash_command_body(st, &n->a, "then") < 0 || bash_list(st, &n->b) < 0)
        return NULL;
    if (n->b == NULL) {
        bash_lex_fail(st, "a command is missing");
        return NULL;
    }
    if (bash_command_is(st, "elif")) {
        if (++st->depth > BASH_DEPTH_MAX) {
            bash_lex_fail(st, "it is nested too deeply");
            return NULL;
        }
        st->pos += 4;
        n->c = bash_command_if(st);
        st->depth--;
        return n->c == NULL ? NULL : n;
    }
    if (bash_command_is(st, "else")) {
        st->pos += 4;
        return bash_command_body(st, &n->c, "fi") < 0 ? NULL : n;
    }
    return bash_command_need(st, "fi") < 0 ? NULL : n;
}

static struct bash_node *bash_command_while(struct bash_state *st) {
    struct bash_node *n = bash_node_new(st, BASH_WHILE);

    if (n == NULL || bash_command_body(st, &n->a, "do") < 0 ||
        bash_command_body(st, &n->b, "done") < 0)
        return NULL;
    return n;
}

/* for (( a; b; c )): behind the two brackets. */
static int bash_command_for_arith(struct bash_state *st, struct bash_node *n) {
    static const char *const ends[] = {";", ";", "))"};
    struct bash_build b = {0};

    for (size_t i = 0; i < 3; i++)
        if (bash_arith(st, &b, ends[i]) < 0)
            return -1;
    n->words = bash_build_end(st, &b);
    if (n->words == NULL)
        return -1;
    bash_lex_blank(st);
    if (bash_lex_at(st, 0) == ';')
        st->pos++;
    return bash_lex_lines(st);
}

/* The words behind "in", up to the end of the line or a semicolon. */
static int bash_command_for_words(struct bash_state *st, struct bash_node *n) {
    struct bash_word **link = &n->words;

    for (;;) {
        char c;

        bash_lex_blank(st);
        c = bash_lex_at(st, 0);
        if (c == ';' || c == '\n')
            break;
        link = bash_word_expand(st, link);
        if (link == NULL)
            return -1;
    }
    if (bash_lex_at(st, 0) == ';')
        st->pos++;
    return bash_lex_lines(st);
}

/* The name behind for, select and function. */
static const char *bash_command_name(struct bash_state *st) {
    size_t start = st->pos;
    const char *name;

    while (bash_lex_is_name_char(bash_lex_at(st, 0)))
        st->pos++;
    if (!bash_lex_is_name(st->s + start, st->pos - start) ||
        (st->pos < st->len && !bash_lex_is_meta(st->s[st->pos]))) {
        bash_lex_fail(st, "a name is missing");
        return NULL;
    }
    name = arena_copy(st->arena, st->s + start, st->pos - start);
    if (name == NULL)
        bash_lex_fail(st, "it is too large");
    return name;
}

static struct bash_node *bash_command_for(struct bash_state *st, bool arith) {
    struct bash_node *n = bash_node_new(st, BASH_FOR);
    bool ended;

    if (n == NULL)
        return NULL;
    bash_lex_blank(st);
    if (arith && bash_lex_at(st, 0) == '(' && bash_lex_at(st, 1) == '(') {
        st->pos += 2;
        if (bash_command_for_arith(st, n) < 0)
            return NULL;
    } else {
        n->name = bash_command_name(st);
        if (n->name == NULL)
            return NULL;
        bash_lex_blank(st);
        ended = bash_lex_at(st, 0) == ';';
        st->pos += ended;
        if (bash_lex_lines(st) < 0)
            return NULL;
        if (!ended && bash_command_is(st, "in")) {
            st->pos += 2;
            if (bash_command_for_words(st, n) < 0)
                return NULL;
        }
    }
    if (bash_command_need(st, "do") < 0 || bash_command_body(st, &n->b, "done") < 0)
        return NULL;
    return n;
}

/* One item: patterns, ")", commands. 1 = another may follow. */
static int bash_command_item(struct bash_state *st, struct bash_node *n, struct bash_word ***words,
                             struct bash_node ***bodies) {
    struct bash_node *body = NULL;
    char c;

    if (bash_lex_at(st, 0) == '(')
        st->pos++;
    for (;;) {
        bash_lex_blank(st);
        **words = bash_word_read(st);
        if (**words == NULL)
            return -1;
        bash_brace_keep(**words);
        *words = &(**words)->next;
        bash_lex_blank(st);
        c = bash_lex_at(st, 0);
        if (c == '|' && bash_lex_at(st, 1) != '|') {
            st->pos++;
            continue;
        }
        if (c == ')')
            break;
        return bash_lex_fail(st, "a pattern of case is not closed");
    }
    st->pos++;
    if (bash_list(st, &body) < 0)
        return -1;
    if (body != NULL) {
        **bodies = body;
        *bodies = &body->next;
    }
    (void)n;
    if (bash_lex_at(st, 0) != ';')
        return 0;
    /* ";;", ";&", ";;&"; what is left of "; ;" is none of them */
    if (bash_lex_at(st, 1) != ';' && bash_lex_at(st, 1) != '&')
        return bash_lex_fail(st, "a part of case ends with a single ;");
    st->pos += bash_lex_at(st, 1) == ';' && bash_lex_at(st, 2) == '&' ? 3 : 2;
    return 1;
}

static struct bash_node *bash_command_case(struct bash_state *st) {
    struct bash_node *n = bash_node_new(st, BASH_CASE), **bodies;
    struct bash_word **words;
    int more = 1;

    if (n == NULL)
        return NULL;
    bash_lex_blank(st);
    n->words = bash_word_read(st);
    if (n->words == NULL)
        return NULL;
    bash_brace_keep(n->words);
    words = &n->words->next;
    bodies = &n->a;
    if (bash_lex_lines(st) < 0 || bash_command_need(st, "in") < 0 || bash_lex_lines(st) < 0)
        return NULL;
    while (more == 1 && !bash_command_is(st, "esac")) {
        more = bash_command_item(st, n, &words, &bodies);
        if (more < 0 || bash_lex_lines(st) < 0)
            return NULL;
    }
    return bash_command_need(st, "esac") < 0 ? NULL : n;
}

static struct bash_node *bash_command_paren(struct bash_state *st) {
    struct bash_node *n;

    if (bash_lex_at(st, 1) == '(') {
        struct bash_build b = {0};

        n = bash_node_new(st, BASH_ARITH);
        st->pos += 2;
        if (n == NULL || bash_arith(st, &b, "))") < 0)
            return NULL;
        n->words = bash_build_end(st, &b);
        return n->words == NULL ? NULL : n;
    }
    n = bash_node_new(st, BASH_SUBSHELL);
    st->pos++;
    if (n == NULL || bash_list(st, &n->a) < 0)
        return NULL;
    if (n->a == NULL || bash_lex_at(st, 0) != ')') {
        bash_lex_fail(st, n->a == NULL ? "a command is missing" : "a bracket is not closed");
        return NULL;
    }
    st->pos++;
    return n;
}

static struct bash_node *bash_command_compound(struct bash_state *st);

static struct bash_node *bash_command_function(struct bash_state *st) {
    struct bash_node *n = bash_node_new(st, BASH_FUNCTION);

    if (n == NULL)
        return NULL;
    bash_lex_blank(st);
    n->name = bash_command_name(st);
    if (n->name == NULL)
        return NULL;
    bash_lex_blank(st);
    if (bash_lex_at(st, 0) == '(') {
        st->pos++;
        bash_lex_blank(st);
        if (bash_lex_at(st, 0) != ')') {
            bash_lex_fail(st, "a function's brackets are not empty");
            return NULL;
        }
        st->pos++;
    }
    if (bash_lex_lines(st) < 0)
        return NULL;
    n->a = bash_command_compound(st);
    if (n->a == NULL)
        bash_lex_fail(st, "a function has no body");
    return n->a == NULL ? NULL : n;
}

/* "coproc" before a command runs it in the background. A name of its own is only possible before a
 * compound command, and too seldom to be understood. */
static struct bash_node *bash_command_coproc(struct bash_state *st) {
    struct bash_node *n = bash_node_new(st, BASH_ASYNC);

    if (n == NULL)
        return NULL;
    bash_lex_blank(st);
    n->a = bash_command_starts(st) ? bash_command(st) : NULL;
    if (n->a == NULL) {
        bash_lex_fail(st, "a command is missing");
        return NULL;
    }
    for (const struct bash_word *w = n->a->words; n->a->kind == BASH_SIMPLE && w != NULL;
         w = w->next)
        if (strchr("{[(", w->text[0]) != NULL || strcmp(w->text, "while") == 0 ||
            strcmp(w->text, "if") == 0 || strcmp(w->text, "for") == 0 ||
            strcmp(w->text, "case") == 0 || strcmp(w->text, "until") == 0 ||
            strcmp(w->text, "select") == 0) {
            bash_lex_fail(st, "a coprocess with a name");
            return NULL;
        }
    return n;
}

static struct bash_node *bash_command_brace(struct bash_state *st) {
    struct bash_node *n = bash_node_new(st, BASH_GROUP);

    return n == NULL || bash_command_body(st, &n->a, "}") < 0 ? NULL : n;
}

/* NULL with st->why unset: it is a simple command. */
static struct bash_node *bash_command_compound(struct bash_state *st) {
    static const char *const words[] = {"if", "while", "until", "for", "select", "case", "{", "[["};
    size_t i = 0, count = sizeof(words) / sizeof(words[0]);
    struct bash_node *n;
    struct bash_redir **link;
    int rc;

    while (i < count && !bash_command_is(st, words[i]))
        i++;
    if (i == count && bash_lex_at(st, 0) != '(')
        return NULL;
    if (++st->depth > BASH_DEPTH_MAX) {
        bash_lex_fail(st, "it is nested too deeply");
        return NULL;
    }
    st->pos += i < count ? strlen(words[i]) : 0;
    n = i == 0   ? bash_command_if(st)
        : i <= 2 ? bash_command_while(st)
        : i <= 4 ? bash_command_for(st, i == 3)
        : i == 5 ? bash_command_case(st)
        : i == 6 ? bash_command_brace(st)
        : i == 7 ? bash_cond(st)
                 : bash_command_paren(st);
    if (n == NULL) {
        bash_lex_fail(st, "a compound command that is not understood");
        return NULL;
    }
    link = &n->redirs;
    do {
        bash_lex_blank(st);
        rc = bash_simple_redir(st, &link);
    } while (rc == 1);
    st->depth--;
    return rc < 0 ? NULL : n;
}

struct bash_node *bash_command(struct bash_state *st) {
    struct bash_node *n;

    if (bash_command_is(st, "function") || bash_command_is(st, "coproc")) {
        bool function = st->s[st->pos] == 'f';

        if (++st->depth > BASH_DEPTH_MAX) {
            bash_lex_fail(st, "it is nested too deeply");
            return NULL;
        }
        st->pos += function ? 8 : 6;
        n = function ? bash_command_function(st) : bash_command_coproc(st);
        st->depth--;
        return n;
    }
    /* They begin a pipeline, not a command. */
    if (bash_command_is(st, "!") || bash_command_is(st, "time")) {
        bash_lex_fail(st, "a reserved word that cannot stand there");
        return NULL;
    }
    n = bash_command_compound(st);
    return n != NULL || st->why != NULL ? n : bash_simple(st);
}
