/* Quotas: what a user, and a token, may use at once, a day, and in store.
 *
 * A quota counts what the caller holds now (runs that are not over, sandboxes that live, the memory
 * and the disk that their limits promise them, bytes that are stored for it) or what it has used
 * since midnight UTC (CPU time). Every use is charged to the token that asked, to all tokens above
 * it, and to the user; each of them must have room.
 *
 * - A new run is refused (429) when "runs", "cpu_ms_per_day" or "result_bytes" is used up, or when
 *   its memory or disk is more than the quota, or than what the caller's sandboxes leave of it:
 * that is not a matter of moments.
 * - Its start waits for "parallel_runs", "mem_bytes" and "disk_bytes", which other runs give back
 * in moments: nothing is refused for them.
 * - A sandbox is refused when "sandboxes", "mem_bytes" or "disk_bytes" have no room for it.
 * - An execution is refused when "cpu_ms_per_day" is used up.
 * - A snapshot is refused when "snapshot_bytes" is used up; how much it will hold is not known
 *   before, so the last one may go beyond.
 *
 * And without any quota, the output that a user's runs may keep in the server's memory until their
 * results are stored is bounded: those that would pass that together wait for each other. One
 * alone never waits for it.
 *
 * What runs when a quota is used up goes on: its own limits bound it.
 *
 * CPU time is what the cgroups have measured, told at the end of each step and execution. Usage of
 * a day outlasts the server: where a limit stands on it, it is written in the same commit as the
 * run that has used it, else once a second. What a token may spend in its whole life is a budget
 * (accounts_budget.h).
 *
 * All of this is arithmetic in memory. Who has no quota pays a few additions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api_error.h"
#include "err.h"

enum quota_kind {
    QUOTA_RUNS,           /* runs that wait or run */
    QUOTA_PARALLEL,       /* runs that are in a jail at once; more than that wait in the queue */
    QUOTA_SANDBOXES,      /* that are not gone */
    QUOTA_MEM_BYTES,      /* memory limits of what is in jails, summed */
    QUOTA_DISK_BYTES,     /* disk limits of what is in jails, summed */
    QUOTA_CPU_MS_PER_DAY, /* CPU time that ended steps and executions have used since 00:00 UTC */
    QUOTA_RESULT_BYTES,   /* stored results of runs */
    QUOTA_SNAPSHOT_BYTES, /* kept snapshots */
    QUOTA_COUNT
};

/* Nothing was said: of a token, no limit; of a user, what the configuration says (default_quota).
 */
#define QUOTA_UNLIMITED UINT64_MAX
/* No limit, whatever the configuration says. */
#define QUOTA_NONE (UINT64_MAX - 1)

struct quota_limits {
    uint64_t v[QUOTA_COUNT];
};

struct queue_gate;
struct accounts_user;
struct accounts_token;

/* Zeroed at birth; kept by quota.c. */
struct quota_use {
    uint64_t v[QUOTA_COUNT];
    uint64_t box_mem_bytes, box_disk_bytes; /* how much of the two is that of sandboxes */
    uint64_t output_bytes; /* of a user: what his runs that run may keep in the server's memory */
    uint32_t day;          /* days since the epoch (UTC) that the CPU time and day_runs belong to */
    uint32_t cpu_ns;       /* the part of the CPU time that is less than a millisecond */
    uint64_t day_runs;     /* runs that were taken that day */
    struct queue_gate *gate; /* of a token: its runs that wait for its own quota (queue.h) */
    /* What is to be written; private. */
    bool dirty;
    struct quota_use *next;
    struct accounts_user *user;   /* counted while it is dirty */
    struct accounts_token *token; /* likewise; NULL = it is the user's */
};

/* This part of the host's memory, but at least so much. */
#define QUOTA_OUTPUT_PART 4u
#define QUOTA_OUTPUT_LEAST ((uint64_t)512 * 1024 * 1024)

/* "runs", "parallel_runs", "sandboxes", "mem_bytes", "disk_bytes", "cpu_ms_per_day",
 * "result_bytes", "snapshot_bytes": the names in JSON and on the command line. */
