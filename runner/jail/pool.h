/* The jails of one shard: slots with their ranges of user ids, the templates of images, and the
 * warm jails that wait for a request.
 *
 * A warm jail has run nothing; it is given away once and never comes back. Kinds of jails are pairs
 * of policy and image. The default policy with image "host" is kept warm from the start, any other
 * kind from its first use until it has not been asked for in a while. Refilling stands back for
 * what runs (pool_refill.h); only an empty pool is refilled at once, and one whose jails die as
 * they wait after growing pauses (pool_backoff.h).
 *
 * Who has had many (pool_wish.modest) gets nothing of the last half of those that are ready: he
 * waits for the next that are made; and where he has left few, they are made without a pause.
 *
 * Who gets what others leave of processors (pool_wish.left) is given jails that are made for that
 * (cgroup_left_init()), a kind of its own that is kept warm while he asks; one of all others' when
 * none of those is ready. There are at most a quarter as many as of the kind that is kept from the
 * start, which has so many fewer meanwhile; nobody else gets them, so they are not counted as warm.
 */
#pragma once

#include <stdint.h>

#include "err.h"
#include "jail.h"
#include "policy.h"
#include "rootfs.h"
#include "seccomp_filter.h"

#define POOL_ID_FIRST 0x10000000u /* jail_ids.first: far above what hosts give to people */
#define POOL_SLOTS_MAX 2048u      /* per shard */

struct pool;

struct pool_config {
    struct jail_host *host;             /* borrowed */
    const struct policy_set *policies;  /* borrowed */
    struct seccomp_program programs[2]; /* by enum policy_syscalls; borrowed contents */
    int images_dirfd;                   /* STATE/images, or -1; borrowed */
    unsigned shard;
    unsigned slots;             /* jails of runs at once; warm and dying ones come on top */
    unsigned sandboxes;         /* jails that stay, at once, beside them */
    unsigned warm;              /* of the kind that is kept from the start … */
    unsigned warm_more;         /* … and of any other that is in use */
    bool keep_host;             /* keeps the default policy with image "host" warm from the start */
    void (*changed)(void *arg); /* counts or health changed; may be NULL */
    void (*room)(void *arg);    /* another jail can be made: who was told "later" may ask again */
    void *arg;
};

struct pool_stats {
    uint32_t warm;   /* ready and waiting */
    uint32_t in_use; /* given away to runs and not released */
    uint64_t made;
    uint64_t taken_warm;
    const char *health; /* "" or why no jail can be made; borrowed */
};

struct pool *pool_new(const struct pool_config *cfg, struct err *err);
/* Starts filling; call it once the loop is about to run. */
void pool_start(struct pool *pool);
/* Makes no more jails and kills those that wait. pool_empty() tells when all, also those given
 * away, are gone. */
void pool_stop(struct pool *pool);
bool pool_empty(const struct pool *pool);
/* Releases the memory; jails that are left are killed and not waited for. NULL allowed. */
void pool_free(struct pool *pool);

/* Hands out a jail of this kind: warm, or one that is being made (`ready` of the new owner's events
 * follows). From now on events go to `events`/`arg`; the owner calls pool_settled() from `ready`,
 * `failed` and `gone`, and pool_release() from `gone`.
 * Returns 0, or 1: as many are being made as is good for those that run already, every slot is
 * taken, or what is ready is for others; ask again when `room` is called. -1: ERR_INVALID: no such
 * image, not that one, or not allowed by the policy; ERR_STATE: stopping. */
struct pool_wish {
    const struct policy *policy;
    const char *image;
    const uint8_t *image_sha256; /* 32 bytes: what it must be; zeros for "host" of native jails */
    bool stays;                  /* it counts as a sandbox */
    bool modest;                 /* the last half of those that are ready are for others */
    bool left;                   /* whoever asks gets what others leave of processors */
};
int pool_take(struct pool *pool, const struct pool_wish *wish, const struct jail_events *events,
              void *arg, struct jail **jail, struct err *err);
/* The jail is made, or will never be. Idempotent. */
void pool_settled(struct pool *pool, struct jail *jail);
/* Takes back the slot of a jail that is gone, and frees the jail. */
void pool_release(struct pool *pool, struct jail *jail);
/* An execution began, or ended: while one is in progress, refills wait a little. */
void pool_began(struct pool *pool);
void pool_ended(struct pool *pool);

/* out->health is borrowed until something changes. */
void pool_stats(const struct pool *pool, struct pool_stats *out);
/* Calls fn for each kind of jails with how many of it are ready and wait. */
void pool_kinds(const struct pool *pool,
                void (*fn)(void *arg, const char *policy, const char *image, uint32_t warm),
                void *arg);
