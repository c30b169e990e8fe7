/* Workspace transfer in one sandbox: brings a directory into a wanted state, and tells what has
 * changed since.
 *
 * An operation goes through stages: LOAD what is known (a worker), SCAN what is there (a file
 * operation), PLAN (a worker), HASH what cannot be told otherwise (a file operation), SETTLE (a
 * worker); a sync goes on with APPLY (a file operation) when no contents are missing, and SAVE (a
 * worker). In one sandbox one operation is at work at a time; a few more wait.
 *
 * After a sync of a tree that is large enough to matter, the sandbox gets a new live layer, so that
 * `changes` reads what was written since, instead of everything: but only when nothing ran between
 * the look at the tree and the new layer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "blobs.h"
#include "sandbox.h"
#include "sync_plan.h"
#include "sync_request.h"
#include "work.h"

#define SYNC_WAITING_MAX 16u
#define SYNC_ROOTS_MAX 16u

/* What is told to who asked. Valid during the call. */
struct sync_result {
    /* sync: */
    bool applied;
    const struct sync_need *missing;
    size_t missing_count;
    uint64_t created, modified, deleted, unchanged;
    /* changes: its nodes are settled */
    const struct sync_plan *plan;
};

/* Who asked. */
struct sync_asker {
    /* The result is there: on a worker, so that a large one can be put into words. May touch what
     * is only its own. Not called when it failed. */
    void (*encode)(void *arg, const struct sync_result *result);
    /* Last call, on the loop's thread. */
    void (*done)(void *arg, const struct api_error *error);
    void *arg;
};

/* The manifest that a directory was last brought to. */
struct sync_manifest {
    uint64_t files, bytes;
    uint8_t sha256[32]; /* receipt_files_root() of its files */
    bool known;
    bool whole;      /* there was nothing beside what it names ("delete") */
    uint64_t writes; /* sandbox_activity() then */
    uint64_t others; /* tasks that may have changed files meanwhile */
};
/* Of the directory that `path` is in; false: there was none in the life of this server. *root: its
 * path, borrowed. */
bool sync_manifest_of(const struct sandbox *sb, const char *path, struct sync_manifest *out,
                      const char **root);

struct sync_means {
    struct work *work;
    struct blobs *blobs;
};

/* Takes over *request in any case. done() comes exactly once, never from within. -1: *error, and
 * done() does not come. */
int sync_start(const struct sync_means *means, struct sandbox *sb, struct sync_request *request,
               const struct sync_asker *asker, struct api_error *error);
/* `contents`: what was created or modified becomes blobs of the sandbox's owner. */
int sync_changes_start(const struct sync_means *means, struct sandbox *sb, const char *root,
                       bool contents, const struct sync_asker *asker, struct api_error *error);

/* `to` was made with the files that `from` has: what is known of them, and what changes are told
 * against, goes with them. */
void sync_inherit(const struct sandbox *from, const struct sandbox *to);
