/* Runs in the store: a row for each that somebody was told of or that is over, its record
 * (run_record.h), and the bodies of requests by content. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "store.h"

#define STORE_RUNS_HASH_SIZE 32u
#define STORE_RUNS_FILE_SIZE (2 * STORE_RUNS_HASH_SIZE + 1) /* name in STATE/server/results */
#define STORE_RUNS_NAME_SIZE 64                             /* of a user, or an id */

enum store_run_state { STORE_RUN_QUEUED, STORE_RUN_RUNNING, STORE_RUN_DONE };

struct store_run {
    const char *user, *id;
    enum store_run_state state;
    uint64_t seq;         /* 0 = it has no row yet */
    uint64_t at_ms;       /* when it was accepted */
    uint64_t duration_ms; /* UINT64_MAX = not over */
    uint64_t bytes;       /* what is kept of it */
    const char *summary;  /* its line in the list */
    const char *label, *cause;
    const uint8_t *input; /* hash of its request's body; NULL = not kept; as with the first put */
    const uint8_t *trace_id; /* 16 bytes; NULL = none; likewise */
    const void *trace;
    size_t trace_len;
    const void *record; /* NULL: it is in `file` */
    size_t record_len;
    const char *file; /* NULL = none */
};

/* Writes the row and the record, new ones or over the old ones. Fills row->seq. */
int store_runs_put(struct store *s, struct store_run *row, struct err *err);
/* It is about to run. */
int store_runs_launch(struct store *s, const char *user, const char *id, struct err *err);

/* One of a user's. 1 = found, 0 = there is none. `record` is filled when it is not in a file. */
struct store_run_found {
    enum store_run_state state;
    uint64_t seq, bytes;
    bool has_input;
    uint8_t input[STORE_RUNS_HASH_SIZE];
    char file[STORE_RUNS_FILE_SIZE]; /* "" = none */
    struct buf record;               /* owned by the caller */
};
int store_runs_get(struct store *s, const char *user, const char *id, struct store_run_found *out,
                   struct err *err);

/* The lines of a user's runs that are over, newest first, older than `before` (NULL = the newest):
 * fn returns false to stop. What it gets is borrowed. */
struct store_run_line {
    const char *id, *summary;
};
int store_runs_list(struct store *s, const char *user, const char *before,
                    bool (*fn)(void *arg, const struct store_run_line *line), void *arg,
                    struct err *err);
/* Is there such a run of this user? 1 or 0. */
int store_runs_has(struct store *s, const char *user, const char *id, struct err *err);

/* A run that is not over, of an earlier life; more than one in the order of their ids. 1 = found.
 * `after` "" = the first. */
int store_runs_next_open(struct store *s, const char *after, char user[STORE_RUNS_NAME_SIZE],
                         char id[STORE_RUNS_NAME_SIZE], struct err *err);

/* For retention. */
struct store_run_old {
    uint64_t seq, at_ms, bytes;
    char user[STORE_RUNS_NAME_SIZE], id[STORE_RUNS_NAME_SIZE];
    bool filed; /* the body of its request lies in a file */
    char file[STORE_RUNS_FILE_SIZE];
    char input[STORE_RUNS_FILE_SIZE]; /* set by store_runs_drop() */
};
/* When the oldest run of all was accepted, also if it is not over: 1; 0 = there is none; -1. */
int store_runs_began(struct store *s, uint64_t *at_ms, struct err *err);
/* The oldest at most `max` that are over -> their number, or -1. */
int store_runs_oldest(struct store *s, struct store_run_old *out, size_t max, struct err *err);
/* With it goes the body of its request if that lies in a file and no run that was accepted later,
 * nor one within STORE_RUNS_INPUT_REST_MS of `now_ms`, has used it: old->input names the file then.
 */
#define STORE_RUNS_INPUT_REST_MS 5000u
int store_runs_drop(struct store *s, struct store_run_old *old, uint64_t now_ms, struct err *err);
/* Drops at most `max` bodies that no run since `before_ms` has used; the names of those in files go
 * to `file`. -> their number, or -1. */
int store_runs_drop_inputs(struct store *s, uint64_t before_ms, char (*files)[STORE_RUNS_FILE_SIZE],
                           size_t max, struct err *err);
/* Gives back pages that are free, a few. */
int store_runs_shrink(struct store *s, struct err *err);
/* Calls fn for each user with what is kept for it. */
int store_runs_totals(struct store *s,
                      void (*fn)(void *arg, const char *user, uint64_t count, uint64_t bytes),
                      void *arg, struct err *err);
/* Is a file of this name known? 1 or 0. */
int store_runs_knows_file(struct store *s, const char *file, struct err *err);

/* Bodies of requests. */
/* Notes that it is used at `now_ms`, and keeps it when it is new: in the database (`file` NULL), or
 * it is in a file already. */
struct store_input {
    const uint8_t *hash;
    const void *body;
    size_t len;
    const char *file;
    uint64_t now_ms;
};
int store_runs_put_input(struct store *s, const struct store_input *input, struct err *err);
/* 1 = found: appended to `out`, or the name of its file in `file`; 0 = it is not kept. */
int store_runs_get_input(struct store *s, const uint8_t hash[STORE_RUNS_HASH_SIZE], struct buf *out,
                         char file[STORE_RUNS_FILE_SIZE], struct err *err);
