/* A workspace on this machine and its sandbox on the server.
 *
 *   project_open   rules, journal, what is known of last time; one process at a time
 *   project_push   the workspace as it may be sent goes into the sandbox, which is made if needed
 *   …              a command runs there
 *   project_pull   what it changed comes back: rules, then the journal, then the workspace
 *
 * What `deny read` covers is never sent; what `deny write` covers never comes back; what ignore
 * files name stays where it is, on either side. Nothing of the sandbox's is believed: paths are
 * resolved beneath the workspace, contents are hashed, links must not lead out. When the server is
 * away, that is an error; nothing runs here instead. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "perm_files.h"
#include "permission_exec.h"
#include "rest.h"
#include "undo.h"
#include "ws_tree.h"

#define PROJECT_SANDBOX_MAX 68
#define PROJECT_ROOT_IN_SANDBOX "/workspace"
/* What the sandbox's user needs of a file beside its mode here. */
#define PROJECT_FILE_MODE(mode) ((mode) | 0600u)
#define PROJECT_SENT_CACHE "sent.cache" /* ws_cache: what the sandbox has of us */

struct project_options {
    const char *workspace; /* NULL: the directory that holds .pinfold or .git, from here upwards,
                              else this one */
    const char *rules;     /* a file that replaces the user's; NULL = none */
    const char *session;   /* a file that may only tighten; NULL = none */
    const char *policy, *image; /* of a sandbox that is made; NULL = the server's default */
    bool headless;              /* nobody can be asked */
    /* Asks a person; false = no. NULL with headless. */
    bool (*confirm)(void *arg, const char *question);
    /* Beside the rules: may this path be changed here? false with a sentence in why[size]. NULL =
     * the rules decide alone. */
    bool (*may_write)(void *arg, const char *path, char *why, size_t size);
    /* A line for people while something takes long, or went otherwise than expected. May be NULL.
     */
    void (*note)(void *arg, const char *text);
    void *arg;
};

struct project {
    struct project_options options;
    char path[PATH_MAX];   /* of the workspace, resolved */
    char inside[PATH_MAX]; /* the current directory below it; "" = itself */
    int root, state, lock; /* descriptors; owned */
    struct perm_files files;
    struct rule_set rules;
    struct perm perm;
    struct permission_exec decide;
    struct undo *undo;
    struct rest *rest;                 /* borrowed */
    char sandbox[PROJECT_SANDBOX_MAX]; /* "" = none yet */
    char url[256];
    uint64_t room;                    /* bytes that the sandbox can hold; 0 = not known */
    struct ws_tree tree;              /* as it was sent */
    unsigned char sent[WS_TREE_HASH]; /* digest of what the sandbox has of us */
    bool synced;                      /* `sent` counts */
    bool fresh;                       /* the sandbox was made by this process */
    bool refused;                     /* the sandbox holds what was kept away from here */
};

/* One path that did not come back, or not as it was. */
struct project_problem {
    char *path;
    char *why; /* one sentence without a full stop, with the rule where there is one */
};

#define PROJECT_PROBLEMS_MAX 1000u

struct project_report {
    char id[UNDO_ID_SIZE]; /* of the journal's entry; "" = nothing changed here */
    size_t created, modified, deleted;
    size_t ignored; /* stay in the sandbox, by the ignore files */
    struct project_problem *problems;
    size_t problem_count; /* kept: at most PROJECT_PROBLEMS_MAX */
    size_t denied, conflicts;
};

int project_open(struct project *p, const struct project_options *options, struct rest *rest,
                 const char *url, struct err *err);
void project_close(struct project *p); /* zeroed allowed */

/* Reads the rules again after a person stored one for always. The rules of a session are frozen but
 * for that: when another file than that of the stored rules differs, or something is wrong with
 * one, nothing changes (1). -1: there are no rules any more, and nothing may run. Verdicts from
 * before are gone. */
int project_regrant(struct project *p, struct err *err);

/* Takes a new picture of the workspace: p->tree. */
int project_look(struct project *p, struct err *err);
int project_push(struct project *p, struct err *err);
/* As project_push(), whatever is known; and nothing that is not here stays there, but for what
 * ignore files name: the sandbox then has exactly this tree. */
/* `used`: files were sent to it before, and commands ran since. */
int project_push_exact(struct project *p, bool used, struct err *err);
/* `label` and `by` are for the journal (undo.h). The caller owns *report, also after -1. */
struct project_pull {
    const char *label, *by, *session;
};
int project_pull(struct project *p, const struct project_pull *what, struct project_report *report,
                 struct err *err);
void project_report_done(struct project_report *report);

/* project_settle.c: notes whether the sandbox has what is here, so that the next command need not
 * send it again: everything that differs from what was sent is among `changes`, which came from
 * there, and nothing was kept away. Else the next project_push() brings it to what is here. */
int project_settle(struct project *p, const struct project_report *report,
                   const struct undo_change *changes, size_t count, struct err *err);

/* project_box.c: the sandbox of the workspace exists, or is made. */
int project_box(struct project *p, struct err *err);
/* Another sandbox as a new workspace would get it, which ends by itself after `ms`: its id. */
int project_box_fresh(struct project *p, uint64_t ms, char id[PROJECT_SANDBOX_MAX],
                      struct err *err);
/* A copy of the sandbox, without its processes: its id. It ends after `ttl_ms`, whatever becomes of
 * us. */
int project_box_fork(struct project *p, uint64_t ttl_ms, char id[PROJECT_SANDBOX_MAX],
                     struct err *err);
int project_box_delete(struct project *p, const char *id, struct err *err);
/* Writes down what is known for the next time. */
int project_save(const struct project *p, struct err *err);

/* project_private.c: files and directories outside of the workspace that rules keep from being
 * read. The caller owns *out, also after -1. */
struct project_places {
    char **path;
    size_t count;
};
int project_private(const struct project *p, struct project_places *out, struct err *err);
void project_places_done(struct project_places *places);

/* project_ignore.c: would this change of an ignore file take in what is left out here? */
int project_ignore_loosens(const struct project *p, const struct undo_change *c, bool *loosens,
                           struct err *err);
/* project_pull.c: adds a problem; texts are copied. */
void project_problem(struct project_report *report, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* project_pull.c: calls `each` for every path that differs in the sandbox from what was sent. */
struct project_pull_entry {
    char path[WS_TREE_PATH_MAX], target[WS_TREE_PATH_MAX];
    bool deleted;
    const char *type; /* "file", "directory", "symlink", … */
    uint32_t mode;
};
int project_pull_each(struct project *p,
                      int (*each)(void *arg, const struct project_pull_entry *entry,
                                  struct err *err),
                      void *arg, struct err *err);
/* "/v1/sandboxes/ID/files/workspace/PATH?query" */
int project_file_url(const struct project *p, const char *path, const char *query, char *dst,
                     size_t size, struct err *err);
