/* Why a step ended: exactly one cause. */
#pragma once

#include <stdint.h>

enum cause {
    CAUSE_NONE = 0, /* not ended */
    CAUSE_EXIT,
    CAUSE_SIGNAL,
    CAUSE_WALL_TIME,
    CAUSE_CPU_TIME,
    CAUSE_MEMORY,
    CAUSE_MEMORY_HOST,
    CAUSE_PIDS,
    CAUSE_DISK,
    CAUSE_OUTPUT,
    CAUSE_SYSCALL,
    CAUSE_CANCELLED,
    CAUSE_LOST_CLIENT,
    CAUSE_START,
    CAUSE_INTERRUPTED,
    CAUSE_INTERNAL,
    CAUSE_COUNT
};

/* "exit", "wall_time", …; NULL when out of range or CAUSE_NONE. */
const char *cause_name(uint32_t cause);
/* -> cause, CAUSE_NONE for an unknown name. */
enum cause cause_by_name(const char *name);

/* Caps that are counters or truncation unless a request or policy lists them in `end_on`. */
enum end_on { END_ON_PIDS = 1, END_ON_DISK = 2, END_ON_OUTPUT = 4, END_ON_ALL = 7 };
