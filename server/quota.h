/* Quotas: what a user, and a token, may use at once, a day, and in store.
 *
 * A quota counts what the caller holds now (runs that are not over, sandboxes that live, the memory
 * and the disk that their limits promise them, bytes that are stored for it) or what it has used
 * since midnight UTC (CPU time). Every use is charged to the token that asked, to all tokens above
 * it, and to the user; each of them must have room. */
#pragma once

#include <stdint.h>

enum quota_kind {
    QUOTA_RUNS,           /* runs that wait or run */
    QUOTA_PARALLEL,       /* runs that are in a jail at once; more than that wait in the queue */
    QUOTA_SANDBOXES,      /* that are not gone */
    QUOTA_MEM_BYTES,      /* memory limits of what is in jails, summed */
    QUOTA_DISK_BYTES,     /* disk limits of what is in jails, summed */
    QUOTA_CPU_MS_PER_DAY, /* CPU time that ended steps and executions have used since 00:00 UTC */
    QUOTA_RESULT_BYTES,   /* stored results of runs */
    QUOTA_SNAPSHOT_BYTES, /* kept snapshots */
    QUOTA_COUNT
};

#define QUOTA_UNLIMITED UINT64_MAX

struct quota_limits {
    uint64_t v[QUOTA_COUNT]; /* QUOTA_UNLIMITED: no limit */
};

struct quota_use {
    uint64_t v[QUOTA_COUNT];
    uint32_t day; /* days since the epoch (UTC) that QUOTA_CPU_MS_PER_DAY belongs to */
};

/* "runs", "parallel_runs", "sandboxes", "mem_bytes", "disk_bytes", "cpu_ms_per_day",
 * "result_bytes", "snapshot_bytes": the names in JSON and on the command line. */
const char *quota_name(enum quota_kind kind);
