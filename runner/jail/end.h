/* Why an execution ended: a pure function of what was observed. The order of its rules is the
 * documented precedence: what happened first is the cause, everything after it is detail. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "limit.h"
#include "wire.h"

struct end_facts {
    struct limits limits; /* in force for the step */
    bool started;         /* it reached exec */
    uint64_t start_ns;    /* when, monotonic */

    /* Refused before or by exec. */
    bool refused;
    int refused_code;
    char refused_stage[WIRE_NAME_MAX];
    char refused_path[WIRE_TEXT_MAX];

    /* What the runner decided, and when; CAUSE_NONE = nothing. */
    enum cause imposed;
    uint64_t imposed_ns;

    /* The filter caught a call of its first process: which, and AUDIT_ARCH_… of its table. */
    bool filtered;
    int syscall_nr;
    uint32_t syscall_arch;

    /* What process 1 saw. */
    bool exited;
    int status; /* wait status */
    uint64_t exit_ns;

    /* What the kernel counted. */
    uint64_t cpu_ns;
    uint64_t oom_kills;
    uint64_t mem_peak_bytes;      /* of the step's group */
    uint64_t jail_mem_peak_bytes; /* of the jail's */
    uint64_t jail_mem_limit;
    uint64_t disk_bytes;
    uint64_t inodes;
    uint64_t pids_refused;
    bool disk_full;  /* at the end */
    uint32_t end_on; /* mask of enum end_on */
};

/* Fills cause, exit_code, signal, code, limit, observed, syscall_nr, syscall_arch, stage and path
 * of *end; nothing else of it.
 *
 * - imposed and not after the exit: that cause. It keeps the signal it was killed with as detail.
 * - refused: start, with errno, stage and path.
 * - it ended by itself, but had met a cap before that it was to end on: pids, disk. The runner
 * looks at these counters now and then, and here for the last time.
 * - killed by SIGKILL that nobody here sent, and the kernel's oom killer struck in its group:
 * memory if the group's or the jail's peak touched its limit, else memory_host.
 * - killed by SIGSYS after the filter caught a call of it: syscall. A SIGSYS alone anybody can
 * send.
 * - otherwise exit or signal, as the wait status says; an exit code over 128 is only a number.
 * - nothing of all that: internal. */
void end_decide(const struct end_facts *f, struct wire_end *end);
