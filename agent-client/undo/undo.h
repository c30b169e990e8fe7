/* The undo journal: the one way in which anything changes a workspace on this machine.
 *
 * apply_changeset() takes a list of changes and makes all of them or none. First the pre-image of
 * every path that is touched (type, mode, times, link text, extended attributes, contents by hash)
 * goes into a journal outside the workspace and is fsynced; then each change is made by a temporary
 * file and rename(2) beneath a directory descriptor of the workspace (openat2 RESOLVE_BENEATH, no
 * link is followed); then the entry is committed with the post-image. A process that dies in
 * between leaves an entry that the next undo_open() of the workspace finishes or takes back, so
 * that the workspace is entirely as before or entirely as after. When a pre-image cannot be stored,
 * nothing is written.
 *
 * Journal: JOURNAL/<id of the workspace>/ with JOURNAL = $XDG_STATE_HOME/pinfold/undo (or
 * ~/.local/state/pinfold/undo), mode 0700; contents are files named by SHA-256. It is never inside
 * the workspace. One process at a time changes something (flock); others may read. Nothing in it
 * that the journal did not make is ever removed.
 *
 * A file that has other names (hard links) is changed by the one name only: it becomes a file of
 * its own, and whatever the others are, within the workspace or not, keeps contents, mode and
 * times. To undo that brings contents, mode and times back under its name; the names are not joined
 * again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define UNDO_HASH_SIZE 32
#define UNDO_ID_SIZE 24 /* "ch_" and a number that grows: ids of one workspace are in order */
#define UNDO_PATH_MAX 4096
#define UNDO_LABEL_MAX 200
#define UNDO_CHANGES_MAX 1000000u

struct undo;

enum undo_type { UNDO_ABSENT, UNDO_FILE, UNDO_DIR, UNDO_LINK };

/* What is, or shall be, at a path. */
struct undo_state {
    enum undo_type type;
    mode_t mode;                    /* permission bits; files and directories */
    uint64_t size;                  /* files */
    uint8_t sha256[UNDO_HASH_SIZE]; /* files: of the contents */
    const char *target;             /* links: their text */
};

/* One path. Parents that are missing are made; a directory is removed only when it is empty once
 * the changes of the set are made. */
struct undo_change {
    const char *path; /* relative to the workspace; no "..", no link on the way */
    struct undo_state after;
    /* Files: where the contents are: `after.size` bytes from `offset` on (many changes may share
     * one file), checked against after.sha256 while they are copied. -1 when only the mode changes.
     * Borrowed. */
    int fd;
    uint64_t offset;
    /* What the caller believes is there now. When it is something else, somebody changed it
     * meanwhile: the path is reported (UNDO_CONFLICT), not overwritten. */
    struct undo_state before;
    bool any_before; /* the caller does not know: take whatever is there as the pre-image */
};

enum undo_outcome {
    UNDO_APPLIED,
    UNDO_SAME,     /* it was like that already */
    UNDO_CONFLICT, /* somebody changed it meanwhile */
    UNDO_REFUSED,  /* a link on the way, another type in the way, a directory that is not empty */
};

struct undo_set {
    const char *label; /* for `pinfold log`: the command or the tool that made the changes */
    const char *by;    /* "exec", "edit", "write", "undo", "redo", … */
    const char *session;
    const char *rules; /* hash over the permission rules that allowed it; NULL = none were asked */
    struct undo_change *changes;
    size_t count;
    /* What happens when some of them cannot be made: false = nothing at all is changed. */
    bool partial;
    /* More deletions than this need confirm() == true; NULL = refuse. 0 = no limit. */
    size_t deletions_max;
    bool (*confirm)(void *arg, size_t deletions);
    void *arg;
};

struct undo_result {
    char id[UNDO_ID_SIZE];       /* of the entry; "" = nothing was changed */
    enum undo_outcome *outcomes; /* one per change; owned: free() */
    size_t applied, same, conflicts, refused;
    size_t shared; /* files that had other names (hard links) and are files of their own now */
};

/* Opens the journal of a workspace (`root`: an O_DIRECTORY descriptor, borrowed; `path`: as the
 * user knows it), makes it when it is missing, and repairs what a process that died has left. */
struct undo_options {
    int root;
    const char *path;
    const char *journal; /* NULL = where the environment says */
    uint64_t bytes_max;  /* of stored contents; 0 = 2 GiB: the oldest entries go first */
    uint64_t age_max_ms; /* 0 = 30 days */
    /* Only undo_list() and undo_contents() will follow: when another process has the journal, this
     * one does not wait. It sees the entries that are committed, all of them up to one. */
    bool reads;
    /* Called once when another process has the journal and undo_open() waits for it. May be NULL.
     */
    void (*waits)(void);
};
struct undo *undo_open(const struct undo_options *options, struct err *err);
void undo_close(struct undo *u); /* NULL allowed */

/* Makes the changes: 0, also when single paths were not possible (see result); -1: nothing was
 * changed, *err says why. The caller frees result->outcomes. */
int apply_changeset(struct undo *u, const struct undo_set *set, struct undo_result *result,
                    struct err *err);

/* Takes back one entry (or, with `until`, it and all later ones), or, with `path`, only that path
 * of it; undo_redo() makes undone ones again (with `until`, it and those before it, oldest first).
 * Without an id, a path means the newest entry that touched it and is not undone there. Journalled
 * as entries of their own; -1 after some of several entries: those stay taken back, *err says so.
 */
struct undo_choice {
    const char *id; /* NULL = the newest that is not undone (undo), undone last (redo); with
                       `until`, all of them */
    bool until;
    const char *path; /* only it and what is below it; NULL = everything */
    /* Asked before many files go; `removes` has been called for each of them (may be NULL). NULL =
     * refuse. */
    void (*removes)(void *arg, const char *path);
    bool (*confirm)(void *arg, size_t deletions);
    /* What became of each path. May be NULL. */
    void (*told)(void *arg, const char *path, enum undo_outcome outcome);
    void *arg;
};
int undo_undo(struct undo *u, const struct undo_choice *choice, struct undo_result *result,
              struct err *err);
int undo_redo(struct undo *u, const struct undo_choice *choice, struct undo_result *result,
              struct err *err);

/* Entries, newest first: calls `each` until it returns false. Texts are borrowed. */
struct undo_entry {
    const char *id, *label, *by, *session;
    const char *rules; /* "" = none were asked */
    uint64_t when_ms;  /* since the epoch */
    bool undone;
    const struct undo_change *changes; /* before and after; fd is -1 */
    size_t count;
};
int undo_list(struct undo *u, bool (*each)(void *arg, const struct undo_entry *entry), void *arg,
              struct err *err);
/* The stored contents of a state (a file of the journal), read-only; -1 = it is gone. */
int undo_contents(struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], struct err *err);
/* Checks that every entry can be taken back: contents are there and are what their names say. */
int undo_verify(struct undo *u, bool (*bad)(void *arg, const char *id, const char *why), void *arg,
                struct err *err);
/* Removes what quota and age do not allow any more, and contents that nobody refers to. */
int undo_collect(struct undo *u, uint64_t *freed_bytes, struct err *err);
