/* All sandboxes: the table by id, those that wait for a slot, what the store says, and what happens
 * when a shard comes or goes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accounts.h"
#include "api_error.h"
#include "hostmem.h"
#include "links.h"
#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "queue.h"
#include "quota.h"
#include "request.h"
#include "sandbox.h"
#include "sandbox_spare.h"
#include "trace.h"
#include "work.h"

#define SANDBOXES_BUCKETS 4096u
#define SANDBOXES_DIR "server/sandboxes"
#define SANDBOXES_GONE_MS ((uint64_t)60 * 60 * 1000) /* how long one that is gone is remembered */
#define SANDBOXES_GONE_MAX 10000u

struct audit;
struct json_t;
struct store;

/* Why a sandbox is gone. */
enum sandbox_end {
    SANDBOX_END_DELETED,
    SANDBOX_END_EXPIRED,
    SANDBOX_END_IDLE,
    SANDBOX_END_RUNNER_DIED,
    SANDBOX_END_RUNNER_ENDED, /* the runner was there and did not keep it */
    SANDBOX_END_FAILED,       /* its jail broke */
    SANDBOX_ENDS
};

/* What a sandbox is made of. */
struct sandbox_spec {
    char owner[SANDBOX_OWNER_SIZE];
    char token[ACCOUNTS_TOKEN_ID_SIZE]; /* id of the one that asked for it; "" = not known */
    char image[WIRE_NAME_MAX];
    enum backend backend;
    uint8_t image_sha256[32]; /* zeros: it has none */
    struct wire_policy policy;
    struct limits_effective limits;
    struct request_env env;  /* owned: one allocation each */
    struct json_t *metadata; /* owned reference to an object; NULL = empty */
    uint32_t disk;           /* enum wire_disk */
    uint64_t ttl_ms, idle_ms;
    char from[WIRE_NAME_MAX];   /* key of the snapshot, "" = none … */
    char shard[LINK_NAME_MAX];  /* … and the shard that has it; "" = any */
    char origin[WIRE_NAME_MAX]; /* what the caller named: "snap_…", "run_…@5", "sb_…", or "" */
    struct trace trace;
};

void sandbox_spec_done(struct sandbox_spec *spec);
int sandbox_spec_copy(const struct sandbox_spec *from, struct sandbox_spec *to, struct err *err);
int sandbox_spec_set_env(struct sandbox_spec *spec, const struct request_env *env, struct err *err);

struct sandboxes_options {
    size_t queue_count; /* sandboxes that may wait for a slot */
    size_t live_max;    /* at once, whatever the shards take (descriptors) */
    /* A sandbox was read from the store: the modules set their parts. May be NULL. */
    void (*loaded)(void *arg, struct sandbox *sb);
    /* One is gone, and so are its parts; its spec is still there. May be NULL. */
    void (*gone)(void *arg, const struct sandbox *sb);
    /* All that a shard kept has been looked at. May be NULL. */
    void (*reconciled)(void *arg, struct link *l);
    void *arg;
};

struct sandboxes {
    struct audit *audit; /* borrowed; NULL = nothing is recorded */
    struct loop *loop;   /* borrowed, as are the next four */
    struct log *log;
    struct links *links;
    struct metrics *metrics;
    struct work *work;
    struct quota *quota;           /* borrowed; NULL = nobody has any */
    struct processors *processors; /* borrowed; NULL = nobody shares them out */
    struct hostmem *mem;           /* borrowed; NULL = memory has no end */
    struct store *store;           /* borrowed; set before sandboxes_start() */
    struct sandboxes_options options;
    uint64_t answer_ms; /* SANDBOX_ANSWER_MS, but for tests */
    uint64_t gone_ms;   /* SANDBOXES_GONE_MS, but for tests */
    struct sandbox *buckets[SANDBOXES_BUCKETS];
    struct sandbox *newest, *oldest;           /* all, by age */
    struct sandbox *gone_oldest, *gone_newest; /* in the order in which they went */
    struct sandbox *forgotten;                 /* not in the table any more, but not closed yet */
    struct queue queue;                        /* those that wait for a slot */
    size_t gone_count;
    size_t states[SANDBOX_GONE + 1]; /* how many are in each */
    struct loop_defer dispatch;
    struct loop_timer forget, rewrite;
    struct sandbox *large;    /* gone, and not small yet … */
    struct loop_timer shrink; /* … as they will be soon */
    struct sandbox_spare spare;
};

void sandboxes_init(struct sandboxes *s, struct loop *loop, struct log *log, struct links *links,
                    struct metrics *metrics, struct work *work);
