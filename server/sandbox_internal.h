/* What the parts of sandboxes share. Not for others: use sandbox.h and sandboxes.h. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "api_error.h"
#include "processors.h"
#include "request.h"
#include "sandbox.h"
#include "sandboxes.h"
#include "store.h"

/* Numbers of executions that a server may use before it writes its row again: one that comes back
 * never uses a number twice. */
#define SANDBOX_NUMBERS 65536u
/* How long whoever asked waits for the runner's answer. The runner may still be at work then: a
 * copy of a large workspace takes minutes. */
#define SANDBOX_ANSWER_MS 60000u
/* How long such work may hold up the end of a sandbox. */
#define SANDBOX_WORK_MS ((uint64_t)15 * 60 * 1000)
/* How long a sandbox waits for a slot, and for its shard to come back. */
#define SANDBOX_SLOT_MS 10000u
#define SANDBOX_SHARD_MS 5000u
#define SANDBOX_DETAIL_SIZE 160

/* A request to the runner that DONE answers. */
struct sandbox_op {
    struct sandbox_op *next;
    enum wire_type what;
    char key[WIRE_NAME_MAX];
    sandbox_op_fn *fn; /* NULL = nobody waits any more */
    void *arg;
    uint64_t due_ns; /* when whoever asked is told that it takes too long */
    bool late;       /* that was told: the answer is still to come */
};

struct sandbox_owed {
    struct accounts_token *token; /* counted; NULL = none */
    uint64_t cpu_ns;
};

struct sandbox_kept {
    struct wire_kept_exec exec;
    int fds[LINK_KEEP_FDS]; /* owned */
};

/* What there is of one as long as anything of it goes on. */
struct sandbox_live {
    struct sandbox *sandbox; /* its owner */
    struct sandbox_spec spec;
    struct quota_held held;
    struct hostmem_hold mem;
    struct processors_jail processors;
    bool frozen; /* what the last FREEZE asked for, answered or not */
    unsigned restoring;
    char shard[LINK_NAME_MAX]; /* "" = none yet */
    struct link_jail *jail;
    struct link_jail *leaving; /* the one that is being closed */

    uint64_t expires_ms;          /* since the epoch */
    uint64_t expires_ns, used_ns; /* monotonic: its end; last use */
    uint32_t next_number, number_floor;
    uint64_t started, executions, layers, writes;
    uint64_t disk_bytes, inodes, mem_peak_bytes; /* from ENDs */
    bool measured;

    struct sandbox_task *tasks;
    size_t task_count, command_count, writing_count;
    struct sandbox_op *ops, *last_op;
    struct sandbox_wait *waits;
    struct sandbox_kept *kept; /* while it is adopted */
    size_t kept_count;
    int64_t depth;                /* layers below the live one; -1 = not known */
    bool renewed;                 /* the last snapshot began a new live layer */
    char boundary[WIRE_NAME_MAX]; /* key of the last boundary, "" = none */
    struct {
        const struct sandbox_part_ops *ops;
        void *part;
    } parts[SANDBOX_PARTS];
    struct loop_timer life;     /* ttl and idle */
    struct loop_timer watchdog; /* waiting for a slot, for the shard, for an answer */
    int dir;                    /* -1 = not open */
    bool stored;                /* its directory is there */
    bool unsaved;               /* its row is not as it should be: the store could not be written */
    struct store_waiter written;

    char detail[SANDBOX_DETAIL_SIZE]; /* why it is gone, "" = nothing more */
    struct sandbox_failure failed;
    struct sandbox_owed *owed; /* what tasks that were lost were counted as */
    size_t owed_count;
    bool closing;   /* CLOSE was sent: it must not be freed */
    bool forgotten; /* free it when it is closed */
    unsigned holds; /* sandbox_hold() */
    bool large;     /* it is in the list of those … */
    struct sandbox *large_next;
    struct queue_node queued; /* OPENING: waits for a slot */
};

/* What is remembered of one that is gone, too. There may be SANDBOXES_GONE_MAX of them, so what
 * only the others need is in `live`. */
struct sandbox {
    struct sandboxes *all;     /* borrowed */
    struct sandbox_live *live; /* NULL: it is gone, and nothing of it goes on any more */
    char id[SANDBOX_ID_SIZE];
    enum sandbox_state state;
    enum sandbox_end why;         /* GONE */
    bool detached;                /* no connection to its shard: the runner may have it still */
    bool row;                     /* it has one in the store */
    uint64_t created_ms, gone_ms; /* since the epoch */
    struct trace trace;           /* as in its spec */
    char *detail;                 /* of one without `live`; NULL = none */
    struct sandbox *hash_next, *newer, *older;
    struct sandbox *gone_next; /* oldest first */
    char owner[];
};

/* --- sandbox.c -------------------------------------------------------------------------------- */

