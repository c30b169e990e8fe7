// Rules: what a file of them says, and whether one matches.
//
//   deny  exec  git push **              "people push"
//   ? git push origin main
//   ! git status
//   allow write src/** tests/**
//
// A line is a verdict, a kind and patterns. "?" and "!" examples (on lines of their own behind the
// rule, or at its end) must and must not match; they are checked when the file is loaded. A text in
// double quotes at the end is the reason that people are told. 'single quotes' make a word of exec
// literal. A line whose first character is "#", and everything behind a blank and "#", is a
// comment.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "bash_ast.h"
#include "err.h"

/* In order of strictness. */
enum rule_verdict { RULE_NONE, RULE_ALLOW, RULE_ASK, RULE_DENY };
enum rule_kind { RULE_EXEC, RULE_READ, RULE_WRITE, RULE_NET, RULE_MODEL, RULE_TOOL };
#define RULE_KINDS 6
/* RULE_GUARD cannot be lifted by anything; RULE_DEFAULT gives way to an allow rule. */
enum rule_layer { RULE_GUARD, RULE_SYSTEM, RULE_USER, RULE_WORKSPACE, RULE_SESSION, RULE_DEFAULT };

const char *rule_verdict_name(enum rule_verdict v); /* "allow", "ask", "deny", "none" */

enum rule_token_type {
    RULE_TOKEN_TEXT,  /* one of the alternatives, in which "*" is any text */
    RULE_TOKEN_ANY,   /* "*": exactly one word */
    RULE_TOKEN_REST,  /* "**" at the end: any number of words */
    RULE_TOKEN_PATH,  /* "<path>": a word that is a path in the workspace */
    RULE_TOKEN_PATHS, /* "<path>*" at the end: any number of them */
};

struct rule_token {
    enum rule_token_type type;
    bool plain; /* no "*" in any alternative */
    const char **alt;
    size_t count;
};

/* A path pattern, from the root of the file system, one component each; "**" is any number. */
struct rule_parts {
    const char **part;
    size_t count;
    bool anywhere;    /* begins with "**": the place in the file system does not matter */
    size_t lead;      /* components at the beginning that are plain names */
    const char *last; /* the end that the last component must have; NULL = any */
    size_t last_len;
    bool last_plain; /* it is all of it */
    /* Large and small letters are the same: for what is secret by its name on any file system. */
    bool fold;
};

struct rule {
    enum rule_verdict verdict;
    enum rule_kind kind;
    enum rule_layer layer;
    bool untrusted; /* of a workspace file that nobody trusted: an allow that does not count */
    struct rule_token *token; /* exec */
    size_t tokens;
    struct rule_parts parts; /* read, write */
    const char *subject;     /* net, model, tool */
    const char *text;        /* the rule as one line, blanks folded */
    const char *reason;      /* or NULL */
    const char *file;
    unsigned line;
};

struct rule_example {
    size_t first, count; /* of rules[]: those of the line that it belongs to */
    enum rule_kind kind;
    bool must;
    const char *text;
    const char *file;
    unsigned line;
};

#define RULE_MAX 4096u
#define RULE_FILE_MAX ((size_t)256 * 1024)
#define RULE_LINE_MAX 4096u
#define RULE_TOKENS_MAX 64u
#define RULE_ALTERNATIVES_MAX 64u
#define RULE_PARTS_MAX 64u

struct rule_set {
    struct arena arena;
    const char *workspace, *home; /* absolute, without a slash at the end; of the arena */
    struct rule *rules;           /* in the order of the files */
    size_t count, cap;
    size_t *of[RULE_KINDS]; /* indexes by kind */
    size_t of_count[RULE_KINDS];
    struct rule_example *examples;
    size_t example_count, example_cap;
    unsigned char digest[32]; /* SHA-256 over all that was loaded */
};

