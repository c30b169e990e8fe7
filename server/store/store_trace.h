/* Traces in the store: the runs that belong to one, and where a run stands. Part of the store as
 * store_runs.h is: the columns are written with the run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "store.h"

struct store_trace_run { /* borrowed until `fn` returns */
    const char *id;
    const char *label;    /* what it runs */
    const char *summary;  /* its line in the list: JSON */
    uint64_t duration_ms; /* UINT64_MAX = not known */
    const void *trace;    /* as it was given */
    size_t trace_len;
};

/* A user's runs of a trace that are over, the oldest first; fn returns false to stop. */
int store_trace_runs(struct store *s, const char *user, const uint8_t trace_id[16],
                     bool (*fn)(void *arg, const struct store_trace_run *run), void *arg,
                     struct err *err);
/* What is kept as the trace of one of a user's runs goes to trace[size]: 1 = found; 0 = there is no
 * such run, or it is of another size. */
int store_trace_of(struct store *s, const char *user, const char *id, void *trace, size_t size,
                   struct err *err);
