/* Stopping in good order, on SIGTERM:
 *
 *   DRAINING  no new work (503, and each answer closes its connection); what waits is kept or
 *             cancelled; what runs, and who waits for an answer, has the grace time
 *   ENDING    the grace time is over, or a second SIGTERM came: what runs is killed
 *   LEAVING   nothing runs any more: the answers that are owed get out
 *   REFUSING  whoever still waits, for something in a sandbox, is told to ask the next server
 *
 * Each stage has a deadline, so that the whole takes the grace time and a few seconds at most.
 * Sandboxes are not stopped: they are left to the runner, and the next server takes them over, with
 * what runs in them. Streams of events end without their `done`: they go on there, too. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "loop.h"

struct server;

enum drain_stage { DRAIN_NOT, DRAIN_DRAINING, DRAIN_ENDING, DRAIN_LEAVING, DRAIN_REFUSING };

struct drain {
    struct server *server; /* borrowed */
    enum drain_stage stage;
    uint64_t due_ns; /* when the stage is over at the latest */
    uint64_t leave_ms;
    struct loop_timer timer; /* looks every few milliseconds */
};

void drain_init(struct drain *d, struct server *s);
/* SIGTERM: the first begins, the second cuts the grace time short, a third ends the loop at once.
 * When everything is out, the loop is stopped. */
void drain_signal(struct drain *d);
/* Before the loop goes away. */
void drain_done(struct drain *d);
