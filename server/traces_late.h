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

/* Zeroed at birth. */
struct traces_late {
    struct traces_late_row *first, *last;
    size_t count;
    uint64_t round;   /* of the store, with so many … */
    unsigned written; /* … rows */
    struct loop_defer turn;
};
void traces_late_add(struct server *s, const struct store_span *span);
/* Those of a user and a trace, as store_trace_spans(). */
void traces_late_each(const struct server *s, const char *user, const uint8_t *trace_id,
                      bool (*fn)(void *arg, const struct store_span *span), void *arg);
/* As store_trace_of(). */
bool traces_late_find(const struct server *s, const char *user, const char *id, struct trace *out);
/* Writes all of them: before the store is closed. */
void traces_late_stop(struct server *s);
