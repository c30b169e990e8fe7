/* The first answers to requests with an Idempotency-Key. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "store.h"

#define STORE_IDEMPOTENCY_HASH 32u

struct store_idempotency {
    const char *user, *key;
    const uint8_t *hash; /* of what was asked for */
    uint64_t at_ms;
    const char *thing; /* the run that it became; "" = none */
    unsigned status;   /* of the answer, or a number of idempotency.c's */
    const char *location;
    const void *answer; /* NULL = none is kept */
    size_t answer_len;
};
/* Writes it, new or over an older one of the same key. */
int store_idempotency_put(struct store *s, const struct store_idempotency *row, struct err *err);

struct store_idempotency_found {
    uint8_t hash[STORE_IDEMPOTENCY_HASH];
    char thing[64], location[200];
    unsigned status;
    struct buf answer; /* owned by the caller; data NULL = none was kept */
};
/* 1 = found, 0 = there is none that is newer than `since_ms`. */
int store_idempotency_get(struct store *s, const char *user, const char *key, uint64_t since_ms,
                          struct store_idempotency_found *out, struct err *err);
/* Drops at most `max` that are older -> their number, or -1. */
int store_idempotency_drop(struct store *s, uint64_t before_ms, size_t max, struct err *err);
