/* Memory that is given out in small pieces and taken back all at once. It has a maximum from birth;
 * what was once got from the system is kept for the next use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *first, *now;
    size_t used;  /* bytes given out from `now` */
    size_t total; /* bytes given out since the last reset */
    size_t max;
    bool failed; /* a piece could not be given out since the last reset: what was made of the others
                  * may lack something, so nothing that it says may be believed to be all */
};

void arena_init(struct arena *a, size_t max);
/* Accepts NULL and a zeroed struct. */
void arena_done(struct arena *a);
/* Takes everything back. */
void arena_reset(struct arena *a);

/* `size` bytes, zeroed, aligned for any object; NULL (and `failed`) when that would exceed the
 * maximum or the system has no more. */
void *arena_get(struct arena *a, size_t size);
/* A NUL-terminated copy. */
char *arena_copy(struct arena *a, const char *text, size_t len);
