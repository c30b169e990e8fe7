/* One execution: a command in a sandbox, with its own limits, output and end.
 *
 *   RUNNING ──END or lost──> DONE
 *
 * Its output goes from its pipes into spools (spool.h) and is read from there by whoever wants it;
 * a reader who is slow delays nobody. A short execution has no spools: what its pipes hold at its
 * END is copied into the journal with the end, and only then taken away from the pipes. So at no
 * moment would output be lost if the server were killed.
 *
 * Events have numbers: 1 started, then output, then `end` and `done`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accounts_budget.h"
#include "buf.h"
#include "capture.h"
#include "end_json.h"
#include "exec_request.h"
#include "inlet.h"
#include "limits_json.h"
#include "loop.h"
#include "packet.h"
#include "sandbox.h"
#include "spool.h"
#include "spool_events.h"
#include "spool_log.h"
#include "trace.h"
#include "trickle.h"
#include "wire.h"

#define EXEC_ID_SIZE (EXEC_REQUEST_ID_MAX + 1)
#define EXEC_HASH_SIZE EXEC_REQUEST_HASH_SIZE
#define EXEC_COMMAND_SIZE 201u
#define EXEC_NAME_SIZE (4 * REQUEST_STEP_NAME_MAX + 1)

/* Numbers of the events that are not output: the first, and the last two behind `count` others. */
#define EXEC_SEQ_STARTED 1u
#define EXEC_SEQ_OUTPUT 2u

struct exec;
struct execs;

enum exec_state { EXEC_RUNNING, EXEC_DONE };

/* Flags, as on disk. */
enum exec_flag {
    EXEC_PTY = 1,
    EXEC_MERGED = 2,
    EXEC_BACKGROUND = 4,
    EXEC_STDIN_OPEN = 8, /* stdin comes in parts */
};

/* One of its outputs. */
struct exec_stream {
    struct exec *exec;
    enum spool_stream which;
    struct spool spool;
    struct loop_source source;
    struct trickle trickle;
    int fd; /* reading end or the terminal's master; -1 = ended or none */
    bool widened;
};

/* A part of its stdin that waits until there is room for it. */
struct exec_feed {
    struct exec_feed *next;
    const char *data; /* borrowed until `over` */
    size_t len, done;
    bool close; /* afterwards nothing more comes */
    /* All of it was taken (true), or never will be. */
    void (*over)(struct exec_feed *f, bool taken);
    enum { EXEC_FEED_WAITS, EXEC_FEED_TAKEN, EXEC_FEED_LOST } state; /* private */
};

/* Parts that wait ──> inlet (inlet.h) ──> pipe or terminal. What is in the inlet was taken: the
 * command gets it, once, whether this server lives or is killed at any moment, and the number of
 * these bytes is what a client goes on from. */
struct exec_stdin {
    int fd; /* writing end, or a duplicate of the master; -1 = closed, or not there yet */
    struct inlet inlet;
    struct loop_source source;
    struct exec_feed *first, *last;
    uint64_t bytes;  /* taken; a terminal's end-of-file character is not counted */
    uint64_t queued; /* `bytes` and what waits */
    size_t waiting;  /* bytes held by what waits */
    bool open;       /* it takes more, now or when there is room */
    bool closing;    /* the last part that waits closes it */
    bool ending;     /* it is closed as soon as all that was taken went out */
};

/* Somebody who wants to know: a client that waits, or one that reads events. */
struct exec_watcher {
    struct exec_watcher *next, *prev;
    struct exec *exec;                       /* NULL = not watching */
    void (*changed)(struct exec_watcher *w); /* it is over, or (follows) there is output */
    bool follows;
    uint64_t after;               /* number of the last event it has */
    uint64_t seen[SPOOL_STREAMS]; /* how far into the streams that is */
};

