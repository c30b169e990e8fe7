/* A growing byte buffer that has a maximum from birth. Binary-safe; `data` is always followed by a
 * NUL byte that `len` does not count, so text in it can be printed. */
#pragma once

#include <stddef.h>

#include "err.h"

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max; /* bytes; growth beyond it is ERR_LIMIT */
};

/* An empty buffer that may hold at most `max` bytes. Allocates nothing yet. */
void buf_init(struct buf *b, size_t max);
/* Releases the memory. Accepts NULL and a zeroed struct. */
void buf_done(struct buf *b);
/* Drops the contents, keeps the memory. */
void buf_clear(struct buf *b);

/* Append. On failure (ERR_LIMIT, or ERR_SYSTEM ENOMEM) the buffer is unchanged. */
int buf_append(struct buf *b, const void *data, size_t len, struct err *err);
int buf_puts(struct buf *b, const char *text, struct err *err);
int buf_printf(struct buf *b, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes room for `len` more bytes, all zero, and returns where they go (then add to `len` oneself),
 * or NULL. */
char *buf_reserve(struct buf *b, size_t len, struct err *err);

/* Appends `len` bytes that the caller writes to the place returned before it does anything else
 * with the buffer; or NULL, as buf_append() fails. */
char *buf_extend(struct buf *b, size_t len, struct err *err);

/* Removes `len` bytes (at most all) from the front. */
void buf_consume(struct buf *b, size_t len);

/* Hands the memory over to the caller (free() it); the buffer is empty afterwards. NULL when it
 * never held anything. */
char *buf_take(struct buf *b);
