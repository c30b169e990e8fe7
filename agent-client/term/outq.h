/* Output that never makes the server wait for our reader.
 *
 * Somebody may read our stdout slowly (a pager). If we stopped reading from the server meanwhile,
 * it would have to hold the program back or to leave bytes out. So what does not fit into the pipe
 * at once goes to an unlinked temporary file, and follows when there is room. Nothing is lost, and
 * memory stays flat. The inherited descriptor keeps its flags: O_NONBLOCK would hit every process
 * that shares it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define OUTQ_SPOOL_MAX ((uint64_t)4 * 1024 * 1024 * 1024)

struct outq {
    int fd;        /* borrowed */
    bool chunked;  /* a pipe, terminal or socket: poll first, write a page at a time */
    int spool;     /* owned; -1 until needed */
    uint64_t head; /* offset of the first byte that has not been written */
    uint64_t tail; /* offset behind the last byte */
    uint64_t max;  /* bytes in the spool at most; beyond, outq_put() waits */
    int wake;      /* borrowed; readable = give up waiting. -1 = none */
};

void outq_init(struct outq *q, int fd, int wake);
void outq_done(struct outq *q); /* drops what is pending */

/* Takes all bytes. Blocks only when the spool is full or cannot be made. -1: ERR_SYSTEM (code
 * EPIPE: the reader has gone), or ERR_STATE EINTR when `wake` became readable while waiting. */
int outq_put(struct outq *q, const void *data, size_t len, struct err *err);
/* Writes what goes without blocking. */
int outq_push(struct outq *q, struct err *err);
bool outq_is_empty(const struct outq *q);
/* Waits until everything is written. Fails like outq_put(). */
int outq_drain(struct outq *q, struct err *err);
