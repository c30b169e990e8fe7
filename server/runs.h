/* All runs: the queue in front of the shards, the table by id, and what is kept of finished ones.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bodies.h"
#include "hostmem.h"
#include "links.h"
#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "pipes.h"
#include "queue.h"
#include "quota.h"
#include "redo.h"
#include "run.h"
#include "trace_index.h"

#define RUNS_BUCKETS 8192u

struct audit;
struct receipt_key;
struct snapshots;
struct store;
struct work;

struct runs_options {
    size_t queue_count; /* runs that may wait */
    size_t queue_bytes; /* bytes of their requests */
    size_t keep_count;  /* finished runs kept in memory */
    size_t keep_bytes;  /* bytes of their results */
    size_t active_max;  /* runs in jails at once, whatever the shards have (descriptors) */
};

struct runs {
    struct loop *loop; /* borrowed, as are log, links and metrics */
    struct log *log;
    struct links *links;
    struct metrics *metrics;
    struct snapshots *snapshots;   /* borrowed; NULL = no steps are kept */
    struct audit *audit;           /* borrowed; NULL = nothing is recorded … */
    const struct receipt_key *key; /* … and there are no receipts */
    struct work *work;             /* borrowed; NULL = everything here and now */
    struct store *store;           /* borrowed; NULL = results are kept in memory only */
    int results;                   /* with a store: the directory of large ones; owned */
    struct bodies bodies;          /* files there that requests which are not over need */
    struct redo redo;              /* what is over and not in the database yet; fd -1 = none */
    struct run *unsaved_first, *unsaved_last;   /* over, and not written yet */
    size_t unsaved;                             /* how many */
    struct loop_timer again;                    /* for them */
    uint64_t again_by_ns;                       /* then at the latest, whatever runs */
    struct run_store_seen seen[RUN_STORE_SEEN]; /* bodies of requests that are stored */
    struct retain *retain;                      /* how long results are kept */
    struct quota *quota;                        /* borrowed; NULL = nobody has any */
    struct hostmem *mem;                        /* borrowed; NULL = memory has no end */
    struct processors *processors;              /* borrowed; NULL = nobody shares them out */
    struct runs_options options;
    struct pipes pipes;
    struct queue queue;
    struct run *buckets[RUNS_BUCKETS];
    struct trace_index by_trace;
    struct run *newest, *oldest;           /* all, by age */
    struct run *done_oldest, *done_newest; /* finished, by when they finished */
    size_t count, done_count, active, sealing;
    bool closed;      /* see runs_close() */
    uint64_t last_us; /* that an id began with */
    size_t done_bytes;
    struct loop_defer dispatch, evict;
    unsigned char random[1024]; /* for ids, fetched in advance */
    size_t random_left;
    struct loop_timer starve; /* no runner for a while: the waiting runs are answered */
};

void runs_init(struct runs *runs, struct loop *loop, struct log *log, struct links *links,
               struct metrics *metrics, const struct runs_options *options);
void runs_done(struct runs *runs);

/* Is there room for a request of this size of somebody who has none waiting? */
bool runs_may_queue(const struct runs *runs, size_t bytes);
/* Names the run. */
int runs_name(struct runs *runs, struct run *run, struct err *err);
/* Names the run if it has no name, puts it into the table, and starts it now when that is possible,
 * else queues it.
 */
int runs_add(struct runs *runs, struct run *run, const char *owner, struct err *err);
/* -> borrowed, or NULL. */
struct run *runs_find(const struct runs *runs, const char *id);

/* A jail may have become free, or a shard is there. */
void runs_room(struct runs *runs);
/* Unfinished ones: queued, running, and being stored. */
size_t runs_unfinished(const struct runs *runs);
/* Nothing that waits starts any more. With `keep`, runs whose callers know their names wait for the
 * next server, which finds them in the store, and who waits for them here is told so. All others
 * end as cancelled: whoever asked for one is there, and gets his answer. */
void runs_close(struct runs *runs, bool keep);
/* Does it wait for the next server? */
bool runs_is_kept(const struct run *run);
/* Cancels everything. */
void runs_cancel_all(struct runs *runs, enum cause cause);

void runs_cancel_some(struct runs *runs, bool (*is_meant)(void *arg, const struct run *run),
                      void *arg);

/* What was set aside looks again: there may be memory for it, its user's quota is another one, or
 * the store can be written again. */
void runs_go_on(void *runs);
/* Something was given back that runs of this user, or made with this token (NULL: none), may wait
 * for. */
void runs_quota_freed(void *runs, const char *user, struct accounts_token *token);

/* For run.c. */
uint64_t runs_cpu_ms(const struct run *run);
/* It ends before it begins. */
void runs_unqueue(struct runs *runs, struct run *run);
/* It gets a jail. */
void runs_started(struct runs *runs, struct run *run);
/* It has ended; what is kept of it is about to be stored. */
void runs_over(struct runs *runs, struct run *run);
/* It is stored, or cannot be. */
void runs_finished(struct runs *runs, struct run *run);
/* It may be evicted from now on: it is stored (or nothing is). */
void runs_cache(struct runs *runs, struct run *run);
/* Puts a run of the store into the table: one that is over, or one that waits again. */
void runs_put(struct runs *runs, struct run *run);
int runs_requeue(struct runs *runs, struct run *run, struct err *err);
/* It is not stored any more: neither is it kept in memory. */
void runs_forget(struct runs *runs, const char *id);
/* Results were stored (or dropped) for a user. */
void runs_kept(struct runs *runs, const char *user, int64_t count, int64_t bytes);
void runs_count_end(struct runs *runs, enum cause cause);
void runs_log(struct runs *runs, const struct run *run, const struct err *err);
/* Keeps a run in memory while somebody works on it. */
void runs_pin(struct run *run);
void runs_unpin(struct run *run);
/* Nothing is asked for: of finished runs that are stored little stays in memory. */
void runs_rest(struct runs *runs);
/* The encoded answer of a finished run was made: it counts. */
void runs_grown(struct run *run, size_t bytes);