struct sandbox *sandbox_new(struct sandboxes *all, const char *owner, struct err *err);
void sandbox_free(struct sandbox *sb);
/* Gives back what one that is gone does not need any more; true when it is done. False: it lives,
 * or something of it goes on still. */
bool sandbox_shrink(struct sandbox *sb);
/* Its `live`, or an empty one; never NULL. */
const struct sandbox_live *sandbox_left(const struct sandbox *sb);
/* What the commands that ran when it ended have used, which the runner tells last (UINT64_MAX: it
 * could not): what was counted beyond that is given back. */
void sandbox_settle(struct sandbox *sb, uint64_t cpu_ns);
/* All tasks are told that they are lost. */
void sandbox_lose_tasks(struct sandbox *sb, enum cause cause);
/* Tasks that the runner does not know any more are lost; the rest of what it kept goes to the
 * modules. */
void sandbox_take_kept(struct sandbox *sb);
void sandbox_ended(struct sandbox *sb, const struct wire_end *end);
void sandbox_started(struct sandbox *sb, uint32_t number, int master);
/* The next block of numbers is on disk before one of them is used. -1: none may be. */
int sandbox_reserve_numbers(struct sandbox *sb, struct err *err);
/* Is anything going on that keeps it from being idle? */
bool sandbox_busy(const struct sandbox *sb);

/* --- sandbox_orphan.c ------------------------------------------------------------------------- */

/* A file operation of an earlier server may end by itself. -1: memory is short. */
int sandbox_orphan_adopt(struct sandbox *sb, uint32_t number);

/* --- sandbox_op.c ----------------------------------------------------------------------------- */

void sandbox_op_done(struct sandbox *sb, const struct wire_done *done);
/* No answer will come. */
void sandbox_op_fail_all(struct sandbox *sb);

/* --- sandbox_life.c --------------------------------------------------------------------------- */

/* Sends OPEN to `link`, which has room. -1: nothing was sent. */
int sandbox_life_open(struct sandbox *sb, struct link *link, struct err *err);
/* The shard that had it is there and has kept it. */
void sandbox_life_adopt(struct sandbox *sb, struct link *link);
/* It could not be opened: whoever waits is told, and it is forgotten. */
void sandbox_life_fail(struct sandbox *sb, const struct api_error *why);
/* Looks for its shard, a while. */
void sandbox_life_detach(struct sandbox *sb);
void sandbox_life_arm(struct sandbox *sb);

/* --- sandbox_wait.c --------------------------------------------------------------------------- */

void sandbox_wait_tell(struct sandbox *sb, bool closed, const struct api_error *why);

/* --- sandbox_store.c: its row in the database, and its directory, STATE/server/sandboxes/ID/ ----
 */

struct store_sandbox;
/* Writes its row; what is not durable at the end of the round is `unsaved`, and one that is OPENING
 * then fails. */
int sandbox_store_write(struct sandbox *sb, struct err *err);
/* It is durable when this returns 0. */
int sandbox_store_write_now(struct sandbox *sb, struct err *err);
/* NULL: *err; the row is of no use. */
struct sandbox *sandbox_store_read(struct sandboxes *all, const struct store_sandbox *row,
                                   struct err *err);
struct sandbox *sandbox_store_decode(struct sandboxes *all, const char *id,
                                     const struct json_t *root, struct err *err);
void sandbox_store_drop(struct sandbox *sb); /* its row */
/* Removes a directory with what is in it. By a worker. */
void sandbox_store_remove(struct sandboxes *s, const char *id);

/* --- sandbox_import.c ------------------------------------------------------------------------- */

/* Makes rows of the files that are in SANDBOXES_DIR, and removes them. */
int sandbox_import_all(struct sandboxes *s, DIR *dir, struct err *err);

/* --- sandboxes.c ------------------------------------------------------------------------------ */

/* What whoever asked for one is told. */
void sandboxes_not_written(const struct err *err, struct api_error *why);
void sandboxes_opened(struct sandboxes *s, struct sandbox *sb);
/* Takes it out of everything and frees it, now or when it is closed. */
void sandboxes_forget(struct sandboxes *s, struct sandbox *sb);
/* The runner has closed it. */
void sandboxes_closed(struct sandboxes *s, struct sandbox *sb);
void sandboxes_log(struct sandboxes *s, const struct sandbox *sb, const char *event,
                   const char *why);

/* --- sandboxes_gone.c ------------------------------------------------------------------------- */

/* It has just ended: what it held is given back, and it is remembered for a while. */
void sandboxes_gone(struct sandboxes *s, struct sandbox *sb);
/* Remembers it. */
void sandboxes_gone_bury(struct sandboxes *s, struct sandbox *sb);
/* It is about to be freed. */
void sandboxes_gone_forget(struct sandboxes *s, const struct sandbox *sb);
