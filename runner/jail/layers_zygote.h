/* The process that forks the workers: small, forked at start, single-threaded. It has a mount
 * namespace of its own in which the file systems that hold layers stay mounted when their jails are
 * gone; it ends with the shard. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "err.h"

struct layers_zygote {
    pid_t pid; /* 0 = none */
    int sock;
};

int layers_zygote_start(struct layers_zygote *z, struct err *err);
void layers_zygote_stop(struct layers_zygote *z);

/* Has a worker forked that serves `sock` (borrowed: the worker's end). 1 = not now: the socket of
 * the process is full and says EPOLLOUT later. */
int layers_zygote_fork(const struct layers_zygote *z, int sock, struct err *err);
