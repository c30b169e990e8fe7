/* When the next warm jail of a kind is made, after some that came to nothing.
 *
 * One that dies while it waits is replaced at once, since anything may kill one. If the next does
 * so as well, before any has been ready for POOL_BACKOFF_STEADY_NS, what kills them is still there:
 * the one after it is made after a pause of POOL_BACKOFF_FIRST_NS, and each further one after twice
 * the pause before, at most POOL_BACKOFF_MAX_NS. (One that could not even be made counts in the
 * same way, and is tried again after a second at the earliest.) From the POOL_BACKOFF_SICK-th in a
 * row on, warm jails of this kind cannot be had, which is to be told. When one has been ready for
 * that long, in the pool or given away, all is forgotten. Whoever asks for a jail meanwhile does
 * not wait for a pause: his is made for him. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#define POOL_BACKOFF_FIRST_NS (100 * CLOCK_NS_PER_MS)
#define POOL_BACKOFF_MAX_NS (10 * CLOCK_NS_PER_S)
#define POOL_BACKOFF_STEADY_NS (1 * CLOCK_NS_PER_S)
#define POOL_BACKOFF_SICK 3u

/* Zeros: nothing has happened. */
struct pool_backoff {
    unsigned lost;      /* in a row */
    uint64_t until_ns;  /* none is made before */
    uint64_t steady_ns; /* when all is forgotten, should none be lost until then; 0 = never */
};

/* One was lost. */
void pool_backoff_lost(struct pool_backoff *b, uint64_t now_ns);
/* One is ready. */
void pool_backoff_ready(struct pool_backoff *b, uint64_t now_ns);
/* Forgets when it is time. -> is all well? */
bool pool_backoff_well(struct pool_backoff *b, uint64_t now_ns);
bool pool_backoff_sick(const struct pool_backoff *b);
