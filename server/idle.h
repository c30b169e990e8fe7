/* Memory that a busy time has left goes back to the system when nothing has been asked for in a
 * moment: results that are stored, pages of the database, and what the allocator keeps. Not at
 * once: that is work, and the next request may be on its way. */
#pragma once

#include <stdbool.h>

#include "loop.h"

struct server;

struct idle {
    struct server *server; /* borrowed; NULL = nothing is done */
    struct loop_timer timer;
    bool asked; /* since the timer was set */
};

void idle_init(struct idle *r, struct server *s);
/* A request has ended. */
void idle_later(struct idle *r);
/* Accepts a zeroed struct. */
void idle_stop(struct idle *r);
