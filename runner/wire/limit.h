/* The limits: one table that policies, the HTTP API, the wire and the runner share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

enum limit_id {
    LIMIT_WALL_MS,      /* wall clock of a step, monotonic, from exec */
    LIMIT_CPU_MS,       /* CPU of a step, user + system, all its processes */
    LIMIT_MEM_BYTES,    /* memory without swap, tmpfs contents included */
    LIMIT_PIDS,         /* processes and threads at once */
    LIMIT_DISK_BYTES,   /* all writable files of the jail together */
    LIMIT_INODES,       /* files, directories, links of the jail together */
    LIMIT_OUTPUT_BYTES, /* bytes kept of stdout, and of stderr, per step */
    LIMIT_OPEN_FILES,   /* descriptors per process (RLIMIT_NOFILE) */
    LIMIT_FILE_BYTES,   /* size of one file (RLIMIT_FSIZE) */
    LIMIT_STACK_BYTES,  /* main thread stack (RLIMIT_STACK) */
    LIMIT_CPUS_MILLI,   /* CPU share: 1000 = one processor */
    LIMIT_COUNT
};

struct limits {
    uint64_t v[LIMIT_COUNT];
};

struct limit_info {
    const char *name;  /* as in JSON: "wall_ms" */
    uint64_t min, max; /* what any policy or request may say; 0 never means unlimited */
    bool per_step;     /* a step may set it; otherwise it belongs to the whole run */
    const char *what;  /* for messages and help: "wall-clock time" */
};

/* The table row of `id` (0 <= id < LIMIT_COUNT). */
const struct limit_info *limit_info(enum limit_id id);
/* -> id, or -1 for an unknown name. */
int limit_by_name(const char *name);
/* 0 when min <= v[id] <= ceiling[id] for every id; else ERR_INVALID naming the first offender, its
 * wish and its ceiling. This is the check on the privileged side. */
int limit_check(const struct limits *wish, const struct limits *ceiling, struct err *err);
