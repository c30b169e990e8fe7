/* Ctrl-C and its relatives as a descriptor to wait on, so that no handler and no global flag is
 * needed. */
#pragma once

#include "err.h"

struct intr {
    int fd; /* signalfd, non-blocking; owned */
};

#define INTR_NONE                                                                                  \
    { .fd = -1 }

/* From now on SIGINT, SIGTERM and SIGHUP do not end the process but make fd readable; SIGPIPE is
 * ignored. Signals that were ignored at start (nohup) stay so. */
int intr_begin(struct intr *i, struct err *err);
/* The signal that arrived, or 0. */
int intr_take(struct intr *i);
/* From now on a further one ends the process at once, with 128 + its number. */
void intr_rude(struct intr *i);
void intr_end(struct intr *i);
