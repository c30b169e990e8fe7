/* All runner shards: finds their sockets, keeps the connections, chooses where a jail goes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "link.h"
#include "log.h"
#include "loop.h"
#include "warm_share.h"

#define LINKS_MAX 64

struct links_watch {
    void (*room)(void *arg); /* a slot may have become free, or a shard is ready */
    /* The rest may be NULL. A shard is ready: called before `room`, and the only moment at which
     * its lists of what it kept are there. */
    void (*ready)(void *arg, struct link *l);
    void (*down)(void *arg, struct link *l); /* its connection has ended */
    /* Nobody listens at its socket: the runner that did is dead, with all that it had. */
    void (*dead)(void *arg, const char *name);
    void (*looked)(void *arg, struct link *l); /* link_look() was answered; may be NULL */
    void *arg;
};

struct links {
    struct loop *loop;
    struct log *log;
    struct links_watch watch;
    struct link_watch link_watch;
    struct link *items[LINKS_MAX]; /* in the order of their names */
    size_t count;
    struct warm_share warm; /* who takes the jails that they keep ready */
    struct loop_timer scan;
    uint64_t wait_ms;     /* until the next attempt while something is missing */
    uint64_t look_ms;     /* until the next look while nothing is */
    uint64_t lost;        /* connections that ended after they were ready */
    char last_error[256]; /* why there is none, for /readyz */
};

/* Sets up and connects to what is there already. The current directory is the state directory. */
void links_start(struct links *s, struct loop *loop, struct log *log,
                 const struct links_watch *watch);
void links_stop(struct links *s);

/* What a jail is to be. */
struct links_wish {
    const char *policy;
    const uint8_t *sha256; /* 32 bytes: the policy must have this hash */
    enum backend backend;
};
/* The ready shard with the smallest share of its slots in use among those that fit; NULL when none
 * has room. *known (may be NULL) tells whether any ready shard fits at all. */
struct link *links_pick(const struct links *s, const struct links_wish *wish, bool *known);
/* The same for sandboxes. */
struct link *links_pick_sandbox(const struct links *s, const struct links_wish *wish, bool *known);
/* The shard with this socket; NULL when there is none. */
struct link *links_find(const struct links *s, const char *name);
/* The shard whose policies the API shows: the first that is ready, a native one if there is one;
 * NULL if none. */
const struct link *links_first_ready(const struct links *s);
/* The first that is ready of this back end; NULL if none. */
const struct link *links_first_ready_of(const struct links *s, enum backend backend);
/* What the files of a sandbox are in that asks for neither, as the runners of this back end say. */
enum wire_disk links_disk(const struct links *s, enum backend backend);

struct links_totals {
    uint32_t shards, ready;
    uint64_t slots, in_use, sandboxes, sandboxes_in_use, warm, jails_made, taken_warm;
    const char *health; /* of the first ready shard that is not well, "" when all are */
    uint32_t healthy;   /* ready and well */
};
/* Of the shards of one back end, or (BACKEND_NONE) of all. */
void links_sum(const struct links *s, enum backend backend, struct links_totals *out);
