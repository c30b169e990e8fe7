/* Packets on their way to the server. A server that doesn't read is given a bounded queue, and then
 * the connection ends. */
#pragma once

#include <stddef.h>

#include "err.h"

struct session_packet;

struct session_out {
    struct session_packet *head, *tail;
    size_t count;
};

struct session_message {
    const void *data;
    size_t size;
    const int *fds;
    size_t nfds;
};
/* Sends now if nothing waits, else queues; descriptors (at most FD_PASS_MAX) are borrowed: the
 * kernel, or the queue, keeps duplicates. -1: the connection is broken or the queue full. */
int session_out_put(struct session_out *q, int sock, const struct session_message *msg,
                    struct err *err);
/* Sends what waits. 1 = all gone, 0 = the socket is full again, -1 = broken. */
int session_out_flush(struct session_out *q, int sock, struct err *err);
void session_out_done(struct session_out *q);
