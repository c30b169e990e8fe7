#include "trace_index.h"

#include <string.h>

#include "run.h"

/* Ids that we make begin with the time, those of others with anything: their ends differ. */
static size_t trace_index_bucket(const uint8_t *id) {
    uint64_t last;
    memcpy(&last, id + TRACEPARENT_ID - sizeof(last), sizeof(last));
    return (size_t)((last * 0x9e3779b97f4a7c15u) >> 32) % TRACE_INDEX_BUCKETS;
}

void trace_index_add(struct trace_index *x, struct run *run) {
    struct run **bucket = &x->buckets[trace_index_bucket(run->trace.id)];
    run->trace_next = *bucket;
    *bucket = run;
}

void trace_index_remove(struct trace_index *x, struct run *run) {
    struct run **at = &x->buckets[trace_index_bucket(run->trace.id)];
    while (*at != NULL && *at != run)
        at = &(*at)->trace_next;
    if (*at == run)
        *at = run->trace_next;
    run->trace_next = NULL;
}

static struct run *trace_index_same(struct run *run, const uint8_t *id) {
    while (run != NULL && memcmp(run->trace.id, id, TRACEPARENT_ID) != 0)
        run = run->trace_next;
    return run;
}

struct run *trace_index_find(const struct trace_index *x, const uint8_t id[TRACEPARENT_ID]) {
    return trace_index_same(x->buckets[trace_index_bucket(id)], id);
}

struct run *trace_index_next(const struct run *run) {
    return trace_index_same(run->trace_next, run->trace.id);
}
