#include "buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST 256u

void buf_init(struct buf *b, size_t max) {
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b) {
    if (!b)
        return;
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b) {
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

/* Makes cap at least len + more + 1, doubling so that appending is linear over all. */
static int buf_grow(struct buf *b, size_t more, struct err *err) {
    if (more > b->max || b->len > b->max - more)
        return err_set(err, ERR_LIMIT, 0, "more than %zu bytes for a buffer", b->max);
    size_t need = b->len + more;
    if (b->data && need < b->cap)
        return 0;
    size_t cap = b->cap < BUF_FIRST ? BUF_FIRST : b->cap;
    while (cap <= need)
        cap = cap > b->max / 2 ? b->max + 1 : cap * 2;
    if (cap > b->max)
        cap = b->max + 1;
    char *data = realloc(b->data, cap);
    if (!data) {
        errno = ENOMEM;
        return err_sys(err, "cannot get %zu bytes for a buffer", cap);
    }
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return 0;
}

/* The maximum may have been lowered since there was room. */
char *buf_extend(struct buf *b, size_t len, struct err *err) {
    size_t room = b->cap < b->max ? b->cap : b->max;
    if ((len >= room || b->len >= room - len) && buf_grow(b, len, err) < 0)
        return NULL;
    char *at = b->data + b->len;
    b->len += len;
    b->data[b->len] = '\0';
    return at;
}

int buf_append(struct buf *b, const void *data, size_t len, struct err *err) {
    char *at = buf_extend(b, len, err);
    if (!at)
        return -1;
    if (len)
        memcpy(at, data, len);
    return 0;
}

int buf_puts(struct buf *b, const char *text, struct err *err) {
    return buf_append(b, text, strlen(text), err);
}

int buf_printf(struct buf *b, struct err *err, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int rc = -1;
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0) {
        err_sys(err, "cannot format a text");
    } else if (buf_grow(b, (size_t)n, err) == 0) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
        rc = 0;
    }
    va_end(again);
    va_end(ap);
    return rc;
}

char *buf_reserve(struct buf *b, size_t len, struct err *err) {
    if (buf_grow(b, len, err) < 0)
        return NULL;
    /* Whatever part of it the caller fills, a NUL follows. */
    memset(b->data + b->len, 0, len + 1);
    return b->data + b->len;
}

void buf_consume(struct buf *b, size_t len) {
    if (!b->data)
        return;
    if (len > b->len)
        len = b->len;
    memmove(b->data, b->data + len, b->len - len + 1);
    b->len -= len;
}

char *buf_take(struct buf *b) {
    char *data = b->data;
    *b = (struct buf){.max = b->max};
    return data;
}