struct exec {
    struct sandbox_task task; /* first */
    struct execs *set;        /* borrowed */
    struct exec *newer, *older;
    char id[EXEC_ID_SIZE];
    struct accounts_token *token; /* that asked for it; counted; NULL = it is not known any more */
    struct accounts_hold hold;    /* of that token's budget */
    uint64_t lost_cpu_ns;         /* what it may have used when nobody says how much it was */
    uint8_t hash[EXEC_HASH_SIZE]; /* of what was asked for, when the client chose the id */
    uint32_t number;
    uint32_t flags; /* mask of enum exec_flag */
    uint32_t end_on;
    uint16_t rows, cols;
    enum exec_state state;
    bool ok;
    bool killed; /* its end was asked for */
    bool over_output;
    bool bare;            /* its end was recorded without output */
    bool heads;           /* … with where the heads of its outputs end */
    bool forgotten;       /* not in the table any more; freed with the last pin */
    int spool_error;      /* errno: its output could not be kept */
    char *name, *command; /* owned */
    struct trace trace;
    char *trace_state; /* "TRACESTATE=…" of the request, until it is sent; NULL = none; owned */
    struct limits_effective limits;
    uint64_t created_ms, ended_ms; /* since the epoch */
    uint64_t setup_ns;
    struct receipt_exec *receipt; /* what was asked for; NULL = there is no receipt; owned */
    uint64_t began;               /* sandbox_activity().writes when it began; 0 = not known */
    uint32_t others;              /* tasks that may have changed files while it ran */
    struct step_end end;
    struct wire_usage usage;

    struct exec_stream out[SPOOL_STREAMS];
    struct spool_events events;
    struct exec_stdin input;
    struct loop_timer listen; /* it runs for a while: watch its pipes */
    struct exec_watcher *watchers;
    unsigned pins;

    struct spool_log_place start_place, end_place;
};

/* What an execution is made of: of a request, or of what was recorded of it. */
struct exec_birth {
    const char *id, *name;
    const struct request_step *step; /* NULL: `command` is the text */
    const char *command;
    const uint8_t *hash; /* NULL = none */
    const struct limits_effective *limits;
    const struct trace *trace;
    uint32_t flags, end_on;
    uint16_t rows, cols;
};
/* Not started yet. */
struct exec *exec_new(struct execs *set, const struct exec_birth *birth, struct err *err);
void exec_free(struct exec *x);
/* With its files. */
void exec_remove(struct exec *x);

/* exec_send.c */
/* What of a large request is copied beforehand, by a worker. */
struct exec_send_first; /* the stdin that came with the request, when more will follow */
struct exec_send_parts {
    struct packet_parts packet;
    struct exec_send_first *first;
};
void exec_send_parts_init(struct exec_send_parts *parts);
void exec_send_parts_done(struct exec_send_parts *parts);
/* Pure; for any thread. What cannot be made is left for exec_send(). */
void exec_send_parts_make(struct exec_send_parts *parts, const struct exec_request *request);
/* Writes the start into the journal, then sends the command. `parts` may be NULL; what is in it is
 * taken. */
int exec_send(struct exec *x, const struct exec_request *request, struct exec_send_parts *parts,
              struct err *err);

/* For exec_send.c: it was sent. */
void exec_begun(struct exec *x);

/* Asks for its end. Idempotent. */
void exec_kill(struct exec *x, enum cause cause);
/* The server comes back: the runner kept it, with these descriptors (enum link_keep; -1 = none),
 * which are taken over. */
void exec_adopt(struct exec *x, int fds[LINK_KEEP_FDS]);
/* It is over without an END. */
void exec_abort(struct exec *x, enum cause cause);
extern const struct sandbox_task_ops exec_task_ops;
/* The terminal's master, which is taken over; `fresh`: it has the size of the request. */
void exec_take_master(struct exec *x, int master, bool fresh);
int exec_resize(struct exec *x, uint16_t rows, uint16_t cols, struct err *err);

void exec_watch(struct exec *x, struct exec_watcher *w);
void exec_unwatch(struct exec_watcher *w);
void exec_notify(struct exec *x);
/* Keeps it in memory and its files open. */
void exec_pin(struct exec *x);
void exec_unpin(struct exec *x);

/* Number of the newest event. */
uint64_t exec_last_seq(const struct exec *x);

