#include "limit.h"

#include <inttypes.h>
#include <string.h>

#define LIMIT_KIB (1ULL << 10)
#define LIMIT_MIB (1ULL << 20)
#define LIMIT_GIB (1ULL << 30)
#define LIMIT_TIB (1ULL << 40)
#define LIMIT_DAY_MS 86400000ULL

/* The maxima keep every later product (milliseconds to nanoseconds, bytes to pages) within 64 bits.
 * A jail with less than 4 MiB could not even exec, so smaller wishes are refused, not tried. */
static const struct limit_info limit_table[LIMIT_COUNT] = {
    [LIMIT_WALL_MS] = {"wall_ms", 1, LIMIT_DAY_MS, true, "wall-clock time"},
    [LIMIT_CPU_MS] = {"cpu_ms", 1, LIMIT_DAY_MS, true, "CPU time"},
    [LIMIT_MEM_BYTES] = {"mem_bytes", 4 * LIMIT_MIB, LIMIT_TIB, true, "memory"},
    [LIMIT_PIDS] = {"pids", 1, 32768, true, "processes and threads"},
    [LIMIT_DISK_BYTES] = {"disk_bytes", 64 * LIMIT_KIB, LIMIT_TIB, false, "disk space"},
    [LIMIT_INODES] = {"inodes", 16, 16777216, false, "files and directories"},
    [LIMIT_OUTPUT_BYTES] = {"output_bytes", 1, LIMIT_GIB, true, "kept output per stream"},
    [LIMIT_OPEN_FILES] = {"open_files", 16, 1048576, true, "open files per process"},
    [LIMIT_FILE_BYTES] = {"file_bytes", 4096, LIMIT_TIB, true, "size of one file"},
    [LIMIT_STACK_BYTES] = {"stack_bytes", 64 * LIMIT_KIB, LIMIT_GIB, true, "main thread stack"},
    [LIMIT_CPUS_MILLI] = {"cpus_milli", 10, 1024000, true, "share of processors"},
};

const struct limit_info *limit_info(enum limit_id id) {
    return &limit_table[id];
}

int limit_by_name(const char *name) {
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (strcmp(name, limit_table[i].name) == 0)
            return i;
    }
    return -1;
}

int limit_check(const struct limits *wish, const struct limits *ceiling, struct err *err) {
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *row = &limit_table[i];
        uint64_t v = wish->v[i];
        if (v < row->min)
            return err_set(err, ERR_INVALID, 0, "%s is %" PRIu64 " but must be at least %" PRIu64,
                           row->name, v, row->min);
        if (v > ceiling->v[i])
            return err_set(err, ERR_INVALID, 0, "%s is %" PRIu64 " but the ceiling is %" PRIu64,
                           row->name, v, ceiling->v[i]);
    }
    return 0;
}
