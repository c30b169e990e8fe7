/* What is measured, in which order. */
#pragma once

#include "bench_results.h"
#include "bench_service.h"
#include "err.h"

struct bench_effort {
    unsigned rounds;    /* interleaved rounds of the single runs */
    unsigned block;     /* runs per round, row and pace */
    unsigned span_ms;   /* of one round of a throughput figure */
    unsigned jails;     /* warm jails whose memory is weighed */
    unsigned sandboxes; /* idle ones whose memory is weighed */
    unsigned laps;      /* of snapshots and syncs */
};

/* Measures everything. Progress goes to stderr. Starts and stops its own services. */
int bench_plan_run(const struct bench_paths *paths, const struct bench_effort *effort,
                   struct bench_results *r, struct err *err);
