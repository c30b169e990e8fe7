/* One run: a fresh jail, its steps in order, their output and ends.
 *
 *   QUEUED ──run_start──> STEP ──last step──> COLLECT ──> SEAL ──> DONE
 *      └─────── cancelled, no runner ──────────────────────┘
 *
 * A step is over when the runner has sent its END and both of its pipes have ended. Whatever goes
 * wrong (the runner dies, a pipe cannot be made) gives the step an end of its own cause; a run is
 * never left without one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accounts_budget.h"
#include "audit_line.h"
#include "buf.h"
#include "capture.h"
#include "end_json.h"
#include "events.h"
#include "hostmem.h"
#include "limits_json.h"
#include "link.h"
#include "loop.h"
#include "processors.h"
#include "queue.h"
#include "quota.h"
#include "request.h"
#include "run_store.h"
#include "trace.h"
#include "trickle.h"
#include "wire.h"

#define RUN_ID_SIZE 32
#define RUN_OWNER_SIZE 64

struct runs;
struct run;

/* SEAL: everything of it has ended; the receipt is being made, and what is kept of it is stored.
 * Nobody is told that it is over before that. */
enum run_phase { RUN_QUEUED, RUN_STEP, RUN_COLLECT, RUN_SEAL, RUN_DONE };
enum run_step_state { RUN_STEP_QUEUED, RUN_STEP_RUNNING, RUN_STEP_DONE, RUN_STEP_SKIPPED };

/* One of a step's two outputs. */
struct run_stream {
    struct run *run;
    struct capture capture;
    struct loop_source source;
    struct trickle trickle;
    int fd;       /* reading end, -1 = ended or none */
    uint8_t type; /* EVENTS_STDOUT or EVENTS_STDERR */
    bool paused;  /* not read for the moment: a follower is behind */
    bool widened;
    uint64_t recorded; /* offset up to which there are events */
};

struct run_step {
    char *name; /* owned */
    enum run_step_state state;
    bool ok;
    bool merged; /* stderr goes into stdout */
    bool continue_on_error;
    bool ended;       /* END has come; the pipes may still hold something */
    bool over_output; /* it was asked to end for that */
    bool has_usage;
    uint64_t behind_until_ns; /* how long its end waits for followers; 0 = it did not yet */
    struct limits_effective limits;
    struct run_stream out, err;
    struct step_end end;
    struct wire_usage usage;
};

struct run_file { /* points into run->bundle */
    const char *path, *data;
    size_t path_len, size;
    uint32_t mode;
    uint32_t code; /* enum bundle_code; not OK: there is no data */
};

/* Somebody who wants to know: a client that waits, or one that reads events. */
struct run_watcher {
    struct run_watcher *next, *prev;
    struct run *run;                        /* NULL = not watching */
    void (*changed)(struct run_watcher *w); /* new events, or the run is over */
    bool follows;                           /* reads events: the fields below count */
    uint64_t after;                         /* the last event it has */
    uint16_t step;                          /* of the offsets */
    uint64_t offset[2];                     /* stdout, stderr of `step`: how far it has read */
    uint64_t progress_ms;                   /* monotonic; when its socket last took something */
};

struct run {
    struct runs *runs; /* borrowed */
    char id[RUN_ID_SIZE];
    char owner[RUN_OWNER_SIZE];
    struct accounts_token *token; /* that asked for it; counted; NULL = of an earlier server */
    struct accounts_hold hold;    /* of that token's budget */
    char image[WIRE_NAME_MAX];
    enum backend backend;
    uint8_t image_sha256[32];     /* zeros: it has none */
    char label[TRACE_LABEL_SIZE]; /* what it runs, for people */
    struct trace trace;
    char *trace_state; /* "TRACESTATE=…" of the request, until it is done; NULL = none; owned */
    enum run_phase phase;
    struct run_request request; /* until the run is done */
    struct wire_policy policy;  /* as it was when the run was accepted */
    struct limits_effective limits;
    struct limits open;
    uint32_t end_on;
    struct run_step *steps;
    size_t step_count, current;
    bool ok;
    bool cancel_on_disconnect;
    enum cause cancel; /* asked for; CAUSE_NONE = not */
    bool stop; /* the jail is gone or must not be used any more: no further step, no collecting */
    struct link_jail *jail; /* NULL = none (yet, or any more) */

