#include "cause.h"

#include <stddef.h>
#include <string.h>

static const char *const cause_names[CAUSE_COUNT] = {
    [CAUSE_EXIT] = "exit",           [CAUSE_SIGNAL] = "signal",
    [CAUSE_WALL_TIME] = "wall_time", [CAUSE_CPU_TIME] = "cpu_time",
    [CAUSE_MEMORY] = "memory",       [CAUSE_MEMORY_HOST] = "memory_host",
    [CAUSE_PIDS] = "pids",           [CAUSE_DISK] = "disk",
    [CAUSE_OUTPUT] = "output",       [CAUSE_SYSCALL] = "syscall",
    [CAUSE_CANCELLED] = "cancelled", [CAUSE_LOST_CLIENT] = "lost_client",
    [CAUSE_START] = "start",         [CAUSE_INTERRUPTED] = "interrupted",
    [CAUSE_INTERNAL] = "internal",
};

const char *cause_name(uint32_t cause) {
    return cause < CAUSE_COUNT ? cause_names[cause] : NULL;
}

enum cause cause_by_name(const char *name) {
    for (uint32_t i = CAUSE_NONE + 1; i < CAUSE_COUNT; i++) {
        if (strcmp(name, cause_names[i]) == 0)
            return (enum cause)i;
    }
    return CAUSE_NONE;
}
