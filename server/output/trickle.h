/* A program that writes a few bytes at a time would wake the server for each of them, and take its
 * time from everybody else. So whoever has read little (TRICKLE_LITTLE), and that soon after the
 * last time, reads again a moment later: the first bytes, and what comes now and then, are read at
 * once, and of a flood of crumbs 500 handfuls a second. A pipe holds 64 KiB meanwhile: what comes
 * in large parts is never held up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "loop.h"

#define TRICKLE_LITTLE ((size_t)4096)
#define TRICKLE_LITTLE_TERMINAL ((size_t)256) /* which holds 4 KiB */
#define TRICKLE_SOON_NS (3 * CLOCK_NS_PER_MS)
#define TRICKLE_PAUSE_NS (2 * CLOCK_NS_PER_MS)

/* Of one stream. Zeroed at birth. */
struct trickle {
    uint64_t read_ns; /* the last time */
    struct loop_timer timer;
};

/* Something has just been read; `little`: fewer bytes than TRICKLE_LITTLE…. True: `source` is not
 * watched any more, and again(arg) follows in a moment, from the loop, unless trickle_stop() comes
 * first. False: all is as it was. */
bool trickle_pauses(struct trickle *t, struct loop *loop, struct loop_source *source, bool little,
                    void (*again)(void *arg), void *arg);
/* Idempotent; before the stream is closed. */
void trickle_stop(struct trickle *t, struct loop *loop);
