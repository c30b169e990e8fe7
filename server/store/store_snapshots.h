/* Snapshots in the store: a row for each that its user can name. */
#pragma once

#include <stdint.h>

#include "err.h"
#include "store.h"

struct store_snapshot {
    const char *id, *user;
    const char *token;          /* id of the one that asked for it; "" = not known */
    const char *shard;          /* the runner's socket */
    const char *image, *policy; /* of what it was made of … */
    const char *source;         /* … which is this sandbox or run */
    const char *name;
    uint32_t disk; /* enum wire_disk */
    uint64_t bytes, files, added_bytes, created_ms;
};

/* Writes its row, a new one or in place of the old one. */
int store_snapshots_put(struct store *s, const struct store_snapshot *row, struct err *err);
int store_snapshots_drop(struct store *s, const char *id, struct err *err);
/* All of them, in the order of their ids; what fn() gets is borrowed, and it writes nothing. */
int store_snapshots_read(struct store *s, void (*fn)(void *arg, const struct store_snapshot *row),
                         void *arg, struct err *err);
