#include "echo.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void echo_rewind(struct echo *e) {
    e->tail_max = (size_t)(e->cap - e->cap / 2);
    e->head_left = e->cap / 2;
    e->tail_start = e->tail_len = 0;
    e->omitted = 0;
}

void echo_init(struct echo *e, struct outq *out, uint64_t cap) {
    *e = (struct echo){.out = out, .cap = cap};
    echo_rewind(e);
}

void echo_done(struct echo *e) {
    free(e->tail);
    e->tail = NULL;
}

/* Appends to the ring; what falls out is counted. */
static int echo_keep(struct echo *e, const char *data, size_t len, struct err *err) {
    size_t drop;

    if (len > e->tail_max) {
        e->omitted += e->tail_len + (len - e->tail_max);
        data += len - e->tail_max;
        len = e->tail_max;
        e->tail_start = e->tail_len = 0;
    }
    if (e->tail == NULL && e->tail_max > 0 && (e->tail = malloc(e->tail_max)) == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the end of the output");
    drop = e->tail_len + len > e->tail_max ? e->tail_len + len - e->tail_max : 0;
    if (e->tail_max > 0)
        e->tail_start = (e->tail_start + drop) % e->tail_max;
    e->tail_len -= drop;
    e->omitted += drop;
    while (len > 0) {
        size_t at = (e->tail_start + e->tail_len) % e->tail_max;
        size_t part = e->tail_max - at < len ? e->tail_max - at : len;

        memcpy(e->tail + at, data, part);
        e->tail_len += part;
        data += part;
        len -= part;
    }
    return 0;
}

int echo_put(struct echo *e, const char *data, size_t len, struct err *err) {
    size_t now = len;

    if (e->cap > 0 && e->head_left < now)
        now = (size_t)e->head_left;
    if (now > 0 && outq_put(e->out, data, now, err) < 0)
        return -1;
    if (e->cap == 0)
        return 0;
    e->head_left -= now;
    return now < len ? echo_keep(e, data + now, len - now, err) : 0;
}

static int echo_put_tail(struct echo *e, struct err *err) {
    size_t first =
        e->tail_max - e->tail_start < e->tail_len ? e->tail_max - e->tail_start : e->tail_len;

    if (outq_put(e->out, e->tail + e->tail_start, first, err) < 0)
        return -1;
    return outq_put(e->out, e->tail, e->tail_len - first, err);
}

int echo_flush(struct echo *e, struct err *err) {
    char line[64];
    int rc = 0;

    if (e->omitted > 0) {
        /* The same line that the server puts into a stored output. */
        snprintf(line, sizeof(line), "\n[%" PRIu64 " bytes omitted]\n", e->omitted);
        rc = outq_put(e->out, line, strlen(line), err);
    }
    if (rc == 0 && e->tail_len > 0)
        rc = echo_put_tail(e, err);
    echo_rewind(e);
    return rc;
}
