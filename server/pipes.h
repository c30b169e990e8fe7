/* Pipes for the output of commands, made ahead of need and closed when there is time: a run's
 * answer should not wait for either. */
#pragma once

#include <stddef.h>

#include "err.h"
#include "loop.h"

#define PIPES_READY 8u

struct pipes {
    struct loop *loop;
    struct loop_timer refill;
    int ready[PIPES_READY][2];
    size_t count;
    int over[PIPES_READY];
    size_t over_count;
};

/* The first are made a moment later. */
void pipes_init(struct pipes *p, struct loop *loop);
/* Closes those that nobody took, and those that are over. Accepts a zeroed struct. */
void pipes_done(struct pipes *p);
/* A pipe whose reading end ends[0] does not block and whose writing end ends[1] does, and can be
 * opened again by any user through /dev/stdout. The caller owns both. From a zeroed struct it is
 * made now. */
int pipes_take(struct pipes *p, int ends[2], struct err *err);
/* Closes a reading end, a moment later if there is room to remember it; *fd is -1 afterwards. */
void pipes_leave(struct pipes *p, int *fd);
