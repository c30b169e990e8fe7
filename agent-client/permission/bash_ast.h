/* What a bash command is made of, as far as somebody who judges it needs to know.
 *
 * A word is a text in which everything that is not literal is a marker: one control byte for text
 * that only the running shell will know (BASH_MARK_ANY), and others for what a glob matches.
 * Control bytes cannot come from the command itself: bash_parse() refuses them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define BASH_MARK_ANY '\001'   /* an expansion: any text, slashes included, or none */
#define BASH_MARK_STAR '\002'  /* "*" of a glob: any text without a slash */
#define BASH_MARK_ONE '\003'   /* "?" or "[…]" of a glob: one character */
#define BASH_MARK_SET '\004'   /* "[" of a glob; only while a word is read */
#define BASH_MARK_TILDE '\005' /* "~" alone or before a slash: the home directory */

enum bash_word_flag {
    BASH_WORD_DYNAMIC = 1, /* holds BASH_MARK_ANY or BASH_MARK_TILDE */
    BASH_WORD_SPLIT = 2,   /* an expansion outside of quotes: may become none or many words */
    BASH_WORD_GLOB = 4,    /* may become many words, names of files */
    BASH_WORD_QUOTED = 8,  /* a quote or a backslash was in it */
    BASH_WORD_RISKY = 16,  /* evaluating it may run code that is not in the command's text */
    BASH_WORD_JOINED = 32, /* was continued over the end of a line */
};

struct bash_node;

struct bash_word {
    char *text; /* NUL-terminated; no other NUL is in it */
    size_t len;
    unsigned flags;         /* enum bash_word_flag */
    size_t name_len;        /* of an assignment: length of the name before "=", "+=" or "[" */
    struct bash_node *subs; /* commands that are run to expand it, linked by `next` */
    const char *alt;        /* the literal of ${x:-literal} when that is all of the word; or NULL */
    struct bash_word *next;
};

enum bash_redir_op {
    BASH_IN,          /* < */
    BASH_OUT,         /* > >> >| &> &>> and >& with a name */
    BASH_BOTH,        /* <> */
    BASH_DUP,         /* <& >& with a number or "-" */
    BASH_HERE,        /* << <<- ; word holds what the body expands */
    BASH_HERE_STRING, /* <<< */
};

struct bash_redir {
    enum bash_redir_op op;
    bool var; /* {name}> : assigns to a variable */
    struct bash_word *word;
    struct bash_redir *next;
};

enum bash_kind {
    BASH_SIMPLE,   /* assigns, words, redirs */
    BASH_SEQ,      /* a, then b: ";", newline */
    BASH_ASYNC,    /* a in the background */
    BASH_AND,      /* a && b */
    BASH_OR,       /* a || b */
    BASH_PIPE,     /* a | b, each in a process of its own */
    BASH_NOT,      /* ! a */
    BASH_GROUP,    /* { a } */
    BASH_SUBSHELL, /* ( a ) , and a in <( ) */
    BASH_IF,       /* a: condition, b: then, c: else (or NULL) */
    BASH_WHILE,    /* a: condition, b: body; also until */
    BASH_FOR,      /* words; b: body; also select. `name` is assigned to */
    BASH_CASE,     /* words: the subject and all patterns; a: bodies linked by `next` */
    BASH_FUNCTION, /* name; a: body */
    BASH_COND,     /* [[ words ]] */
    BASH_ARITH,    /* (( )); words: one, with what it expands */
};

struct bash_node {
    enum bash_kind kind;
    struct bash_node *a, *b, *c;
    struct bash_node *next;
    struct bash_word *assigns, *words;
    struct bash_redir *redirs; /* also of compound commands */
    const char *name;
    bool risky; /* as BASH_WORD_RISKY, for what is no word */
};
