/* Carries out a settled plan in a sandbox by one file operation `apply`: all of it or nothing. */
#pragma once

#include <stddef.h>

#include "blobs.h"
#include "err.h"
#include "fileop_run.h"
#include "loop.h"
#include "sandbox.h"
#include "sync_plan.h"

struct sync_apply;

struct sync_apply_task {
    struct loop *loop;
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
