/* Processors are shared between users, not between jails.
 *
 * To the kernel all jails are alike: beside somebody with one, somebody with nine would have nine
 * tenths of processors that both want. So the jails of a user in which commands run divide between
 * them what one jail of his would have (cpu.shares, cpu.weight: struct wire_weigh), times his
 * weight in the queue (queue.h). Nothing is held back from anybody: what nobody else wants is used.
 *
 *   user A   j1  j2  j3  j4      256 each   ─┐
 *   user B   j5                 1024        ─┴─ processors
 *
 * - When one user has had more than his part since the last look and all others clearly less than
 *   theirs, or twice as much as anybody else, his jails get what those leave (WIRE_SHARES_LEFT):
 * who wants little need not wait for a turn of somebody who wants all. Only as long as they leave
 * him more than his part; and with two such users it goes by weight again, for between jails of
 * that kind there is none.
 * - Jails that are opened for him meanwhile are made in one group of the runner's, which is idle as
 * a whole (cgroup_left_init()).
 * - Nothing is said to any runner while there is only one such user: alone, all of that is the
 * same.
 * - A jail that uses less than PROCESSORS_IDLE_MILLI of a processor does not count, so that
 * somebody who keeps servers that wait for requests is not the slower for them. Who is idle is
 * asked for twice a second (WIRE_LOOK_BUSY), and a moment after anything changed, while more than
 * one user has something running.
 * - By how many a user's jails divide is rounded up to a power of two, goes up a moment after they
 *   begin (PROCESSORS_MOMENT_NS: most runs are over before) and down with the next look: so a
 *   message is rare, and a run that starts and ends alone costs two list operations.
 *
 * Only jails of one runner compete in this way; those of native runners and of an engine are in
 * different groups of the host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "links.h"
#include "loop.h"
#include "queue.h"

#define PROCESSORS_BUCKETS 256u
#define PROCESSORS_IDLE_MILLI 20u
#define PROCESSORS_MOMENT_NS (2 * CLOCK_NS_PER_MS)
#define PROCESSORS_FIRST_NS (10 * CLOCK_NS_PER_MS) /* from a new user to a look */
#define PROCESSORS_LOOK_NS (500 * CLOCK_NS_PER_MS)
#define PROCESSORS_GAP_NS (50 * CLOCK_NS_PER_MS) /* between looks, at least */
#define PROCESSORS_SOON_NS (100 * CLOCK_NS_PER_MS)
#define PROCESSORS_SOON 2u   /* looks after a change, with this between them */
#define PROCESSORS_SLICE 64u /* messages at once */
#define PROCESSORS_UNKNOWN_NS UINT64_MAX

struct processors_user; /* who has jails in which commands run */

/* A jail; embedded in what owns it. Zeroed at birth. */
struct processors_jail {
    struct processors_user *user; /* while commands run in it */
    struct processors_jail *next, *prev;
    struct link_jail **jail; /* where its owner keeps it; *jail is NULL when it is gone */
    uint32_t told;           /* shares that the runner was told of; 0 = none, it has WIRE_SHARES */
    uint64_t since_ns;       /* what it used until then was counted */
    uint32_t milli;          /* of a processor that it uses, as far as is known */
    bool idle, looked;
    bool left; /* it was opened to get what others leave, and is in the group of those */
};
/* In `told`: a jail of an earlier server, of which nobody knows. */
#define PROCESSORS_UNKNOWN UINT32_MAX

struct processors {
    struct loop *loop; /* borrowed, as is links */
    struct links *links;
    struct processors_user *buckets[PROCESSORS_BUCKETS];
    struct processors_user *first; /* all of them */
    size_t users;                  /* with jails; others are remembered until the next look */
    uint64_t cpus;                 /* online */
    uint64_t since_ns;             /* the last look */
    bool shared;                   /* there was more than one since the last look but one */
    bool still;
    bool changed; /* at the last look: who yields */
    unsigned soon;
    struct loop_timer moment, look;
};

void processors_init(struct processors *p, struct loop *loop, struct links *links);
/* Before the owners of jails go. */
void processors_stop(struct processors *p);

/* Commands run in the jail from now on; once, until processors_rest(). `user`: whose they are;
 * weight: 0 = QUEUE_WEIGHT. When memory is short the jail is not counted. */
void processors_busy(struct processors *p, struct processors_jail *j, const char *user,
                     uint32_t weight, struct link_jail **jail);
/* Is a jail of this user that is about to be opened to get what others leave (WIRE_OPEN_LEFT)? Then
 * it is taken as told. */
bool processors_opens_left(struct processors *p, struct processors_jail *j, const char *user);
/* No more of them. Idempotent; before the owner of the jail goes. `cpu_ns`: what they used, or
 * PROCESSORS_UNKNOWN_NS. */
void processors_rest(struct processors *p, struct processors_jail *j, uint64_t cpu_ns);
