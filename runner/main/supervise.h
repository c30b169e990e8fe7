/* The parent of the shards: starts them, restarts one that died, and cleans up after it. It holds
 * no jail itself; when it dies, the kernel kills the shards, and with them every jail.
 *
 * A shard that is held up in the middle of its work keeps no limit of its jails: it is killed, and
 * they die with it. It is looked at once a second, and looks are counted, not seconds: when the
 * whole machine stands still, nobody looks. One that a signal or a debugger has stopped is left
 * alone. */
#pragma once

#include "shard.h"

#define SUPERVISE_SHARDS_MAX 16
#define SUPERVISE_TREES_MAX CGROUP_TREES_MAX
#define SUPERVISE_STUCK_LOOKS 30

struct supervise_config {
    struct shard_config shard; /* index and cgroup_name are set per shard */
    unsigned shards;
    const char *cgroup_name; /* "pinfold-<id>" */
    /* Directories of cgroup_name in each tree: what a dead shard left is swept there. */
    char base[SUPERVISE_TREES_MAX][512];
    unsigned bases;
    char aside[512];      /* as in struct cgroup_host: for cgroup_aside_end(), by who leaves last */
    unsigned stuck_looks; /* 0: SUPERVISE_STUCK_LOOKS */
};

/* Returns the exit code, after SIGTERM or SIGINT (0) or when a shard cannot be kept alive (1). */
int supervise_run(struct supervise_config *cfg);
