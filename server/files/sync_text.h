/* Texts that live and die together: paths and targets of a tree. Pure. */
#pragma once

#include <stddef.h>

#include "err.h"

struct sync_text_block;

struct sync_text {
    struct sync_text_block *blocks;
    size_t used, room; /* of the first block */
    size_t total, max; /* bytes */
};

void sync_text_init(struct sync_text *t, size_t max);
void sync_text_done(struct sync_text *t); /* NULL allowed */
/* A copy of `len` bytes with a NUL behind; NULL: ERR_LIMIT, or memory is short. */
const char *sync_text_add(struct sync_text *t, const char *text, size_t len, struct err *err);
