/* Snapshots, forks and restores of a sandbox with a workspace of a given size. */
#pragma once

#include <stdint.h>

#include "bench_http.h"
#include "bench_series.h"
#include "err.h"

struct bench_snapshot_result {
    struct bench_series snapshot, fork, restore;
};

void bench_snapshot_result_done(struct bench_snapshot_result *r);

/* Fills a workspace with `mib` MiB; then `laps` times: 1 MiB of it changes, a snapshot is taken, a
 * fork is made (and deleted), and the snapshot is restored. */
int bench_snapshot_run(const struct bench_target *target, unsigned mib, unsigned laps,
                       struct bench_snapshot_result *result, struct err *err);
