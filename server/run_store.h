/* What the store has of a run, and how it comes there.
 *
 * A run whose caller is told of it before its end (202, a stream, an Idempotency-Key) has a row
 * before he is told; one that is waited for has none until it is over. A run that is over is
 * written with all that is kept of it, and only when that is durable anybody is told: into the redo
 * log, and a moment later, with others, into the database; or, when it is large, there at once.
 * When it cannot be written it is told nevertheless, stays in memory, and is written when that is
 * possible again; should the server die before, its end is in the redo log, which has room of its
 * own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accounts.h"
#include "store.h"
#include "store_runs.h"

struct run;
struct runs;
struct run_store_job;
struct api_error;

/* Records from here on are made by a worker … */
#define RUN_STORE_INLINE ((size_t)64 * 1024)
/* … and from here on lie in files. */
#define RUN_STORE_FILE ((size_t)256 * 1024)

struct run_store {
    bool told;        /* somebody is, or is about to be, told of it before its end: it has a row */
    bool stored;      /* it is over, and in the database */
    bool unsaved;     /* it is over, and could not be written */
    bool has_input;   /* the body of its request is, or will be, kept … */
    bool filed;       /* … in a file, which is there already, and held (bodies.h) */
    uint64_t seq;     /* of its record; 0 = none */
    uint64_t round;   /* transactions before the one with its row */
    uint64_t bytes;   /* of row and record */
    uint64_t counted; /* of these, for its user, while it is in the redo log only */
    uint8_t input[STORE_RUNS_HASH_SIZE];
    char *body; /* of its request, as it came, until it is written; owned */
    size_t body_len;
    uint64_t file_bytes; /* what its body adds to `bytes`: of one in a file that is new there */
    char *record;        /* run_record.h; of one that is in the redo log; owned */
    size_t record_len;
    struct store_waiter row, durable;
    struct run_store_job *job;          /* a worker is at it */
    struct run *next, *prev;            /* unsaved ones */
    char token[ACCOUNTS_TOKEN_ID_SIZE]; /* of one that was read: who asked for it */
};

/* A body that was used within the hour and is in the database: most clients send the same again and
 * again. */
#define RUN_STORE_SEEN 64u
struct run_store_seen {
    uint8_t hash[STORE_RUNS_HASH_SIZE];
    uint64_t until_ms; /* monotonic; 0 = empty */
};

/* Keeps the body of its request (malloc'ed, taken over), or, when a worker has written it into a
 * file already, which it holds, only its hash. */
void run_store_body(struct run *run, char *body, size_t len);
void run_store_body_filed(struct run *run, const uint8_t hash[STORE_RUNS_HASH_SIZE], size_t len);
/* The run that such a file was held for does not come about. */
void run_store_body_unfile(struct runs *runs, const uint8_t hash[STORE_RUNS_HASH_SIZE]);
/* It has a name, and its caller will be told of it. -1: it cannot be stored (*err). */
int run_store_tell(struct run *run, struct err *err);
/* It is about to leave the queue. -1: that cannot be written, so it must not yet. */
int run_store_launch(struct run *run);
/* A step begins: what the others have left is kept. */
void run_store_progress(struct run *run);
/* It is over: run_settled() is called, at once or later. */
void run_store_end(struct run *run);
/* It goes away. */
void run_store_stop(struct run *run);

/* All runs: what a start finds, and what could not be written. */
struct run_store_options {
    bool keep_queued;          /* runs that waited go on waiting, else they are interrupted */
    struct accounts *accounts; /* whose tokens asked for them */
};
/* Ends what an earlier server has left unfinished, or puts it into the queue again. */
int run_store_recover(struct runs *runs, const struct run_store_options *options, struct err *err);
/* Opens the redo log of STATE/server and takes what is in it into memory, to be written as soon as
 * the loop runs. Before run_store_recover(). */
int run_store_redo_open(struct runs *runs, int server, struct err *err);
/* Puts a run that is over into the log. false: it must go into the database itself. */
bool run_store_redo_add(struct run *run);
/* The database cannot be written, and nobody knows when it can be again: into the room that the log
 * has, without its request's body, and when it is long without its output. In memory all of it
 * stays. */
void run_store_redo_rescue(struct run *run);
/* Everything that waits to be written is, now: the server stops. What cannot be stays in the log.
 */
void run_store_flush(struct runs *runs);
/* It waits to be written. */
void run_store_link(struct run *run);
/* Is its request's body in the database, as far as is known? */
bool run_store_is_seen(struct run *run);
/* Is its record made at once, and not by a worker? */
bool run_store_is_short(const struct run *run);
/* Writes row and record of a run as it is now. */
int run_store_write_now(struct run *run, struct err *err);

/* The store can be written again: what could not be written is, and what could not start for that
 * does, at once. */
void run_store_well(void *runs);

/* One that is not in memory any more: fn is called, now or later, with the run (which is in the
 * table then, and may be evicted as soon as fn returns unless it is pinned), or with NULL and
 * *error. `run_store_fetch_stop` takes the wish back. */
struct api_error;
struct run_store_fetch;
struct run_store_wish {
    void (*fn)(void *arg, struct run *run, const struct api_error *error);
    void *arg;
    struct run_store_fetch *fetch; /* NULL = not waiting */
};
void run_store_fetch(struct runs *runs, const char *user, const char *id, struct run_store_wish *w);
void run_store_fetch_stop(struct run_store_wish *w);

/* The body of its request, as it came: 1 = appended to `out`, 0 = it is not kept, -1 = failed. It
 * may read a file of megabytes: for a worker there is run_store_body_find(), which says which one,
 * and results_read(). */
int run_store_body_find(struct runs *runs, const char *user, const char *id, struct buf *out,
                        char file[STORE_RUNS_FILE_SIZE], struct err *err);
