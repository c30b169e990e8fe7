/* Sandboxes in the store: a row for each that a runner was asked for, until it is forgotten. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "store.h"

struct store_sandbox {
    const char *id, *user;
    bool gone;
    uint64_t created_ms;
    const char *record; /* what it is made of: a JSON object, see sandbox_store.c */
    size_t record_len;
};

/* Writes its row, a new one or in place of the old one. */
int store_sandboxes_put(struct store *s, const struct store_sandbox *row, struct err *err);
int store_sandboxes_drop(struct store *s, const char *id, struct err *err);
/* Is there one of this id? 1 or 0. */
int store_sandboxes_has(struct store *s, const char *id, struct err *err);
/* All of them, in the order of their ids; what fn() gets is borrowed, and it writes nothing. */
int store_sandboxes_read(struct store *s, void (*fn)(void *arg, const struct store_sandbox *row),
                         void *arg, struct err *err);
