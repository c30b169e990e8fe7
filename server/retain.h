/* How long results are kept: by count, bytes and age. What is too much goes oldest first, a few at
 * a time, so that nobody waits for it. What traces keep of executions and sandboxes that are gone
 * goes by the same count (of its own) and age. */
#pragma once

#include <stdint.h>

#include "err.h"

struct runs;
struct store;
struct retain;

struct retain_options {
    struct store *store; /* borrowed; also when runs of now do not come into it */
    uint64_t count, bytes, age_ms;
    uint64_t key_ms; /* answers to Idempotency-Keys */
};

/* Counts what there is. `runs` (borrowed) has a directory of results and workers. */
struct retain *retain_new(struct runs *runs, const struct retain_options *options, struct err *err);
void retain_free(struct retain *r); /* NULL allowed */
/* So much more (or less) is kept. */
void retain_count(struct retain *r, int64_t count, int64_t bytes);
