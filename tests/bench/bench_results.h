/* Everything that one run of the benchmark has found out, and what is said about it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench_client.h"
#include "bench_fair.h"
#include "bench_file.h"
#include "bench_floor.h"
#include "bench_journal.h"
#include "bench_load.h"
#include "bench_loop.h"
#include "bench_snapshot.h"
#include "bench_stream.h"
#include "err.h"

/* What a single `true` is run by. */
enum bench_row {
    BENCH_ROW_SPAWN,
    BENCH_ROW_FLOOR,
    BENCH_ROW_BWRAP,
    BENCH_ROW_WARM,
    BENCH_ROW_MEMORY, /* warm, and results are kept in memory only */
    BENCH_ROW_COLD,
    BENCH_ROW_EXEC,   /* in a sandbox that is there */
    BENCH_ROW_CREATE, /* in one that is made for it */
    BENCH_ROWS
};
enum bench_pace { BENCH_CLOSED, BENCH_PACED, BENCH_PACES };

#define BENCH_PACE_NS 5000000u /* one every 5 ms */

enum bench_crowd { BENCH_CROWD_1, BENCH_CROWD_8, BENCH_CROWD_32, BENCH_CROWDS };
enum bench_flow {
    BENCH_FLOW_WAIT,  /* zeros, wait:true */
    BENCH_FLOW_ZEROS, /* zeros, stream:true: six bytes of JSON for each */
    BENCH_FLOW_TEXT,  /* lines of text, stream:true */
    BENCH_FLOWS
};
#define BENCH_FLOW_BYTES 100000000u

#define BENCH_BURSTS 3
#define BENCH_BURST_CLIENTS 100u

struct bench_rate {
    uint64_t laps, ns;
};

struct bench_burst {
    double first_us, median_us, last_us;
};

struct bench_idle {
    uint64_t server_bytes; /* Pss */
    uint64_t runner_bytes; /* Pss of all its processes outside of jails */
    uint64_t jailed_bytes; /* Pss of the processes in its warm jails */
    size_t runner_processes, jails;
};

struct bench_jail_cost {
    size_t jails;
    int64_t available_bytes; /* MemAvailable lost per jail */
    int64_t kernel_bytes;    /* slab, stacks, page tables, per-CPU memory per jail */
    int64_t process_bytes;   /* Pss of its processes per jail */
};

/* Workspaces that snapshots are taken of. */
enum bench_workspace { BENCH_WORKSPACE_SMALL, BENCH_WORKSPACE_LARGE, BENCH_WORKSPACES };

/* Sandboxes that are there and do nothing. */
struct bench_many {
    size_t boxes;
    int64_t available_bytes;     /* MemAvailable lost per sandbox */
    int64_t kernel_bytes;        /* slab, stacks, page tables, per-CPU memory per sandbox */
    double make_s;               /* until all were there */
    struct bench_times one, all; /* executions in one of them, when it was alone and among all */
};

struct bench_sandboxes {
    struct bench_burst burst; /* BENCH_BURST_CLIENTS made at once, to the answer of a command */
    struct bench_many many;
    struct bench_snapshot_result snapshot[BENCH_WORKSPACES];
    struct bench_series sync;
    struct bench_file_result file;
};

struct bench_results {
    unsigned cores;
    bool has_bwrap;
    struct bench_times laps[BENCH_ROWS][BENCH_PACES];
    struct bench_floor_phases *phases;
    struct bench_rate spawn_rate, floor_rate; /* on as many processes as cores */
    struct bench_load_result load[BENCH_CROWDS];
    struct bench_load_result memory_load; /* 8 clients, results in memory only */
    struct bench_burst burst;             /* the middle one */
    struct bench_stream_result flow[BENCH_FLOWS];
    struct bench_idle idle_start, idle_end;
    struct bench_jail_cost jail;
    struct bench_sandboxes sandboxes;
    struct bench_fair_result fair;
    struct bench_client_result client;
    struct bench_journal_result journal;
    double verdicts_per_s; /* of the permission engine, per second of one processor */
};

void bench_results_done(struct bench_results *r);

unsigned bench_results_workspace_mib(enum bench_workspace workspace); /* 10, 1024 */
unsigned bench_results_clients(enum bench_crowd crowd);               /* 1, 8, 32 */
const char *bench_results_row(enum bench_row row);
const char *bench_results_flow(enum bench_flow flow);
/* Percentile of a row in µs, and of the same with its removal (0 where nothing is removed). */
double bench_results_us(struct bench_results *r, enum bench_row row, enum bench_pace pace,
                        unsigned percent);
double bench_results_removed_us(struct bench_results *r, enum bench_row row, enum bench_pace pace,
                                unsigned percent);
double bench_results_phase_us(const struct bench_results *r, unsigned phase); /* p50 */
double bench_results_rate(const struct bench_rate *rate);                     /* per second */
double bench_results_load_rate(const struct bench_load_result *load);         /* per second */
double bench_results_flow_rate(const struct bench_stream_result *f);          /* MB/s, MB = 10^6 */

/* What was to be reached. */
struct bench_goal {
    char what[96];
    char unit[8];
    double measured, target;
    bool at_least; /* else at most */
    bool met;
};
#define BENCH_GOALS_MAX 48
struct bench_goal_list {
    struct bench_goal goal[BENCH_GOALS_MAX];
    size_t count;
};
struct bench_goal bench_goals_at_most(double measured, double target, const char *unit);
struct bench_goal bench_goals_at_least(double measured, double target, const char *unit);
/* Adds a goal that lacks its name and its verdict; beyond the maximum it is dropped. */
void bench_goals_add(struct bench_goal_list *l, struct bench_goal goal, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
void bench_goals_judge(struct bench_results *r, struct bench_goal_list *l);
void bench_workspace_judge(struct bench_results *r, struct bench_goal_list *l);
void bench_sandboxes_judge(struct bench_results *r, struct bench_goal_list *l);

struct json_t;
void bench_sandboxes_print(FILE *out, struct bench_results *r);
struct json_t *bench_sandboxes_json(struct bench_results *r);
void bench_workspace_print(FILE *out, struct bench_results *r);
struct json_t *bench_workspace_json(struct bench_results *r);
/* What is said of a series: runs, percentiles. */
struct json_t *bench_json_series(struct bench_series *s);

void bench_table_print(FILE *out, struct bench_results *r);
int bench_json_write(const char *path, struct bench_results *r, struct err *err);
