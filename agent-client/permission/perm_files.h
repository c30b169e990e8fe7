/* Where rules come from: the files of the system, of the user, of the workspace, and what "always
 * allow" stored. This is the part that reads and writes files; the engine does not.
 *
 *   /etc/pinfold/permissions.rules             system
 *   CONFIG/permissions.rules                   user
 *   CONFIG/grants/ID.rules                     user: "always allow" for this workspace
 *   WORKSPACE/.pinfold/permissions.rules       workspace: may only tighten until it is trusted
 *   CONFIG/trusted                             one "SHA256 PATH" a line
 *
 * CONFIG is $XDG_CONFIG_HOME/pinfold or ~/.config/pinfold. A file that is there and cannot be read,
 * that somebody else may write, or that has an error, refuses everything. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "perm.h"

#define PERM_FILES_HASH 65 /* hexadecimal SHA-256 with its NUL */

#define PERM_FILES_GRANTS "always allowed"

struct perm_file {
    enum rule_layer layer;
    const char *what; /* "system", "user", PERM_FILES_GRANTS, "workspace", "session" */
    char path[PATH_MAX];
    bool there, trusted;
    size_t rules;
    char hash[PERM_FILES_HASH];
};

#define PERM_FILES_MAX 5
struct perm_files {
    char workspace[PATH_MAX], home[PATH_MAX], config[PATH_MAX], state[PATH_MAX];
    struct perm_file file[PERM_FILES_MAX];
    size_t count;
    char policy[PERM_FILES_HASH]; /* over all that was loaded */
};

/* Finds the directories: `workspace` NULL = the current directory. */
int perm_files_find(struct perm_files *f, const char *workspace, struct err *err);
/* Loads all of them and checks the examples. `rules` (may be NULL) replaces the user's files;
 * `session` (may be NULL) is a file that may only tighten. `set` and `perm` are owned by the caller
 * afterwards; on failure they are empty. */
int perm_files_load(struct perm_files *f, const char *rules, const char *session,
                    const struct perm_config *config, struct rule_set *set, struct perm *perm,
                    struct err *err);

/* The workspace's file with this content is trusted from now on, or no more. */
int perm_files_trust(const struct perm_files *f, bool trust, struct err *err);
/* Adds a rule to what is always allowed in this workspace, atomically. 1 = it was there already. */
int perm_files_allow(const struct perm_files *f, const char *rule, struct err *err);

/* perm_resolve of the local file system. */
int perm_files_resolve(void *arg, const char *path, char *out, size_t size);
