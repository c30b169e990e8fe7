/* The floor: what a jail costs when a loop makes it by hand and nothing else happens.
 *
 * Each lap makes the cgroups of a jail with their limits, clones a child into namespaces of its own
 * (user, mount, pid, network, ipc, uts, cgroup), writes its id maps, attaches it, and the child
 * raises lo, mounts the writable parts, /proc with its masks and /dev/pts, empties its bounding
 * set, lowers resource limits, becomes an ordinary user, loads a system call filter and executes
 * `true`. What the runner prepares once is prepared once here as well: the read-only root (the
 * worker's own mount namespace, which every child copies), the compiled filter. The child shares
 * the memory of its parent until it execs, so no address space is copied. Nothing stays: mounts die
 * with the worker, cgroups are removed in each lap. */
#pragma once

#include <linux/filter.h>
#include <stdint.h>

#include "bench_loop.h"

#define BENCH_FLOOR_PHASES_MAX 32
#define BENCH_FLOOR_PHASE_LAPS 512

/* Where the time goes, by phase, in memory that the worker shares with its parent. */
struct bench_floor_phases {
    uint32_t laps;
    uint64_t ns[BENCH_FLOOR_PHASES_MAX][BENCH_FLOOR_PHASE_LAPS];
};

struct bench_floor_config {
    struct sock_fprog filter;
    struct bench_floor_phases *phases; /* borrowed; NULL = do not record */
};

struct bench_subject bench_floor_subject(const struct bench_floor_config *config);

/* The name of a phase ("clone", "proc", …); NULL past the last one. */
const char *bench_floor_phase(unsigned phase);
