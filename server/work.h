/* A few threads for decoding and encoding what is large, so that the loop never stands still for
 * it. Jobs must be pure: they touch nothing but their own data. The threads are made when the first
 * job comes. */
#pragma once

#include <stddef.h>

#include "err.h"
#include "loop.h"

struct work;

/* Embedded in what the job works on. */
struct work_job {
    void (*run)(struct work_job *job);  /* on a thread */
    void (*done)(struct work_job *job); /* on the loop's thread, afterwards */
    struct work_job *next;
};

struct work *work_new(struct loop *loop, unsigned threads, struct err *err);
/* Waits for the jobs that run; calls `done` of all that were accepted. NULL allowed. */
void work_free(struct work *w);
/* Runs the job on a thread; here and now when there is none to be had. */
void work_add(struct work *w, struct work_job *job);