/* Reads the store, and the state directory, which is the current one. Before links_start(). */
int sandboxes_start(struct sandboxes *s, const struct sandboxes_options *options, struct err *err);
/* Forgets all of them without ending any. */
void sandboxes_done(struct sandboxes *s);

/* The store can be written again: what could not be is written now. */
void sandboxes_well(struct sandboxes *s);

/* What links.h tells. */
void sandboxes_ready(struct sandboxes *s, struct link *l);
void sandboxes_dead(struct sandboxes *s, const char *shard);
void sandboxes_room(struct sandboxes *s);

/* -> borrowed, or NULL. Gone ones are found for a while. */
struct sandbox *sandboxes_find(const struct sandboxes *s, const char *id);
/* Makes a sandbox of a spec, which is taken over on success; it is OPENING: sandbox_wait_open().
 * NULL: *error is filled. */
struct sandbox *sandboxes_create(struct sandboxes *s, struct sandbox_spec *spec,
                                 struct api_error *error);
/* May so many more of this user wait? */
bool sandboxes_may_queue(const struct sandboxes *s, const char *user, size_t count);
/* Those that wait for a slot will not get one: this is why. */
void sandboxes_refuse_queued(struct sandboxes *s, const struct api_error *why);
/* Are some being adopted from a runner that is there? A matter of milliseconds. */
bool sandboxes_adopting(const struct sandboxes *s);
/* Of the calling user's: is the runner of any being looked for? */
bool sandboxes_unsettled(const struct sandboxes *s, const char *owner);

/* Somebody who waits for a sandbox to be open, or to be closed. fn(): `why` is NULL when it is so,
 * else the error to answer; the wait is over and the sandbox may be freed after it. */
struct sandbox_wait {
    struct sandbox_wait *next, *prev;
    struct sandbox *sandbox; /* NULL = not waiting */
    bool closed;
    void (*fn)(struct sandbox_wait *w, const struct api_error *why);
};
void sandbox_wait_open(struct sandbox *sb, struct sandbox_wait *w);
/* Is it closed already? Then nothing is waited for. */
bool sandbox_wait_closed(struct sandbox *sb, struct sandbox_wait *w);
void sandbox_wait_stop(struct sandbox_wait *w);

/* Ends it. `detail` may be NULL. */
void sandbox_life_end(struct sandbox *sb, enum sandbox_end why, const char *detail);
void sandbox_life_ttl(struct sandbox *sb, uint64_t ttl_ms);
/* One sentence why it is gone. */
void sandbox_life_text(const struct sandbox *sb, char *dst, size_t size);

/* The answer of the runner, or one with ETIMEDOUT when it takes too long; NULL when none will come.
 * Called once, unless sandbox_op_forget() was. */
typedef void sandbox_op_fn(void *arg, struct sandbox *sb, const struct wire_done *done);
struct sandbox_op;
/* Each: NULL and ERR_STATE when it does not fit the sandbox's state. */
struct sandbox_op *sandbox_op_freeze(struct sandbox *sb, bool frozen, sandbox_op_fn *fn, void *arg,
                                     struct err *err);
struct sandbox_op *sandbox_op_snapshot(struct sandbox *sb, const char *key, sandbox_op_fn *fn,
                                       void *arg, struct err *err);
struct sandbox_op *sandbox_op_restore(struct sandbox *sb, const char *key, sandbox_op_fn *fn,
                                      void *arg, struct err *err);
/* Whoever asked is gone. */
void sandbox_op_forget(struct sandbox_op *op);

/* sandbox_json.c: the object of the API. */
struct json_out;
void sandbox_json_write(struct json_out *j, const char *key, const struct sandbox *sb);

/* Of one that is gone little is left a moment later: its id, its owner, its trace, when and why.
 * Whatever else is asked for is empty then, unless somebody holds it. */
void sandbox_hold(struct sandbox *sb); /* not one that is gone */
void sandbox_release(struct sandbox *sb);
const struct sandbox_spec *sandbox_spec(const struct sandbox *sb);
const struct trace *sandbox_trace(const struct sandbox *sb);
struct link *sandbox_link(const struct sandbox *sb); /* NULL = no connection */
const char *sandbox_shard(const struct sandbox *sb);
const struct link_jail *sandbox_jail(const struct sandbox *sb); /* NULL = it has none now */
struct sandbox *sandbox_older(const struct sandbox *sb);

/* What is known of one without asking its runner. */
struct sandbox_sight {
    uint64_t created_ms, expires_ms, gone_ms; /* since the epoch; gone_ms 0 = it is not */
    uint64_t executions;                      /* ever */
    size_t running;                           /* commands now */
    bool measured;                            /* the rest is known, from executions that ended */
    uint64_t disk_bytes, mem_peak_bytes;
};
struct sandbox_sight sandbox_sight(const struct sandbox *sb);
