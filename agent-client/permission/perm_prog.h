/* What is known of programs: which run another command that stands in their words, which do nothing
 * with their words but print them, which have options that write a file or run something.
 *
 * The table is about what an allow rule may not cover by accident, and about where a denied command
 * may hide. A program that is not in it is nothing special: no rule, no permission. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "bash_ast.h"

enum perm_prog_kind {
    PERM_PROG_OTHER,
    PERM_PROG_WORDS,  /* prints or compares its words; opens nothing that they name */
    PERM_PROG_READER, /* reads the files that its words name, and writes none */
    PERM_PROG_WRITER, /* writes, moves or removes them */
    PERM_PROG_WRAP,   /* runs the command behind its own options */
    PERM_PROG_JOIN,   /* the same, and a shell reads it again: watch, ssh, eval */
    PERM_PROG_SCAN,   /* runs a command somewhere in its words */
    PERM_PROG_SHELL,  /* sh -c */
    PERM_PROG_FIND,
    PERM_PROG_INTERP, /* runs programs in a language of its own */
    PERM_PROG_STATE,  /* a builtin that changes variables or what names mean */
};

struct perm_prog {
    const char *name;
    enum perm_prog_kind kind;
    /* Of wrappers: its short options as in getopt(), "x!" = the value is a command for a shell;
     * then, behind a blank, its long options, those with a value as "name=", or "name!". */
    const char *options;
    /* Options that write a file or run something, separated by blanks: "-o", "--output", "NAME=".
     */
    const char *risky;
    unsigned char skip;    /* wrappers: operands before the command */
    bool assigns, appends; /* NAME=VALUE before the command; more words behind it */
};

const struct perm_prog *perm_prog_find(const char *name); /* NULL when it is not in the table */
/* The table, in order of names. */
const struct perm_prog *perm_prog_table(size_t *count);

struct perm_words {
    const struct bash_word *const *word;
    size_t count;
};

/* Is word `i` one that an allow rule must name to allow? */
bool perm_prog_risky(const struct perm_prog *prog, const struct perm_words *w, size_t i);

/* Where the command of a wrapper begins. */
struct perm_inner {
    bool exact;                    /* false: an option is not known; it may begin anywhere */
    size_t at;                     /* == count when there is none */
    const struct bash_word *shell; /* the word with the value of an option that a shell will read */
    const char *shell_text;        /* where in it the value begins */
    size_t assigns;                /* NAME=VALUE words right before `at` */
};
struct perm_inner perm_prog_inner(const struct perm_prog *prog, const struct perm_words *w);

/* May the variable be set before any command, whatever its value? */
bool perm_prog_benign(const char *name, size_t len);
/* The same for one that no environment holds: a loop's, read's. */
bool perm_prog_local(const char *name, size_t len);
/* A shell, an interpreter or a wrapper: "always allow" would allow anything. */
bool perm_prog_runs_anything(const char *name);
