/* The permission engine: a command in, a verdict with its reasons out.
 *
 * The order is fixed: guard > deny > ask > allow > default (ask), and the strictest over all parts
 * of a command and over all files of rules. A part is a simple command, a redirection or an
 * assignment, wherever it stands: in a list, a pipe, a function, a substitution, a here-document,
 * behind a wrapper such as env or xargs, in the text of sh -c. What cannot be read with certainty
 * is opaque: no rule can allow it, and its words are still searched for what is denied.
 *
 * The engine is pure: it reads no file and runs nothing. Where links lead, it asks the caller. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "err.h"
#include "rule.h"

/* Where an absolute path leads when every link is followed; components that do not exist are kept.
 * 0 with the path in out[size], or -1: not known. */
typedef int perm_resolve(void *arg, const char *path, char *out, size_t size);

struct perm_config {
    perm_resolve *resolve; /* NULL: there are no links */
    void *arg;
    bool headless; /* nobody can be asked: ask is deny */
};

struct perm {
    const struct rule_set *rules;
    struct perm_config config;
    struct arena arena, fixed; /* of one command; of all */
    struct rule_path workspace, real_workspace, home;
    bool reads, writes; /* there are rules that deny or ask for a path */
};

struct perm_part {
    const char *text;          /* the command, redirection or assignment, for people */
    enum rule_verdict verdict; /* never RULE_NONE */
    const struct rule *rule;   /* that decided; NULL = the default */
    const char *why;           /* one sentence without a full stop */
    bool opaque;               /* it was not understood */
    const char *always;        /* the rule that "always allow" would store, or NULL: not offered */
};

struct perm_verdict {
    enum rule_verdict verdict; /* never RULE_NONE */
    bool empty;                /* there was no command to judge (and the verdict is deny) */
    const struct rule *rule;   /* of the first of the strictest parts; or NULL */
    const char *why;
    const struct perm_part *parts;
    size_t count;
    /* Of a single simple command that holds nothing but literal words: its words, NULL-terminated,
     * to be run without a shell. Otherwise NULL. */
    const char *const *argv;
    /* Two or more literal words that "always allow" may be offered for, or NULL; see perm_always.h
     */
    size_t always;
};

/* `rules` is borrowed and must not change. */
int perm_init(struct perm *p, const struct rule_set *rules, const struct perm_config *config,
              struct err *err);
void perm_done(struct perm *p); /* accepts NULL and a zeroed struct */

/* The verdict is valid until the next call. Never fails: what goes wrong is a deny. */
const struct perm_verdict *perm_judge(struct perm *p, const char *command, size_t len);
/* A path of the client's own tools. `kind` is RULE_READ or RULE_WRITE; `path` as for a command that
 * runs in the workspace. */
const struct perm_verdict *perm_judge_path(struct perm *p, enum rule_kind kind, const char *path);
/* net: "host:port"; model: "local" or a name; tool: a name. */
const struct perm_verdict *perm_judge_subject(struct perm *p, enum rule_kind kind,
                                              const char *subject);

/* Do all `?` and `!` examples of the rules hold? ERR_INVALID with file and line of the first that
 * does not. */
int perm_check_examples(struct perm *p, struct err *err);
