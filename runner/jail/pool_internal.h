/* What pool.c, which makes jails, and pool_take.c, which gives them away, have in common. */
#pragma once

#include "pool.h"
#include "pool_kind.h"
#include "pool_refill.h"

#define POOL_KINDS_MAX 64
#define POOL_BUILDS_MAX 3 /* at a time: more only take the processors from what runs */
#define POOL_LEFT_PART 4u /* of `warm`: of all kinds for who gets what others leave, together */

struct pool {
    struct pool_config cfg;
    struct pool_kind kind[POOL_KINDS_MAX];
    unsigned kinds;
    unsigned slots;
    unsigned next_slot; /* where the search for a free one begins: ids come back late */
    bool *taken;
    unsigned in_use; /* by runs */
    unsigned stay;   /* by sandboxes */
    uint64_t made, taken_warm;
    bool stopped;
    struct pool_refill refill;
    struct loop_timer timer;
    char health[WIRE_TEXT_MAX];
};

/* The loop looks again at what is to be done, by then. */
void pool_later(struct pool *p, uint64_t due_ns);
/* Who was told "later" may ask again. */
void pool_room(struct pool *p);

/* The kind, which is new if nobody has asked for it in a while. NULL: there are too many. What was
 * got before may be somewhere else afterwards. */
struct pool_kind *pool_kind_get(struct pool *p, const struct policy *policy, const char *image,
                                bool left, struct err *err);
void pool_forget(struct pool *p, struct pool_kind *k);
/* How many are wanted of the kinds for who gets what others leave, together; how many may be. */
unsigned pool_left_want(const struct pool *p);
unsigned pool_left_most(const struct pool *p);
/* … and how many of a kind that others get. */
unsigned pool_want(const struct pool *p, const struct pool_kind *k);
void pool_share(struct pool *p);
/* How many are ready; below how many somebody modest makes refills hurry. */
uint32_t pool_warm(const struct pool_kind *k);
unsigned pool_rush_until(const struct pool_kind *k);

/* A jail that is in no list yet. ERR_LIMIT: every slot is taken. */
struct jail *pool_make(struct pool *p, struct pool_kind *k, struct err *err);
/* Nobody gets it any more. -> the kind in whose list it was; NULL = in none. */
struct pool_kind *pool_drop(struct pool *p, const struct jail *jail);