    struct quota_held held;
    struct quota_held output_held; /* its output, from its start until its result is stored */
    struct hostmem_hold mem;
    struct processors_jail processors;
    uint64_t mem_wait_ns;     /* since when it waits for memory; 0 = it does not */
    struct queue_node queued; /* from runs_add() to its end */
    uint64_t created_ms;      /* since the epoch */
    /* Monotonic: accepted, sent to the runner, first exec, end of the last step. */
    uint64_t created_ns, dispatched_ns, begun_ns, ended_ns;
    uint64_t setup_ns;
    struct loop_timer watchdog; /* the runner should have answered by then */
    struct loop_timer drain;    /* pipes that do not end though END came */
    struct loop_timer listen;   /* the step runs for a while: watch its pipes */
    struct loop_timer resume;   /* paused pipes: look again */

    struct run_keep *keep; /* NULL = it keeps no steps; owned */
    struct run_pack *pack; /* NULL = nothing of its request is being copied; owned */

    struct events events;
    struct run_watcher *watchers;

    struct buf bundle;           /* collected files, as they came */
    struct run_stream collector; /* only fd and source are used */
    bool collect_ended;
    struct run_file *files;
    size_t file_count;
    const char *collect_error; /* static; why there are no files; NULL = there are */

    struct receipt_inputs *inputs; /* digests of the request, until the run is done; owned */
    struct audit_mark accepted;    /* the record of the audit log that let it begin; seq 0 = none */
    char *receipt;                 /* JSON object, with its NUL; NULL = none; owned */
    struct run_store store;        /* what the database has of it */

    struct answer_bytes *answer; /* the encoded answer once somebody asked; counted reference */
    size_t memory;               /* accounted for in runs */
    unsigned pins;               /* an encoder works on it: keep */
    bool evicted;                /* not in the table any more; free when the last pin is gone */
    struct run *hash_next, *trace_next;
    struct run *newer, *older;         /* all, by age */
    struct run *done_next, *done_prev; /* finished ones, oldest first */
};

/* Makes a run of a request (which is taken over on success) and of what admit_check() found (whose
 * steps stay the caller's). */
struct admit;
struct run *run_new(struct runs *runs, struct run_request *request,
                    const struct wire_policy *policy, const struct admit *admit, struct err *err);
void run_free(struct run *run);
/* One with nothing in it, for run_record.c and run_new(); then its steps, cleared. */
struct run *run_blank(struct runs *runs);
int run_init_steps(struct run *run, size_t count);
/* It is durable, or cannot be: it is over, and everybody is told. */
void run_settled(struct run *run);

/* Takes a jail of `link`, which has room, and starts the first step. */
void run_start(struct run *run, struct link *link);
/* Asks for the end: CAUSE_CANCELLED, CAUSE_LOST_CLIENT or CAUSE_INTERRUPTED. Idempotent. */
void run_cancel(struct run *run, enum cause cause);
/* Ends a run that has never started, or that lost its jail: the current step gets this end. */
void run_abort(struct run *run, const struct step_end *end);

/* run_seal.c: the receipt and the audit log; run_sealed() is called then, now or later. */
void run_seal(struct run *run);
/* The same for a run that an earlier server has left unfinished: nobody is told. */
void run_seal_here(struct run *run);
/* Such a run is going to wait again: that is recorded, as a run is before it begins. */
int run_seal_accept_again(struct run *run);
/* For run_seal.c: the run is done. */
void run_sealed(struct run *run);

/* run_io.c: pipes. */
/* Makes a pipe: the reading end is kept and watched, *child gets the writing end. */
int run_io_open(struct run_stream *s, struct run *run, uint8_t type, uint64_t cap, int *child,
                struct err *err);
void run_io_watch(struct run_stream *s);
void run_io_close(struct run_stream *s);
/* As run_io_close(), for a stream that may still be read: what has come becomes events. */
void run_io_end(struct run_stream *s);
/* Reads what is there after END. True when it has ended. */
bool run_io_drain(struct run_stream *s);
/* A follower has read on, or none is left: paused pipes may go on. */
void run_io_resume(struct run *run);
/* The pipes are empty. Has a follower that makes progress still to read what capture_finish() would
 * drop? Then the step waits for it, a few seconds at most, and run_settle() is called again. */
bool run_io_behind(struct run *run);

/* run_exec.c: what goes to the runner. */
int run_exec_step(struct run *run, size_t index, const struct wire_open *open, struct err *err);
int run_exec_collect(struct run *run, struct err *err);

