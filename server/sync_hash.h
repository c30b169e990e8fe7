/* Looks at the contents of files of a sandbox: reads those that a plan marked SYNC_HASH through the
 * file operation `fetch`, and tells the plan what they are. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "blobs.h"
#include "err.h"
#include "fileop_run.h"
#include "sandbox.h"
#include "sync_plan.h"

struct sync_hash;

struct sync_hash_task {
    struct sandbox *sandbox;
    const char *root;
    struct sync_plan *plan; /* borrowed, all of these, until done() */
    struct blobs *blobs;    /* what is read becomes a blob of `user`; NULL = it does not */
    const char *user;
    /* Last call. Also when single files could not be read: their nodes say so. */
    void (*done)(void *arg, const struct fileop_result *result);
    void *arg;
};

/* done() does not come from within. NULL: ERR_STATE, ERR_LIMIT. */
struct sync_hash *sync_hash_start(const struct sync_hash_task *task, struct err *err);
