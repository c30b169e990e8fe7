/* One sandbox: a jail that stays, as the server knows it.
 *
 *   OPENING ──OPENED──> READY <──freeze/thaw──> PAUSED
 *      └── cannot be made      └── deleted, expired, runner lost ──> GONE
 *
 * What happens in it are tasks: executions of commands (execution.h) and file operations
 * (fileop_run.h). Each is one EXEC of the jail with a number of its own.
 *
 * Times: a sandbox ends at the earlier of two moments, `expires_at` = created + ttl_ms (moved by
 * POST …/ttl to now + ttl_ms), and the moment when nothing has happened in it for idle_ms.
 * Something happens as long as any task runs, whether in the foreground or in the background; the
 * clock of idle_ms starts at the end of the last task or request. A paused sandbox is not busy:
 * both clocks go on.
 *
 * What must survive the server: a row in the store, rewritten on every change of it, and a
 * directory STATE/server/sandboxes/ID/ with its executions. A server that starts reads them, adopts
 * what the runner kept, and marks the rest as gone. A sandbox that is gone is remembered for an
 * hour, so that its id answers 410 and not 404. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "limits_json.h"
#include "link.h"
#include "loop.h"
#include "wire.h"

#define SANDBOX_ID_SIZE 32
#define SANDBOX_OWNER_SIZE 64
#define SANDBOX_TTL_DEFAULT_MS ((uint64_t)60 * 60 * 1000)
#define SANDBOX_TTL_MAX_MS ((uint64_t)7 * 24 * 60 * 60 * 1000)
#define SANDBOX_IDLE_DEFAULT_MS ((uint64_t)15 * 60 * 1000)

enum sandbox_state { SANDBOX_OPENING, SANDBOX_READY, SANDBOX_PAUSED, SANDBOX_GONE };

struct sandbox;
struct sandbox_task;

/* What a task is told. After `ended` or `lost` it is off the sandbox's list and may be freed. No
 * callback comes from within a call of the task's owner. */
struct sandbox_task_ops {
    void (*started)(struct sandbox_task *t, int master); /* PTY: takes over the descriptor */
    void (*ended)(struct sandbox_task *t, const struct wire_end *end);
    void (*lost)(struct sandbox_task *t, enum cause cause); /* the jail is gone under it: CANCELLED
                                                               (deleted, expired), INTERRUPTED or
                                                               INTERNAL */
    /* CPU time that it may have used so far, at most: what is counted when its caller ends the
     * sandbox under it, and nobody says how much it was. NULL = none. */
    uint64_t (*worst_cpu_ns)(const struct sandbox_task *t);
};

/* Embedded in an execution or a file operation. */
struct sandbox_task {
    struct sandbox *sandbox; /* NULL = not running */
    struct sandbox_task *next, *prev;
    uint32_t number; /* given by sandbox_exec() */
    struct accounts_token
        *token;      /* whose CPU time it is; counted by its owner; NULL = the sandbox's */
    bool command;    /* it is counted as an execution, and stands still while paused */
    bool reads;      /* it changes no file */
    enum cause kill; /* private: asked for; CAUSE_NONE = not */
    const struct sandbox_task_ops *ops;
};

/* Reserves a number for a task: what is kept of it may be on disk before it begins. 0 = there is
 * none to be had: sandbox_exec() says why. */
uint32_t sandbox_number(struct sandbox *sb);
/* Sends the EXEC (x->open is ignored, x->number is filled in; t->number when that is reserved, else
 * a new one). -1: ERR_STATE when it is not READY
 * or PAUSED (a command: not READY), ERR_LIMIT when as many run as the runner takes. */
int sandbox_exec(struct sandbox *sb, struct sandbox_task *t, const struct link_exec *x,
                 struct err *err);
