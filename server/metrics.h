/* Counters and histograms, and their text form for Prometheus.
 *
 * No series names a user, an id, a command or a path; metrics_write_users() makes those of users,
 * for who asks for them. What a label can be is a closed list each time, so the number of series is
 * bounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "cause.h"
#include "err.h"
#include "quota.h"

#define METRICS_BUCKETS 14

struct metrics_histogram {
    uint64_t buckets[METRICS_BUCKETS + 1]; /* the last one: above all bounds */
    uint64_t sum_ns;
    uint64_t count;
};

#define METRICS_STATUS_MAX 600

/* Routes, as far as they differ in what they cost. */
enum metrics_family {
    METRICS_RUNS,      /* as long as the run, when it is waited for */
    METRICS_SANDBOXES, /* making, changing and listing them */
    METRICS_EXEC,
    METRICS_FILES,
    METRICS_SYNC, /* and blobs */
    METRICS_SNAPSHOTS,
    METRICS_EVENTS, /* as long as somebody follows */
    METRICS_TOKENS, /* and users */
    METRICS_INFO,   /* the rest */
    METRICS_FAMILIES
};
enum metrics_family metrics_family(const char *pattern);

#define METRICS_REASONS 48 /* room for the codes of errors; the last one counts as "other" */

/* Events of the last minute, by seconds. */
#define METRICS_RATE_SECONDS 60u
struct metrics_rate {
    uint32_t counts[METRICS_RATE_SECONDS];
    uint64_t second; /* of the newest count; monotonic */
};

struct metrics {
    uint64_t started_ms; /* since the epoch */
    uint64_t runs_accepted;
    uint64_t runs_refused; /* queue full, draining, no runner */
    uint64_t runs_ok, runs_failed;
    uint64_t ends[CAUSE_COUNT];                   /* of steps */
    uint64_t exec_ends[CAUSE_COUNT];              /* of executions */
    uint64_t responses[METRICS_STATUS_MAX / 100]; /* by hundred */
    uint64_t refusals[METRICS_REASONS];
    uint64_t jails_failed;
    uint64_t sandboxes_created;
    struct metrics_histogram queue_wait, setup, step_wall;
    struct metrics_histogram start; /* from acceptance to exec of the first step */
    struct metrics_histogram run;   /* from there to the end of the last step */
    struct metrics_histogram exec;  /* wall-clock time of executions */
    struct metrics_histogram loop;  /* of rounds of the server's loop */
    struct metrics_histogram http[METRICS_FAMILIES];
    struct metrics_rate rate_accepted, rate_ended, rate_execs;
};

void metrics_observe(struct metrics_histogram *h, uint64_t ns);
/* An answer with an error: its code, a slug. */
void metrics_refusal(struct metrics *m, const char *code);
void metrics_count(struct metrics_rate *r, uint64_t now_ns);
/* How many there were in the last minute. */
uint64_t metrics_per_minute(const struct metrics_rate *r, uint64_t now_ns);

#define METRICS_SHARDS 64
#define METRICS_LAYERS 12

struct metrics_shard {
    unsigned number;
    bool ready, healthy;
    uint64_t slots, in_use, warm, sandboxes, sandboxes_in_use;
};

/* Jails of a kind that a shard has ready. Names are borrowed. */
struct metrics_kind {
    unsigned shard;
    const char *policy, *image;
    uint64_t warm;
};
int metrics_write_kinds(const struct metrics_kind *kinds, size_t count, struct buf *out,
                        struct err *err);

/* One layer of the service; the names are those of /readyz. */
struct metrics_layer {
    const char *name; /* static */
    bool healthy;
};

/* What is not counted but looked at when asked. */
struct metrics_gauges {
    uint64_t queued, queued_bytes, active, kept, kept_bytes;
    uint64_t connections, requests;
    uint64_t shards, shards_ready, shards_healthy, slots, slots_in_use, warm;
    uint64_t jails_made, jails_taken_warm, shards_lost;
    uint64_t sandboxes[4]; /* by enum sandbox_state */
    uint64_t sandboxes_waiting, sandbox_places, snapshots, snapshot_bytes;
    uint64_t users, users_active, tokens;
    uint64_t disk_free_bytes, disk_free_inodes, log_lost;
    uint64_t ready, draining;
    struct metrics_shard shard[METRICS_SHARDS];
    size_t shard_count;
    struct metrics_layer layer[METRICS_LAYERS];
    size_t layer_count;
};

int metrics_write(const struct metrics *m, const struct metrics_gauges *g, struct buf *out,
                  struct err *err);

/* What each user uses of what has a quota. */
struct metrics_user {
    const char *name; /* borrowed */
    const struct quota_use *use;
};
int metrics_write_users(const struct metrics_user *users, size_t count, struct buf *out,
                        struct err *err);
/* The name of a reason by its index, or NULL; the last one is "other". */
const char *metrics_reason(size_t index);
/* Upper bound of a bucket in nanoseconds. */
uint64_t metrics_bound_ns(size_t bucket);
