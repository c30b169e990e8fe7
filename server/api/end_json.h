/* Why a step ended, as the API says it:
 *   {"cause": "memory", "exit_code": null, "signal": 9, "limit": 67108864, "observed": 67108864,
 *    "evidence": {"oom_kills": 1}, "message": "The program was killed because …"} */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cause.h"
#include "err.h"

struct json_t;

#define END_STAGE_MAX 64
#define END_PATH_MAX 512
#define END_MESSAGE_MAX 400

/* Zero it, set cause, exit_code = -1, then what the cause needs (end_init() does the first part).
 * Evidence that belongs to another cause is not shown. */
struct step_end {
    enum cause cause;
    int exit_code;     /* -1 = none */
    int signal;        /* 0 = none */
    uint64_t limit;    /* the limit that ended it, in its own unit; 0 = none did, not shown */
    uint64_t observed; /* what was measured against it; shown with `limit` */

    uint64_t wall_ms;          /* wall_time */
    uint64_t cpu_ms;           /* cpu_time */
    uint64_t oom_kills;        /* memory, memory_host */
    uint64_t refused;          /* pids: forks that met the limit */
    uint64_t disk_bytes;       /* disk: `observed` equals the one of these two that met its limit */
    uint64_t inodes;           /* disk */
    uint64_t bytes;            /* output */
    uint64_t syscall_nr;       /* syscall: the call that was caught … */
    uint32_t syscall_arch;     /* … and the AUDIT_ARCH_… of its table, 0 = not known */
    int code;                  /* start, internal: errno, 0 = none */
    char stage[END_STAGE_MAX]; /* start, internal */
    char path[END_PATH_MAX];   /* start: hostile bytes, "" = none */
};

void end_init(struct step_end *e, enum cause cause);

/* Did it succeed: cause exit, code 0? */
bool end_ok(const struct step_end *e);

/* One plain sentence for people: printable ASCII (hostile bytes escaped), cut to fit. */
void end_message(const struct step_end *e, char *dst, size_t size);

/* A new reference; NULL when memory is short. */
struct json_t *end_json_encode(const struct step_end *e);

/* Reads such an object, also one with fields that are not known. ERR_INVALID when it has no cause
 * that is known or a field of the wrong type; *out is then untouched. */
int end_json_decode(const struct json_t *object, struct step_end *out, struct err *err);

/* The exit code that the client ends with: the program's own for exit; 128 + n for signal and
 * syscall; 124 for wall_time and cpu_time; 137 for memory, pids, disk and output; 125 for what is
 * not the program's doing. */
int end_exit_code(const struct step_end *e);