/* Takes over a number that the runner kept: only while the sandbox is adopted. */
void sandbox_task_adopt(struct sandbox *sb, struct sandbox_task *t, uint32_t number);
void sandbox_task_kill(struct sandbox_task *t, enum cause cause);
/* 0: the runner lets go of the writing end of its stdin (wire.h). */
void sandbox_task_signal(struct sandbox_task *t, int signal);
/* Somebody used it: the idle clock starts anew. */
void sandbox_touch(struct sandbox *sb);

const char *sandbox_id(const struct sandbox *sb);
/* Where it broke, as the runner said; never NULL. "sandbox" and code 0: it ended for us without
 * such a word. */
struct sandbox_failure {
    char stage[WIRE_NAME_MAX];
    int code; /* errno */
};
const struct sandbox_failure *sandbox_failure(const struct sandbox *sb);
const char *sandbox_owner(const struct sandbox *sb);
enum sandbox_state sandbox_state(const struct sandbox *sb);
const struct wire_policy *sandbox_policy(const struct sandbox *sb);
const struct limits_effective *sandbox_limits(const struct sandbox *sb);
/* "NAME=VALUE" of the request that made it. */
const struct request_env *sandbox_env(const struct sandbox *sb);
/* Directory of its files in the state directory: an O_PATH descriptor, borrowed. */
int sandbox_dir(const struct sandbox *sb);
/* The loop that everything of it runs on, borrowed. */
struct loop *sandbox_loop(const struct sandbox *sb);

/* What happens in it, for who remembers its files. */
struct sandbox_activity {
    uint64_t started; /* tasks of any kind that were ever started or adopted */
    size_t running;   /* tasks now … */
    size_t commands;  /* … and those of them that are commands */
    uint64_t writes;  /* counts up with each task that may change files, and each restore */
    size_t writing;   /* tasks of that kind now */
};
struct sandbox_activity sandbox_activity(const struct sandbox *sb);
/* Counts up with every snapshot and every restore that was done: the live layer begins anew. */
uint64_t sandbox_layer_serial(const struct sandbox *sb);
/* Begins a new live layer: a snapshot that nobody sees, dropped at the next boundary. done(arg,
 * code): 0 or an errno, ECANCELED when the sandbox went. ERR_STATE when a command runs. */
int sandbox_boundary(struct sandbox *sb, void (*done)(void *arg, int code), void *arg,
                     struct err *err);

/* Modules keep what they know of a sandbox here: freed with it. */
/* In this order they are freed: what has operations running in SANDBOX_FILES is told by it. */
enum sandbox_part { SANDBOX_FILES, SANDBOX_EXECS, SANDBOX_SYNC, SANDBOX_PARTS };
struct sandbox_part_ops {
    void (*free)(void *part);
    /* The server comes back: the sandbox was adopted; the executions that the runner kept are in
     * `kept`, whose descriptors (enum link_keep; -1 = none) the module takes over and sets to -1.
     * What it does not sandbox_task_adopt() is ended. Called with count 0 as well: what the module
     * thought to run and is not in the list is lost. Not for tasks that are still on the sandbox's
     * list. May be NULL. */
    void (*adopted)(void *part, const struct wire_kept_exec *kept, int fds[][LINK_KEEP_FDS],
                    size_t count);
    /* It is gone (after all tasks were told). May be NULL. */
    void (*gone)(void *part);
    /* After that: does nothing of it go on any more, so that it may be freed? NULL = nothing does.
     */
    bool (*rests)(const void *part);
};
void *sandbox_part(const struct sandbox *sb, enum sandbox_part which); /* NULL = not set */
void sandbox_part_set(struct sandbox *sb, enum sandbox_part which,
                      const struct sandbox_part_ops *ops, void *part);

struct server;
struct http_req;
/* The sandbox of this id if it is the caller's and not gone; else answers 404 (unknown, or another
 * user's), 410 `gone` or 503 (its runner is being looked for), and returns NULL. Counts as use. */
struct sandbox *sandbox_mine(struct server *s, struct http_req *req, const char *id);
