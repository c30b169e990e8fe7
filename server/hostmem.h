/* Is there memory for one more jail? What is asked before anything starts, so that the host does
 * not run out.
 *
 * The budget is what the administrator gives (memory.budget), or else all that the host has or,
 * when that is less, what the server's own control group may use; an eighth of it, at most a GiB,
 * stays for everything that is no jail. Every jail commits a part of its memory limit: all of it
 * under a budget that was given, an eighth otherwise (memory.overcommit: how many percent of the
 * budget the limits may add up to). One more starts when
 *
 *   - the commitments of all that live, and its own, are within the budget, and
 *   - what is free now (MemAvailable, and what the control group leaves), less what jails have
 *     committed that are too young to have touched it, has room for its own, and
 *   - the host is not busy reclaiming memory (pressure) while jails run.
 *
 * Until then it waits; only what is larger than the whole budget is refused. With an overcommitment
 * all may still touch what they may at the same time: then the kernel ends processes in jails,
 * never the server or the runner, and their ends say `memory_host`.
 *
 * The files in /proc are read at most every 100 ms, while something waits or has just started, by a
 * worker: where groups are made and removed, opening one of a control group takes milliseconds. At
 * once, by the loop, only when the last look is more than a second ago and found little. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"
#include "work.h"

#define HOSTMEM_LOOK_MS 100u
#define HOSTMEM_STALE_MS 1000u
#define HOSTMEM_YOUNG_MS 2000u
#define HOSTMEM_PLENTY 8u            /* times what is asked for */
#define HOSTMEM_OVERCOMMIT_AUTO 800u /* percent */
#define HOSTMEM_OVERCOMMIT_GIVEN 100u
#define HOSTMEM_PRESSURE_MAX 50u /* percent of the time in which something stood still for it */

/* Embedded in what lives in a jail. Zeroed at birth. */
struct hostmem_hold {
    struct hostmem_hold *next, *prev; /* of those that are young */
    uint64_t bytes;                   /* committed; 0 = nothing is held */
    uint64_t since_ns;
    bool young, box;
};

/* What a look at the system finds; a test has its own. */
struct hostmem_seen {
    uint64_t total, available; /* bytes */
    unsigned pressure;         /* percent */
};

struct hostmem_job;

struct hostmem {
    struct loop *loop;       /* borrowed */
    struct work *work;       /* borrowed; NULL = the loop looks itself */
    struct hostmem_job *job; /* a worker looks */
    uint64_t budget;         /* for all jails */
    unsigned overcommit;
    struct hostmem_seen seen;
    uint64_t seen_ns;
    uint64_t committed, boxes, young; /* of all, of sandboxes, of the young */
    struct hostmem_hold *oldest, *newest;
    bool waits; /* somebody was told that there is no room */
    struct loop_timer timer;
    void (*room)(void *arg); /* there may be room again */
    void *arg;
    void (*look)(struct hostmem_seen *seen); /* hostmem_look(), but for tests */
};

/* budget 0 = as much as there is; overcommit 0 = the usual. */
void hostmem_init(struct hostmem *m, struct loop *loop, uint64_t budget, unsigned overcommit);
void hostmem_stop(struct hostmem *m);
void hostmem_look(struct hostmem_seen *seen);
/* What the host has, or the server's own control group may use. */
uint64_t hostmem_total(void);

/* Each takes NULL for `m`: memory has no end. `limit`: the memory limit of the jail. */
/* More than all of it? */
bool hostmem_never(const struct hostmem *m, uint64_t limit);
/* Is there room now? False: room() is called when there may be. */
bool hostmem_fits(struct hostmem *m, uint64_t limit);
/* Would there be, if all runs had ended? */
bool hostmem_fits_later(const struct hostmem *m, uint64_t limit);
void hostmem_take(struct hostmem *m, struct hostmem_hold *h, uint64_t limit, bool box);
void hostmem_give(struct hostmem *m, struct hostmem_hold *h); /* idempotent */
