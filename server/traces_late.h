/* Rows of traces that wait to be written, a few in a round of the loop. Whoever asks for a trace
 * looks here, too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"
#include "trace.h"

struct server;
struct store_span;
struct traces_late_row;

/* Who waits for rows; embedded in its owner. Zeroed at birth. */
struct traces_late_wait {
    struct traces_late_wait *next, *prev;
    void (*fn)(struct traces_late_wait *w); /* may free it */
    uint64_t upto;
    bool waiting;
};

/* Zeroed at birth. */
struct traces_late {
    struct traces_late_row *first, *last;
    size_t count;
    uint64_t done; /* rows that have waited and were written */
    struct traces_late_wait *waits;
    uint64_t round;   /* of the store, with so many … */
    unsigned written; /* … rows */
    struct loop_defer turn;
};
void traces_late_add(struct server *s, const struct store_span *span);
/* True: no row waits. False: w->fn(w) is called in the round in which all that wait now have been
 * written, unless traces_late_forget() was: an answer that is made then leaves when they are
 * durable. Those of others that came before are written first, some thousands of them at most. */
bool traces_late_after(struct server *s, struct traces_late_wait *w);
void traces_late_forget(struct server *s, struct traces_late_wait *w);
/* Those of a user and a trace, as store_trace_spans(). */
void traces_late_each(const struct server *s, const char *user, const uint8_t *trace_id,
                      bool (*fn)(void *arg, const struct store_span *span), void *arg);
/* As store_trace_of(). */
bool traces_late_find(const struct server *s, const char *user, const char *id, struct trace *out);
/* Writes all of them: before the store is closed. */
void traces_late_stop(struct server *s);