const char *quota_name(enum quota_kind kind);

struct accounts;
struct loop;
struct log;
struct quota;
struct store;

struct quota_options {
    struct loop *loop; /* borrowed, as are the next three */
    struct log *log;
    struct store *store; /* NULL = nothing is kept */
    struct accounts *accounts;
    struct quota_limits defaults; /* of users */
    uint64_t output_bytes; /* of a user's runs together; QUOTA_OUTPUT_LEAST when that is more */
};

/* Reads what was used today. Every function below takes a quota that is NULL: nothing is charged.
 */
struct quota *quota_new(const struct quota_options *options, struct err *err);
/* Writes what is still to be written. */
void quota_free(struct quota *q);
/* Something that runs may wait for was given back by this user and this token (or NULL). */
void quota_watch(struct quota *q,
                 void (*fn)(void *arg, const char *user, struct accounts_token *token), void *arg);

/* Who is charged with what. Embedded in what holds something; zeroed at birth. */
struct quota_held {
    struct accounts_user *user;   /* counted; NULL = nobody is charged */
    struct accounts_token *token; /* counted; NULL = of an earlier server whose token is gone */
    bool box;                     /* it is a sandbox */
    uint64_t output_bytes;        /* of a run: output that it may keep in the server's memory */
    bool output_taken;
    uint64_t v[QUOTA_COUNT];
};
/* `token` may be NULL: then the user of this name, if there is one. */
void quota_hold(struct quota *q, struct quota_held *h, struct accounts_token *token,
                const char *user);
/* The token of this id ("" = none), if it is still there. */
void quota_hold_id(struct quota *q, struct quota_held *h, const char *token, const char *user);
/* Gives everything back and forgets who it was. Idempotent. */
void quota_let_go(struct quota *q, struct quota_held *h);

/* May they start one more? 0, or -1 and *error is 429 `quota` with its name. */
int quota_may_run(struct quota *q, const struct quota_held *h, uint64_t mem_bytes,
                  uint64_t disk_bytes, struct api_error *error);
int quota_may_exec(struct quota *q, const struct quota_held *h, struct api_error *error);
int quota_may_sandbox(struct quota *q, const struct quota_held *h, uint64_t count,
                      uint64_t mem_bytes, uint64_t disk_bytes, struct api_error *error);
int quota_may_snapshot(struct quota *q, const struct quota_held *h, struct api_error *error);

void quota_take(struct quota *q, struct quota_held *h, enum quota_kind kind, uint64_t amount);
void quota_give(struct quota *q, struct quota_held *h, enum quota_kind kind);
/* A run starts: h->output_bytes, until quota_let_go(). */
void quota_take_output(struct quota *q, struct quota_held *h);
/* A run was accepted: QUOTA_RUNS, and the day's count. */
void quota_take_run(struct quota *q, struct quota_held *h);
/* A step or an execution has used this much. */
void quota_spent(struct quota *q, struct accounts_user *user, struct accounts_token *token,
                 uint64_t cpu_ns);
/* Some of it turns out not to have been used. */
void quota_unspent(struct quota *q, const char *user, struct accounts_token *token,
                   uint64_t cpu_ns);
/* Bytes that are stored for a user, or no longer. */
void quota_add_user(struct quota *q, const char *user, enum quota_kind kind, int64_t delta);

/* May a run of theirs start now? NULL = yes; else who has no room: the user's own, or a token's
 * (then *token). */
struct quota_use *quota_in_the_way(struct quota *q, const struct quota_held *h, uint64_t mem_bytes,
                                   uint64_t disk_bytes, struct accounts_token **token);

/* What is in force (QUOTA_UNLIMITED: nothing), and what is used, at this moment. */
uint64_t quota_limit_of_user(const struct quota *q, const struct accounts_user *user,
                             enum quota_kind kind);
uint64_t quota_used(const struct quota_use *use, enum quota_kind kind);
uint64_t quota_runs_today(const struct quota_use *use);
