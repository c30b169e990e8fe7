/* Server-sent events as they arrive (WHATWG): bytes in, one event with its data out.
 *
 * Tolerant of what servers really send: CR LF, comments, no blank after the colon, no blank line at
 * the end. Bounded: an event longer than the maximum is an error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"

#define MODEL_SSE_EVENT_MAX ((size_t)8 * 1024 * 1024)

typedef int (*model_sse_fn)(void *arg, const char *event, const char *data, size_t len,
                            struct err *err);

struct model_sse {
    struct buf line, data;
    char event[64];
    bool cr; /* the last byte was a CR: a LF that follows belongs to it */
    model_sse_fn fn;
    void *arg;
};

void model_sse_init(struct model_sse *s, model_sse_fn fn, void *arg);
void model_sse_done(struct model_sse *s);
/* -1: what fn said, or ERR_LIMIT. */
int model_sse_feed(struct model_sse *s, const char *bytes, size_t len, struct err *err);
/* The stream is over: an event without its blank line is delivered. */
int model_sse_end(struct model_sse *s, struct err *err);
