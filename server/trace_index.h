/* The runs in memory by the trace that they belong to: however many there are, those of one trace
 * are found at once. */
#pragma once

#include <stdint.h>

#include "trace.h"

#define TRACE_INDEX_BUCKETS 1024u

struct run;

struct trace_index { /* zeroed to begin with */
    struct run *buckets[TRACE_INDEX_BUCKETS];
};

/* `run->trace` must not change while it is in. One without a trace is in, too. */
void trace_index_add(struct trace_index *x, struct run *run);
void trace_index_remove(struct trace_index *x, struct run *run);
/* The first, the next one of a trace, newest first; NULL = there are no more. */
struct run *trace_index_find(const struct trace_index *x, const uint8_t id[TRACEPARENT_ID]);
struct run *trace_index_next(const struct run *run);
