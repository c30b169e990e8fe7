/* Counters and histograms, and their text form for Prometheus. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "cause.h"
#include "err.h"

#define METRICS_BUCKETS 14

struct metrics_histogram {
    uint64_t buckets[METRICS_BUCKETS + 1]; /* the last one: above all bounds */
    uint64_t sum_ns;
    uint64_t count;
};

#define METRICS_STATUS_MAX 600

struct metrics {
    uint64_t started_ms; /* since the epoch */
    uint64_t runs_accepted;
    uint64_t runs_refused; /* queue full, draining, no runner */
    uint64_t ends[CAUSE_COUNT];
    uint64_t responses[METRICS_STATUS_MAX / 100]; /* by hundred */
    uint64_t jails_failed;
    uint64_t sandboxes_created;
    struct metrics_histogram queue_wait, setup, step_wall;
};

void metrics_observe(struct metrics_histogram *h, uint64_t ns);

/* What is not counted but looked at when asked. */
struct metrics_gauges {
    uint64_t queued, queued_bytes, active, kept, kept_bytes;
    uint64_t connections, requests;
    uint64_t shards, shards_ready, shards_healthy, slots, slots_in_use, warm;
    uint64_t jails_made, jails_taken_warm, shards_lost;
    uint64_t sandboxes[4]; /* by enum sandbox_state */
    uint64_t sandboxes_waiting, sandbox_places, snapshots, snapshot_bytes;
    uint64_t draining;
};

int metrics_write(const struct metrics *m, const struct metrics_gauges *g, struct buf *out,
                  struct err *err);
