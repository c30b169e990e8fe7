/* Writes records to the stdin of a file operation. What the pipe doesn't take at once waits here,
 * in bounded memory; on the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "fileop.h"
#include "loop.h"

struct fileop_feed {
    struct loop *loop;
    int fd; /* writing end, not blocking; owned; -1 = not open yet, or closed */
    struct loop_source source;
    struct buf pending;
    bool finished; /* nothing comes any more: closed when `pending` is empty */
    bool broken;   /* the other side reads no more, or memory was short */
    bool widened;
    void (*writable)(void *arg);
    void *arg;
};

/* `writable` is called from the loop, when `pending` has become empty or the other side gone. */
void fileop_feed_init(struct fileop_feed *f, struct loop *loop, void (*writable)(void *arg),
                      void *arg);
void fileop_feed_done(struct fileop_feed *f);
/* Takes over the descriptor and writes what waits already. */
int fileop_feed_open(struct fileop_feed *f, int fd, struct err *err);
/* 1 = there is room for more; 0 = wait for `writable`; -1 = nobody reads it. Takes the record
 * whole, unless it returns -1. */
int fileop_feed_put(struct fileop_feed *f, const struct fileop_record *rec, const char *path,
                    const char *target, const void *data);
/* For contents that come in pieces: a DATA record is put with `data` NULL, which announces its
 * data_len bytes, and these follow here. Takes as many as there is room for: their number; 0 = wait
 * for `writable`; -1 = nobody reads it. */
ssize_t fileop_feed_bytes(struct fileop_feed *f, const void *data, size_t len);
/* END, then end of file. */
void fileop_feed_finish(struct fileop_feed *f);
/* The descriptor, which blocks from now on; the caller owns it, and nothing can be put any more.
 * Only while nothing waits. -1: it is closed. */
int fileop_feed_take(struct fileop_feed *f);