/* `workspace` and `home` are absolute. */
int rule_set_init(struct rule_set *set, const char *workspace, const char *home, struct err *err);
void rule_set_done(struct rule_set *set); /* accepts NULL and a zeroed struct */

/* Adds the rules of a file's text. ERR_INVALID with "file:line: …" on the first thing that is
 * wrong; the set is then of no use. Allow rules of an untrusted file are kept, and never match. */
int rule_load(struct rule_set *set, enum rule_layer layer, bool trusted, const char *file,
              const char *text, size_t len, struct err *err);

/* rule_builtin.c: the guard, which nothing lifts; to be loaded first. */
int rule_load_guard(struct rule_set *set, const char *config_dir, const char *state_dir,
                    struct err *err);
/* The defaults; last, so that of two rules that say the same the user's own is named. */
int rule_load_default(struct rule_set *set, struct err *err);

/* rule_line.c: one line that is neither empty nor an example; appends to the set. */
struct rule_where {
    enum rule_layer layer;
    bool trusted;
    const char *file;
    unsigned line;
};
int rule_line(struct rule_set *set, const struct rule_where *where, const char *line,
              struct err *err);
int rule_add(struct rule_set *set, const struct rule *rule, struct err *err);
int rule_add_example(struct rule_set *set, const struct rule_where *where, bool must,
                     const char *text, struct err *err);
/* rule_path.c: a pattern of read or write. */
int rule_path_compile(struct rule_set *set, const char *pattern, bool allow, struct rule_parts *out,
                      struct err *err);

/* Does `text` fit `pattern`, in which "*" is any text? Both may hold marks of a word on the side of
 * `text`: then whether they can be the same. */
bool rule_glob(const char *pattern, const char *text);
bool rule_glob_fold(const char *pattern, const char *text); /* whatever the case of letters */

/* ---- matching ---- */

#define RULE_PATH_MAX 64u
/* A path that a command names. */
struct rule_path {
    bool anywhere; /* below some directory that is not known */
    bool marked;   /* a component holds a mark */
    size_t count;
    const char *name; /* the last component, and its length; NULL = look at part[] */
    size_t name_len;
    const char *part[RULE_PATH_MAX]; /* may hold marks */
};

static inline char rule_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Cannot fit, told by the end of the last component: nearly every path fits nearly no pattern. */
static inline bool rule_path_far(const struct rule_parts *pattern, const struct rule_path *path) {
    if (path->name == NULL || path->marked || pattern->last == NULL)
        return false;
    if (path->name_len < pattern->last_len ||
        (pattern->last_plain && path->name_len != pattern->last_len))
        return true;
    if (pattern->last_len == 0)
        return false;
    char a = path->name[path->name_len - 1], b = pattern->last[pattern->last_len - 1];
    return a != b && !(pattern->fold && rule_lower(a) == rule_lower(b));
}

enum rule_fit { RULE_FIT_NO, RULE_FIT_MAYBE, RULE_FIT_YES };
/* For deny and ask: RULE_FIT_YES when nothing but the place of the path, or a glob, is unknown. */
enum rule_fit rule_path_may(const struct rule_parts *pattern, const struct rule_path *path);
/* For allow: every path that this can become fits. */
bool rule_path_must(const struct rule_parts *pattern, const struct rule_path *path);

struct rule_words {
    const struct bash_word *const *word;
    size_t count;
    bool loose; /* the program does nothing with its words but print or compare them */
    /* Is the word a path in the workspace, as written and as resolved? */
    bool (*inside)(void *arg, const struct bash_word *word);
    void *arg;
};
/* For allow: every command that these words can become fits, in exactly this order. */
bool rule_exec_must(const struct rule *rule, const struct rule_words *words);
/* For deny and ask: options may stand in any order, in clusters or apart, and words that may become
 * nothing may be missing. */
bool rule_exec_may(const struct rule *rule, const struct rule_words *words);

/* net, model, tool. */
bool rule_subject_fits(const struct rule *rule, const char *subject);