/* run_collect.c */
/* Before it has its request: the memory that it takes to say of each pattern that there is nothing.
 * -1: there is none. */
int run_collect_room(struct run *run, const struct run_request *request);
void run_collect_event(void *arg, uint32_t events);
/* Parses the bundle into run->files. */
void run_collect_parse(struct run *run);
/* The same for a bundle that was stored: -1 when it is not one. */
int run_collect_restore(struct run *run);
/* Content that a run may collect. */
#define RUN_COLLECT_BYTES ((uint64_t)16 * 1024 * 1024)
#define RUN_COLLECT_FILES 1024u

/* Steps on as soon as everything of the current execution is in. Called by the above. */
void run_settle(struct run *run);

/* run_pack.c: files and stdin that are large are copied by a worker before they are sent. */
struct packet_parts;
/* `what` (enum packet_part) for step run->current: false = it is small, go on at once. true =
 * `then` is called with a copy of *open (may be NULL) when it is copied; until then nothing was
 * sent, the jail is only reserved, and the run neither ends nor lets go of its request: a wish for
 * that waits, too. Where there are no workers, that is before it returns. */
bool run_pack_begin(struct run *run, unsigned what, const struct wire_open *open,
                    void (*then)(struct run *run, const struct wire_open *open));
bool run_pack_waits(const struct run *run);
/* Its jail is gone. true: it is waited for, and ends like this afterwards. */
bool run_pack_over(struct run *run, const struct step_end *end);
/* What was copied; NULL = nothing was. */
struct packet_parts *run_pack_parts(struct run *run);

/* run_drop.c: giving back what is large is a worker's. */
#define RUN_DROP_INLINE ((size_t)256 * 1024)
void run_drop_request(struct run *run); /* leaves an empty one */
void run_drop_inputs(struct run *run);  /* leaves NULL */
/* For run_free(): its steps, whose pipes are closed, and collected files. */
void run_drop_output(struct run *run);

/* run_keep.c: a run with keep_steps leaves a snapshot before every step.
 *
 * The request's files are put in place by an execution of their own in front of all steps, so that
 * the first snapshot has them. A snapshot that fails is told of in the answer; the run goes on. */
int run_keep_new(struct run *run);   /* if the request asks for it; -1: memory is short */
void run_keep_free(struct run *run); /* its snapshots stay */
/* Drops what a run that is over has kept. */
void run_keep_drop(struct run *run);
/* Sends OPEN and the execution that puts the files in place. */
int run_keep_first(struct run *run, const struct wire_open *open, struct err *err);
/* Asks for the snapshot before step `index`. False: there will be none. */
bool run_keep_before(struct run *run, size_t index);
/* Is it waiting for an answer to one of these two? */
bool run_keep_waits(const struct run *run);
/* An END or a DONE came while it did: false when it is not the one. */
bool run_keep_prepared(struct run *run, const struct wire_end *end);
bool run_keep_done(struct run *run, const struct wire_done *done);
/* The caller asks for the end, as run_cancel(). */
void run_keep_cancel(struct run *run, enum cause cause);
/* The run is over: nothing is waited for any more. */
void run_keep_stop(struct run *run);
/* Key of the snapshot that shows the files as they were before step `index`; NULL = none. */
const char *run_keep_key(const struct run *run, size_t index);
/* For run_record.c. */
const char *run_keep_shard(const struct run *run);
const char *run_keep_error(const struct run *run);
void run_keep_restore(struct run *run, const char *shard, const char *error);
void run_keep_restore_key(struct run *run, size_t index, const char *key);
/* A run that was read from the store names what was kept then: what is not there any more goes. */
void run_keep_forget_gone(struct run *run);
struct json_out;
void run_keep_write(struct json_out *j, const struct run *run); /* "kept_steps", "keep_error" */

void run_watch(struct run *run, struct run_watcher *w);
/* As run_watch(), for one that has read the events up to `after`. */
void run_follow(struct run *run, struct run_watcher *w, uint64_t after);
void run_unwatch(struct run_watcher *w);
/* Tells the followers that there are new events. */
void run_notify(struct run *run);
/* Tells the followers, or all who wait for it, that something has changed: it is over, or will not
 * begin here (runs_is_kept()). */
void run_tell(struct run *run, bool all);

/* run_end.c: the runner's END as the API's. */
void run_end_of_wire(const struct run_step *step, const struct wire_end *wire,
                     struct step_end *out);
