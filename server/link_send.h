/* Sending packets to a runner shard: at once when the socket takes them, else in order later. */
#pragma once

#include <stddef.h>
#include <sys/uio.h>

#include "err.h"
#include "link.h"

struct link_send_item {
    struct iovec parts[3];
    size_t part_count;
    const int *fds; /* borrowed */
    size_t fd_count;
};

/* Sends one datagram. -1 only when memory or descriptors are short for what has to wait. */
int link_send(struct link *l, struct link_send_item *item, struct err *err);
/* The socket is writable: sends what waits. */
void link_send_flush(struct link *l);
/* Forgets what waits. */
void link_send_drop(struct link *l);
/* Ends the connection after the current round, not now: the caller is in the middle of using it. */
void link_send_fail(struct link *l, const struct err *why);
