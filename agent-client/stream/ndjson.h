/* NDJSON as it arrives: bytes in, one JSON object per line out.
 *
 * Bounded: a line longer than the maximum is an error, not a growing buffer. Blank lines are
 * skipped (a server may send them to keep a connection warm). */
#pragma once

#include <stddef.h>

#include "buf.h"
#include "err.h"

struct json_t;

/* Called once per line with a borrowed object. -1 (with *err filled) stops the feeding. */
typedef int (*ndjson_fn)(void *arg, const struct json_t *object, struct err *err);

struct ndjson {
    struct buf partial; /* a line whose end has not come yet */
    size_t line_max;
    ndjson_fn fn;
    void *arg;
};

void ndjson_init(struct ndjson *n, size_t line_max, ndjson_fn fn, void *arg);
void ndjson_done(struct ndjson *n); /* NULL and zeroed allowed */
/* Forgets a line that was cut in half: the stream starts anew. */
void ndjson_reset(struct ndjson *n);

/* -1: ERR_PROTOCOL (not JSON, not an object, too long), or what fn said. No further feeding then,
 * until ndjson_reset(). */
int ndjson_feed(struct ndjson *n, const char *data, size_t len, struct err *err);
