/* Snapshots that users can name: what the server knows of them. What is in them is with the runner
 * shard that made them, under the id as the key.
 *
 * Each has a row in the store, read at start and matched with what the shard kept. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "links.h"
#include "log.h"
#include "loop.h"
#include "sandbox_request.h"
#include "sandboxes.h"
#include "snapshots_lost.h"
#include "store.h"

#define SNAPSHOTS_DIR "server/snapshots" /* where an older server kept them, one file each */
#define SNAPSHOTS_BUCKETS 4096u
#define SNAPSHOTS_PREFIX "snap_"

struct snapshot {
    char id[SANDBOX_ID_SIZE]; /* and the runner's key */
    char owner[SANDBOX_OWNER_SIZE];
    char token[ACCOUNTS_TOKEN_ID_SIZE]; /* that asked for it; "" = not known */
    char shard[LINK_NAME_MAX];
    char image[WIRE_NAME_MAX], policy[WIRE_NAME_MAX];
    char source[SANDBOX_ID_SIZE]; /* of what: a sandbox or a run */
    char name[SANDBOX_REQUEST_NAME_MAX + 1];
    uint32_t disk;       /* enum wire_disk */
    bool step;           /* of a run: known by the run alone, and not written down */
    uint32_t step_index; /* of the step that it was made before */
    uint64_t bytes, files, added_bytes;
    uint64_t created_ms;

    struct quota_held held;
    bool settled; /* its shard is there and has it */
    /* Private: its row is as it should be once `written` was told so. */
    struct snapshots *all;
    struct store_waiter written;
    bool row, unsaved;
    struct snapshot *hash_next, *newer, *older;
};

struct snapshots_options {
    size_t count;   /* at most, those of steps included */
    uint64_t bytes; /* of what they hold that others do not */
};

struct snapshots {
    struct loop *loop; /* borrowed, as are log and links */
    struct log *log;
    struct links *links;
    struct quota *quota; /* borrowed; NULL = nobody has any */
    struct store *store; /* borrowed; NULL = they do not survive the server */
    struct snapshots_options options;
    struct snapshot *buckets[SNAPSHOTS_BUCKETS];
    struct snapshot *newest, *oldest;
    size_t count, pending;
    uint64_t bytes;
    struct snapshots_lost lost; /* to be asked when one is not found */
    struct loop_timer settle, rewrite;
};

void snapshots_init(struct snapshots *s, struct loop *loop, struct log *log, struct links *links);
/* Reads the store, and first what an older server left in the state directory, which is the current
 * one. Before links_start(). */
int snapshots_start(struct snapshots *s, const struct snapshots_options *options, struct err *err);
void snapshots_done(struct snapshots *s);

/* The store can be written again: what could not be is written now. */
void snapshots_well(struct snapshots *s);

/* What links.h tells: matches what the shard kept; drops what nobody knows. */
void snapshots_ready(struct snapshots *s, struct link *l);
void snapshots_down(struct snapshots *s, const struct link *l);
void snapshots_dead(struct snapshots *s, const char *shard);

/* Names a snapshot of `info` (whose owner and token are set) and holds a place for it until
 * snapshots_add() or snapshots_give_up(); the oldest steps of runs go when there is none. -1:
 * *error is 429, with the quota that is used up. */
int snapshots_begin(struct snapshots *s, struct snapshot *info, struct api_error *error);
void snapshots_give_up(struct snapshots *s);
/* The runner has made it: `info` (but for what is private) and what DONE said. NULL when memory is
 * short; the runner's is then dropped. So it is when its row turns out not to be durable. */
struct snapshot *snapshots_add(struct snapshots *s, const struct snapshot *info,
                               const struct wire_done *done);
/* -> borrowed, or NULL. */
struct snapshot *snapshots_find(const struct snapshots *s, const char *id);
/* Forgets it here and at the runner. */
void snapshots_remove(struct snapshots *s, struct snapshot *snap);
/* What a run has kept of the state before a step; NULL = nothing. */
struct snapshot *snapshots_of_step(const struct snapshots *s, const char *run, uint32_t index);
/* All that a run has kept of its steps. */
void snapshots_remove_steps(struct snapshots *s, const char *run);

struct json_out;
void snapshots_write_json(struct json_out *j, const char *key, const struct snapshot *snap);