/* exec_io.c: output. */
#define EXEC_INLINE_MAX 16384u /* bytes of a stream that may lie in the journal */
int exec_io_pipe(struct exec_stream *s, int *child, struct err *err);
void exec_io_watch(struct exec_stream *s);
void exec_io_close(struct exec_stream *s);
/* Everything has been written: what is still in the pipe goes into the spool, or, when that was
 * never needed and it is short, is copied to `copy` (EXEC_INLINE_MAX bytes) and stays in the pipe.
 * Returns the number of bytes copied. */
size_t exec_io_last(struct exec_stream *s, char *copy);
/* Is it only that the disk is full? */
bool exec_io_no_space(const struct err *err);
/* After a restart: bytes that are in the spools and in no event. */
void exec_io_recover(struct exec *x);
/* Copies of the names of its files: exec.N.out, exec.N.err, exec.N.ev */
enum exec_io_file { EXEC_IO_OUT, EXEC_IO_ERR, EXEC_IO_EVENTS };
void exec_io_name(const struct exec *x, enum exec_io_file which, char name[SPOOL_NAME_SIZE]);

/* exec_stdin.c */
/* Takes a part: 1 = all of it was taken, 0 = over() will be called, -1 = stdin is closed. */
int exec_stdin_feed(struct exec *x, struct exec_feed *feed);
/* Where it goes is there. */
void exec_stdin_open(struct exec *x, int fd);
/* An earlier server fed it: takes over the inlet's descriptor, -1 = there was none. */
void exec_stdin_adopt(struct exec *x, int fd);
/* The connection to the runner was away: it may not have heard that stdin was closed. */
void exec_stdin_again(struct exec *x);
/* Nothing is taken any more; what waits is told. */
void exec_stdin_close(struct exec *x);

/* exec_record.c: the journal's records. */
/* With room for its end, without which it must not begin. */
int exec_record_start(struct exec *x, struct err *err);
/* Room in a journal for `bytes`, and behind them for the ends of so many that run. */
int exec_record_room(struct spool_log *log, size_t ends, uint64_t bytes, struct err *err);
/* With what is left of its output in memory. */
struct exec_record_rest {
    const char *data[SPOOL_STREAMS];
    size_t len[SPOOL_STREAMS];
};
int exec_record_end(struct exec *x, const struct exec_record_rest *rest, struct err *err);
/* The disk is full: without the output that has no file, in the room that its start has taken. That
 * output is counted, and gone for everybody. */
int exec_record_end_bare(struct exec *x, struct err *err);
int exec_record_input(struct exec *x, struct err *err);
int exec_record_input_to(struct exec *x, struct spool_log *log, struct err *err);
int exec_record_forget(struct exec *x, struct err *err);
/* The journal was written anew: end_place is another one. */
void exec_record_moved(struct exec *x);
/* Reads one back: an execution that runs as far as the record knows. NULL when it is not sound. */
struct exec *exec_record_read_start(struct execs *set, const struct spool_log_record *r);
int exec_record_read_end(struct exec *x, const struct spool_log_record *r);
void exec_record_read_input(struct exec *x, const struct spool_log_record *r);

/* exec_events.c: appends the events after w->after as lines, about `want` bytes of them, and moves
 * the watcher on. Returns 1 when the last event was among them or before, else 0; -1 on failure. */
int exec_events(struct exec *x, struct exec_watcher *w, size_t want, struct buf *out,
                struct err *err);
/* A watcher that has read the events up to `after`. */
void exec_events_seek(struct exec *x, struct exec_watcher *w, uint64_t after);

/* exec_answer.c */
/* Bytes of output that its answer has to look at. */
size_t exec_answer_weight(const struct exec *x);
/* What is kept of a spool, as the capture that the answers of runs are made of. */
int exec_answer_capture(struct spool *s, struct capture *out, struct err *err);
/* The whole object. `streams` are its spools, or copies of them on another thread (then it is
 * DONE). */
int exec_answer_encode(const struct exec *x, struct spool streams[SPOOL_STREAMS], struct buf *out,
                       struct err *err);
int exec_answer_encode_summary(const struct exec *x, struct buf *out, struct err *err);
