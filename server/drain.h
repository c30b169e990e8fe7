/* Stopping in good order, on SIGTERM:
 *
 *   DRAINING  no new work (503); what waits is kept or cancelled; what runs may finish
 *   ENDING    the grace time is over, or a second SIGTERM came: what runs is killed
 *   FLUSHING  nothing runs any more: the answers that are owed get out
 *
 * Each stage has a deadline, so that the whole takes the grace time and a few seconds at most.
 * Sandboxes are not stopped: they are left to the runner, and the next server takes them over. */
#pragma once

#include <stdbool.h>

#include "loop.h"

struct server;

enum drain_stage { DRAIN_NOT, DRAIN_DRAINING, DRAIN_ENDING, DRAIN_FLUSHING };

struct drain {
    struct server *server; /* borrowed */
    enum drain_stage stage;
    struct loop_timer timer; /* the deadline of the stage */
};

void drain_init(struct drain *d, struct server *s);
/* SIGTERM: the first begins, the second cuts the grace time short, a third ends the loop at once.
 * When everything is out, the loop is stopped. */
void drain_signal(struct drain *d);
/* Before the loop goes away. */
void drain_done(struct drain *d);
