/* What is done to a container from outside before its process 1 is set up: what an engine cannot
 * say, or says too generously. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct place_report {
    int32_t code;     /* errno, 0 = done */
    uint32_t one_id;  /* as in struct apart */
    uint32_t id_base; /* likewise */
    char step[64];    /* that failed */
    char text[256];
};

struct place_wish {
    pid_t pid; /* process 1, outside */
    int pidfd; /* of it */
    uint32_t writable;
    uint64_t disk_bytes, inodes; /* of all that can be written; not every engine takes the second */
};

/* Forks a process that enters the mount namespace of that process, walks the list of steps of
 * place.c and sends one datagram on a socket, of which the caller gets the other end in *sock:
 * struct place_report, with the root of the writable file system when all is well. */
int place_start(const struct place_wish *wish, int *sock, pid_t *child, struct err *err);
