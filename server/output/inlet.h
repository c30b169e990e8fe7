/* Bytes on their way into a command's stdin, of which none is lost and none comes twice, whenever
 * this process is killed. The mirror image of a spool (spool.h).
 *
 * They lie in a file in memory. Its size says how many were taken from clients, its position how
 * many went on into the pipe or the terminal. Both numbers are the kernel's: pwrite(2) lengthens
 * the file, and splice(2) and sendfile(2) move the position, in the same system call that moves the
 * bytes. SIGKILL ends a process when a call returns, never between what was moved and the number
 * that says so. The position belongs to the open file description, of which somebody else holds a
 * duplicate (wire.h, KEEP_INPUT): so whoever comes next reads both off the descriptor. Nothing
 * has to be written down at any moment, neither before nor after.
 *
 * It holds INLET_MAX bytes at most: when they all went out, they are given back to the kernel, in
 * whole, so that those which a pipe still refers to stay what they are (of a large folio that is
 * given back in part, the kernel overwrites that part with zeros). Sizes and positions only ever
 * grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define INLET_MAX ((size_t)64 * 1024)

struct inlet {
    int fd;         /* -1 = none; owned */
    uint64_t taken; /* bytes that came: the file's size */
    uint64_t sent;  /* of those, bytes that went out: its position */
    uint64_t freed; /* of those, bytes whose memory was given back */
};

void inlet_init(struct inlet *in);
void inlet_done(struct inlet *in);

int inlet_open(struct inlet *in, struct err *err);
/* Takes over the descriptor of one that an earlier process fed. */
int inlet_adopt(struct inlet *in, int fd, struct err *err);

/* Takes as many bytes as there is room for: their number, 0 when it is full, -1 on failure. */
ssize_t inlet_take(struct inlet *in, const char *data, size_t len, struct err *err);
/* Sends on what `to` takes, which does not block: a pipe, or the master of a terminal. 1 = nothing
 * is left, 0 = `to` is full, -1 = nobody reads there. */
int inlet_send(struct inlet *in, int to, bool terminal);
