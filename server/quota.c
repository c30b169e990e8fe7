#include "quota.h"

static const char *const quota_names[QUOTA_COUNT] = {
    [QUOTA_RUNS] = "runs",
    [QUOTA_PARALLEL] = "parallel_runs",
    [QUOTA_SANDBOXES] = "sandboxes",
    [QUOTA_MEM_BYTES] = "mem_bytes",
    [QUOTA_DISK_BYTES] = "disk_bytes",
    [QUOTA_CPU_MS_PER_DAY] = "cpu_ms_per_day",
    [QUOTA_RESULT_BYTES] = "result_bytes",
    [QUOTA_SNAPSHOT_BYTES] = "snapshot_bytes",
};

const char *quota_name(enum quota_kind kind) {
    return quota_names[kind];
}
