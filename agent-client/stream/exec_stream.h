/* One execution in a sandbox, followed to its end: the request, the stream of events, what is
 * echoed, what is fed to it, the size of the terminal, a lost connection that is taken up again,
 * Ctrl-C. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "echo.h"
#include "err.h"
#include "exec_body.h"
#include "exec_input.h"
#include "intr.h"
#include "modes.h"
#include "ndjson.h"
#include "outq.h"
#include "rest.h"
#include "resume.h"
#include "run_ends.h"
#include "target.h"
#include "tty.h"

/* Why the following stopped. */
enum exec_stop {
    EXEC_STOP_DONE,    /* it is over */
    EXEC_STOP_REFUSED, /* the server said no: err */
    EXEC_STOP_AWAY,    /* nothing was sent: err */
    EXEC_STOP_LOST,    /* the connection broke and stayed broken: err */
    EXEC_STOP_LEFT,    /* `~.`: it goes on */
    EXEC_STOP_SIGNAL,  /* the user ended it: `signal`; it is cancelled unless `keep` */
    EXEC_STOP_PIPE,    /* nobody reads our output any more; likewise */
    EXEC_STOP_OUTPUT,  /* our output cannot be written: err; likewise */
};

struct exec_stream {
    const struct target *target;
    const char *sandbox;
    const struct buf *body; /* the request; NULL = it runs already */
    struct intr *intr;
    struct tty *tty; /* NULL = no terminal of ours */
    bool quiet;      /* the output is not echoed */
    bool keep;       /* it goes on when we are ended */
    bool follow;     /* false: only the events that are there already */

    char id[EXEC_ID_MAX];
    uint64_t seq;    /* the last event that was seen */
    uint64_t replay; /* up to this event the output is old: keys that come meanwhile are dropped,
                        they are answers of the terminal to questions of long ago */
    struct rest *rest;
    struct rest_hooks hooks;
    struct ndjson parser;
    struct outq outq[2]; /* stdout, stderr */
    struct echo echo[2];
    struct modes modes; /* of the terminal, changed by the output */
    struct buf bytes;   /* decoded base64 */
    struct run_ends ends;
    struct resume resume;
    bool told;          /* that the connection is lost */
    bool online;        /* the stream of events is open … */
    uint64_t online_ms; /* … since then */
    bool accepted, done, ok;
    bool hurt; /* stop is set: a callback ended the transfer */
    enum exec_stop stop;
    int signal;

    struct exec_input input;
    struct escape escape;
    bool resize_due, resizing;
    char resize_path[256], resize_body[64];
    struct rest_call resize_call;
};

/* What init needs to know. Everything is borrowed for the life of the object. */
struct exec_stream_setup {
    const struct target *target;
    const char *sandbox;
    const char *id;         /* the execution's */
    const struct buf *body; /* NULL = attach */
    int input;              /* what is fed; -1 = nothing */
    struct intr *intr;
    struct tty *tty;
    bool escapes; /* `~.` leaves */
};

/* The object must not be moved. */
int exec_stream_init(struct exec_stream *s, const struct exec_stream_setup *setup, struct err *err);
/* `cap`: bytes echoed of each stream, 0 = all. */
void exec_stream_set_echo(struct exec_stream *s, bool quiet, uint64_t cap);
void exec_stream_done(struct exec_stream *s); /* NULL, zeroed and half-made ones allowed */

enum exec_stop exec_stream_follow(struct exec_stream *s, struct err *err);
/* Waits until all output is written. EXEC_STOP_DONE, or why not. */
enum exec_stop exec_stream_drain(struct exec_stream *s, struct err *err);

/* exec_feed.c: what goes to the server beside the stream of events. Starts the request that is due,
 * if any. */
void exec_feed_next(struct exec_stream *s);
/* exec_event.c: one event. */
int exec_event_take(struct exec_stream *s, const struct json_t *event, struct err *err);
