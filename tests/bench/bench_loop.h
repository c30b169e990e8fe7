/* Timing loops. What is timed runs in worker processes of its own, so that what it mounts, maps or
 * leaks ends with them, and so that N of them can run at once. A worker that hangs is killed by its
 * own alarm; workers die with the benchmark. */
#pragma once

#include <stdint.h>

#include "bench_series.h"
#include "err.h"

#define BENCH_LOOP_WORKERS_MAX 64u
#define BENCH_LOOP_LAPS_MAX 32768u /* per worker and call */
#define BENCH_LOOP_ALARM_S 60u

/* One repetition, in ns from its start. */
struct bench_lap {
    uint64_t done_ns;    /* the result was there */
    uint64_t removed_ns; /* what was made for it was removed again; 0 = nothing to remove */
};

/* A thing to time. All three run in the worker; once() fills *lap. */
struct bench_subject {
    void *(*begin)(const void *config, struct err *err); /* NULL on failure */
    int (*once)(void *state, struct bench_lap *lap, struct err *err);
    void (*end)(void *state);
    const void *config; /* borrowed */
};

/* `count` laps per worker, or, when it is 0, as many as fit into `span_ns`. With `step_ns` laps
 * start on an absolute schedule, one every step_ns; a lap that overran its slot makes the next one
 * start at the next free slot, never in a burst. */
struct bench_plan {
    unsigned workers;
    unsigned count;
    uint64_t span_ns;
    uint64_t step_ns;
};

struct bench_times {
    struct bench_series done;
    struct bench_series removed; /* empty when the subject removes nothing */
};

void bench_times_done(struct bench_times *t);

/* Runs the plan and appends every lap to *times (may be NULL). *laps and *elapsed_ns (may be NULL)
 * are the number of laps and the time from the common start to the end of the last worker. */
int bench_loop_run(const struct bench_subject *subject, const struct bench_plan *plan,
                   struct bench_times *times, uint64_t *laps, uint64_t *elapsed_ns,
                   struct err *err);
