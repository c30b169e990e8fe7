/* Traces in the store: the runs that belong to one, which are written with the run (store_runs.h);
 * the executions and sandboxes that are gone; and where one of them stands. */
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

/* A part of what a user has of one trace. */
struct store_trace_part {
    const char *user;
    const uint8_t *trace_id; /* 16 bytes */
    const char *after_id;    /* runs: the last one of the part before; "" = there was none */
    uint64_t after_seq;      /* spans: likewise; 0 = there was none */
    size_t max;
};
/* Runs that are over, the oldest first; fn returns false to stop. 1: there may be more, behind the
 * last one; 0: that was all, or fn has stopped; -1: it failed. */
int store_trace_runs(struct store *s, const struct store_trace_part *part,
                     bool (*fn)(void *arg, const struct store_trace_run *run), void *arg,
                     struct err *err);
/* An execution or a sandbox that is gone. What is read is borrowed until `fn` returns. */
struct store_span {
    uint64_t seq;     /* read; not to be written */
    const char *user; /* to be written; not read */
    const char *id;
    const char *sandbox; /* of an execution; "" = it is a sandbox */
    const char *label;   /* what it ran; "" = nothing */
    const char *cause;   /* of its end; "" = none */
    uint64_t created_ms, duration_ms;
    uint64_t exit_code; /* UINT64_MAX = none */
    bool ok;
    const uint8_t *trace_id; /* 16 bytes; to be written */
    const void *trace;
    size_t trace_len;
};
int store_trace_put(struct store *s, const struct store_span *span, uint64_t now_ms,
                    struct err *err);
/* As store_trace_runs(), in the order in which they went. */
int store_trace_spans(struct store *s, const struct store_trace_part *part,
                      bool (*fn)(void *arg, const struct store_span *span), void *arg,
                      struct err *err);
/* Drops the oldest, at most `max`: what came before `before_ms`, and what is more than `keep`. ->
 * their number, or -1. */
int store_trace_drop(struct store *s, uint64_t before_ms, uint64_t keep, size_t max,
                     struct err *err);

/* What is kept as the trace of one of a user's runs, or of what is gone, goes to trace[size]: 1 =
 * found; 0 = there is none of this id, or it is of another size. */
int store_trace_of(struct store *s, const char *user, const char *id, void *trace, size_t size,
                   struct err *err);
