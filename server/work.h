/* A few threads for decoding and encoding what is large, so that the loop never stands still for
 * it. Jobs must be pure: they touch nothing but their own data. The threads are made when the first
 * job comes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "loop.h"

struct work;

/* Embedded in what the job works on. */
struct work_job {
    void (*run)(struct work_job *job); /* on a thread */
    /* On the loop's thread, afterwards. NULL: `run` has freed the job, and nobody is told. */
    void (*done)(struct work_job *job);
    struct work_job *next;
};

struct work *work_new(struct loop *loop, unsigned threads, struct err *err);
/* Waits for the jobs that run; calls `done` of all that were accepted. NULL allowed. */
void work_free(struct work *w);
/* Runs the job on a thread; here and now when there is none to be had. */
void work_add(struct work *w, struct work_job *job);
/* Has it threads, because there was a job before? NULL has none. */
bool work_has_threads(const struct work *w);

/* free()s a block of `len` bytes; by a thread when that is more than WORK_DISCARD_MIN, since giving
 * its pages back takes a millisecond for every 20 MB. Both may be NULL. */
#define WORK_DISCARD_MIN ((size_t)1024 * 1024)
void work_discard(struct work *w, void *data, size_t len);
