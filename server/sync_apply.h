/* Carries out a settled plan in a sandbox by one file operation `apply`: all of it or nothing. */
#pragma once

#include <stddef.h>

#include "blobs.h"
#include "err.h"
#include "fileop_run.h"
#include "sandbox.h"
#include "sync_plan.h"

struct sync_apply;

struct sync_apply_task {
    struct sandbox *sandbox;
    const char *root;
    struct sync_plan *plan; /* borrowed until done(); nodes get the stamps of what was made */
    struct blobs *blobs;    /* where contents are */
    const char *user;
    /* Last call. */
    void (*done)(void *arg, const struct fileop_result *result);
    void *arg;
};

/* done() does not come from within. NULL: ERR_STATE, ERR_LIMIT. */
struct sync_apply *sync_apply_start(const struct sync_apply_task *task, struct err *err);

/* The records that carry out a plan, one after the other. Pure. */
enum sync_step { SYNC_STEP_OVER, SYNC_STEP_REMOVE, SYNC_STEP_ENTRY };
struct sync_steps {
    size_t at;
    bool closing; /* on the way back, which closes directories that had to be opened */
    bool begun;
};
/* The next one: of node *n, with *mode. Directories whose mode would not let their user change what
 * is in them are opened first and closed at the end. */
enum sync_step sync_apply_step(const struct sync_plan *p, struct sync_steps *s, size_t *n,
                               uint32_t *mode);
