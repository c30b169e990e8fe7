/* The environment of a command: what every sandbox has, then the run's, then the step's; a later
 * value of a name replaces an earlier one. Nothing of the server's own environment. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "limit.h"
#include "request.h"
#include "trace.h"

#define ENV_MADE_SIZE 96

struct env_list {
    const char *
        *items; /* "NAME=VALUE"; the array is owned, the strings are borrowed or in `made` */
    size_t count;
    char threads[2][ENV_MADE_SIZE];
    char java[ENV_MADE_SIZE];
    char traceparent[ENV_MADE_SIZE];
};

/* What a command hands on to what it calls; borrowed. */
struct env_trace {
    const struct trace *trace; /* NULL = no TRACEPARENT */
    const char *state;         /* "TRACESTATE=…", NULL = none */
};

/* `writable` is a mask of enum wire_writable; `trace` may be NULL. */
int env_compose(const struct limits *limits, uint32_t writable, const struct env_trace *trace,
                const struct request_env *run, const struct request_env *step, struct env_list *out,
                struct err *err);
void env_done(struct env_list *list);
