/* Inside the parser: its state, and words. Only bash_*.c include this. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "bash_ast.h"
#include "bash_parse.h"

struct bash_heredoc {
    const char *end; /* the line that ends it */
    size_t end_len;
    bool quoted, tabs; /* nothing is expanded; leading tabs are dropped */
    struct bash_word *word;
    struct bash_heredoc *next;
};

struct bash_state {
    struct arena *arena;
    const char *s;
    size_t len, pos;
    unsigned depth;
    size_t commands;
    struct bash_heredoc *pending; /* bodies that begin after this line, in order */
    const char *why;              /* set once: nothing is read after that */
    size_t at;
};

/* A word in the making. Braces and commas outside of quotes are markers until bash_brace_expand().
 */
#define BASH_BUILD_OPEN '\006'
#define BASH_BUILD_CLOSE '\007'
#define BASH_BUILD_COMMA '\010'

struct bash_build {
    char *data;
    size_t len, cap;
    unsigned flags;
    struct bash_node *subs, *last;
    const char *alt;
    bool brace, failed;
};

/* Everything here returns 0/-1 or NULL on failure, with state->why set. */
int bash_lex_fail(struct bash_state *st, const char *why);
/* The byte at pos + ahead; '\0' past the end. */
static inline char bash_lex_at(const struct bash_state *st, size_t ahead) {
    return st->pos + ahead < st->len ? st->s[st->pos + ahead] : '\0';
}
/* Blanks, continued lines and a comment. */
void bash_lex_blank(struct bash_state *st);
/* Blanks and newlines with the here-documents that begin after them. */
int bash_lex_lines(struct bash_state *st);
/* Past an operator of `n` bytes. One that a continued line may make longer is refused. */
int bash_lex_operator(struct bash_state *st, size_t n);
bool bash_lex_is_meta(char c); /* ends a word: blank, newline, ; & | < > ( ) */
bool bash_lex_is_name(const char *s, size_t len);
static inline bool bash_lex_is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void bash_build_byte(struct bash_state *st, struct bash_build *b, char c);
void bash_build_any(struct bash_state *st, struct bash_build *b, unsigned flags);
void bash_build_sub(struct bash_build *b, struct bash_node *node);
struct bash_word *bash_build_end(struct bash_state *st, struct bash_build *b);

enum bash_place {
    BASH_PLACE_PLAIN,
    BASH_PLACE_QUOTES, /* between double quotes, in a here-document, in arithmetic */
};

/* bash_word.c: one word at pos, which is not a blank; without brace expansion. */
struct bash_word *bash_word_read(struct bash_state *st);
/* The same after brace expansion: none, one or many. Appends to *link and returns the new end. */
struct bash_word **bash_word_expand(struct bash_state *st, struct bash_word **link);
/* Content of double quotes up to and with the closing one. */
int bash_word_quotes(struct bash_state *st, struct bash_build *b);

/* bash_dollar.c: what begins with the "$" or "`" that is next. */
int bash_dollar(struct bash_state *st, struct bash_build *b, enum bash_place place);
int bash_dollar_backtick(struct bash_state *st, struct bash_build *b, enum bash_place place);
/* <( ) and >( ). */
int bash_dollar_process(struct bash_state *st, struct bash_build *b);
/* bash_arith.c: arithmetic up to `end`, which is consumed: "))" , ";" or "}" or "]". */
int bash_arith(struct bash_state *st, struct bash_build *b, const char *end);
/* bash_ansi.c: behind $' up to and with the closing quote. */
int bash_ansi(struct bash_state *st, struct bash_build *b);
/* bash_brace.c: turns the markers of braces into words. Returns the new end of the list. */
struct bash_word **bash_brace_expand(struct bash_state *st, struct bash_word *word,
                                     struct bash_word **link);
/* Braces become literal again: where bash does not expand them. */
void bash_brace_keep(struct bash_word *word);
bool bash_brace_there(const struct bash_word *word);

/* bash_here.c */
int bash_here_add(struct bash_state *st, struct bash_word *end, bool tabs, struct bash_word *body);
int bash_here_read(struct bash_state *st);

/* bash_list.c: commands up to what cannot begin one. *node may become NULL. */
int bash_list(struct bash_state *st, struct bash_node **node);
struct bash_node *bash_node_new(struct bash_state *st, enum bash_kind kind);
/* bash_command.c: one command with its redirections. */
struct bash_node *bash_command(struct bash_state *st);
/* Is this reserved word next, at the start of a command? */
bool bash_command_is(const struct bash_state *st, const char *reserved);
bool bash_command_starts(const struct bash_state *st);
/* Consumes it or fails. */
int bash_command_need(struct bash_state *st, const char *reserved);
/* bash_simple.c */
struct bash_node *bash_simple(struct bash_state *st);
/* 1 = a redirection was read into **link (which advances), 0 = none is next, -1. */
int bash_simple_redir(struct bash_state *st, struct bash_redir ***link);
/* bash_cond.c: behind [[ up to and with ]] */
struct bash_node *bash_cond(struct bash_state *st);
