/* When the pool makes its next warm jail. Making one takes a processor for milliseconds, and must
 * not slow down the command that took the last one: while half of them (and more than a few) are
 * left, it waits until nothing has begun or ended in a while; else until no command has just begun
 * and no new sandbox is about to get its first, or for a short time at most. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#define POOL_REFILL_QUIET_NS (CLOCK_NS_PER_MS / 4)  /* for an answer to reach its client */
#define POOL_REFILL_SHORT_NS (30 * CLOCK_NS_PER_MS) /* what has run for longer has no hurry */
#define POOL_REFILL_NEW_NS (3 * CLOCK_NS_PER_MS)    /* until a new sandbox has its first command */
#define POOL_REFILL_PATIENCE_NS (30 * CLOCK_NS_PER_MS) /* it waits at most this long … */
#define POOL_REFILL_MANY 8 /* … unless at least as many are left: then this long */
#define POOL_REFILL_MANY_PATIENCE_NS (300 * CLOCK_NS_PER_MS)
#define POOL_REFILL_PLENTY_NS (20 * CLOCK_NS_PER_MS) /* of quiet, while half of them are left */

struct pool_refill {
    unsigned running;  /* executions in progress */
    uint64_t began_ns; /* the last of them */
    uint64_t quiet_ns; /* from here on the last answer is delivered */
    uint64_t since_ns; /* since when one is lacking; 0 = none is */
    bool plenty;       /* of the kind that was looked at last */
};

void pool_refill_began(struct pool_refill *r, uint64_t now);
/* An execution ended. -> when to look whether a jail is to be made. */
uint64_t pool_refill_ended(struct pool_refill *r, uint64_t now);
/* A jail was given away; `left` of `want` of its kind are there. -> when to look. */
uint64_t pool_refill_taken(struct pool_refill *r, unsigned left, unsigned want, uint64_t now);
/* A sandbox was given away. */
void pool_refill_opened(struct pool_refill *r, uint64_t now);
/* From when on a jail may be made of a kind that lacks one; at once when none is left. */
uint64_t pool_refill_due(struct pool_refill *r, unsigned left, unsigned want, uint64_t now);
