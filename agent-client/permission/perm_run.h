/* Inside the engine: the judging of one command. Only perm_*.c include this. */
#pragma once

#include <stdint.h>

#include "bash_parse.h"
#include "perm.h"
#include "perm_prog.h"

#define PERM_PARTS_MAX 1024u
#define PERM_WORDS_MAX 4096u
#define PERM_DEPTH_MAX 8u
#define PERM_TEXT_MAX 400u

/* The directories that a command may be in: a bit per entry of run->cwd. */
#define PERM_CWD_MAX 31u
#define PERM_CWD_UNKNOWN (1u << 31)
typedef uint32_t perm_cwd;

/* Where a command may be afterwards, when it went well and when it failed. */
struct perm_state {
    perm_cwd ok, fail;
};

struct perm_part_link {
    struct perm_part part;
    struct perm_part_link *next;
};

struct perm_run {
    struct perm *perm;
    struct perm_part_link *first, *last;
    struct perm_part_link spare; /* the first part, when there is no memory for it */
    size_t count;
    struct rule_path *cwd[PERM_CWD_MAX];
    size_t cwds;
    unsigned depth;
    bool moves;                         /* the command may change its directory */
    const struct rule_example *example; /* only this is looked for */
    bool met, missed;                   /* a part fits its rule; one does not */
};

/* A new part; when there are too many or no memory, the last one again, which then is a deny. */
struct perm_part *perm_part_new(struct perm_run *run, const char *text);
/* The part is at least this strict. */
void perm_part_note(struct perm_part *part, enum rule_verdict verdict, const struct rule *rule,
                    const char *why);
/* Text of words for people: marks become "…", "*", "?"; cut. */
const char *perm_text(struct perm_run *run, const struct bash_word *const *word, size_t count);

/* perm_walk.c */
/* The whole command, from the workspace. */
void perm_walk_start(struct perm_run *run, const struct bash_node *tree);
struct perm_state perm_walk(struct perm_run *run, const struct bash_node *node, perm_cwd cwd);
/* Parses and walks the text of a shell; what cannot be parsed is opaque. */
struct perm_state perm_script(struct perm_run *run, const char *text, size_t len, perm_cwd cwd);
/* cd, pushd, popd with these words. */
perm_cwd perm_walk_cd(struct perm_run *run, const struct perm_words *w, perm_cwd cwd);

/* perm_exec.c: one command with its words. */
struct perm_state perm_exec(struct perm_run *run, const struct perm_words *w, perm_cwd cwd);

/* perm_always.c: the rule that "always allow" may offer, or NULL. */
const char *perm_always_rule(struct perm_run *run, const struct perm_words *w,
                             const struct perm_prog *prog);

/* perm_deny.c: looks for what is denied or asked for, wherever it begins, and notes it. */
void perm_deny_suffixes(struct perm_run *run, struct perm_part *part, const struct perm_words *w,
                        bool wrapper);
void perm_deny_scan(struct perm_run *run, struct perm_part *part, const char *text, size_t len);
/* The strictest deny or ask rule for exactly these words, or NULL. */
const struct rule *perm_deny_rule(struct perm_run *run, const struct perm_words *w);

/* perm_path.c */
/* `text` from directory `cwd` (an index of run->cwd, or PERM_CWD_MAX = not known). */
int perm_path_build(struct perm *p, const struct rule_path *cwd, const char *text,
                    struct rule_path *out);
bool perm_path_inside(struct perm *p, const struct rule_path *path);
/* Notes what rules of the kind say. `own` = the path must be allowed by itself (a redirection);
 * otherwise only deny and ask rules count. */
struct perm_path_ask {
    enum rule_kind kind;
    bool own;
    bool soft; /* a deny is only a reason to ask: nobody knows whether it is written */
};
void perm_path_judge(struct perm_run *run, struct perm_part *part, const char *text, perm_cwd cwd,
                     const struct perm_path_ask *ask);
/* Every path that a word may name: itself, what is behind "=", "@", ":", "-x". */
void perm_path_word(struct perm_run *run, struct perm_part *part, const struct bash_word *word,
                    perm_cwd cwd, const struct perm_path_ask *ask);
/* The name of the program, for rules about its bare name: NULL when a path leads to a program of
 * the workspace, or when it is not known. *path = it was named by a path. */
const char *perm_path_program(struct perm_run *run, const struct bash_word *word, perm_cwd cwd,
                              bool *path);
