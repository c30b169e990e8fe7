/* One run, followed from the request to its end: the request, the stream of events, what is echoed,
 * a lost connection that is taken up again, Ctrl-C. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "echo.h"
#include "err.h"
#include "intr.h"
#include "ndjson.h"
#include "outq.h"
#include "rest.h"
#include "run_body.h"
#include "run_ends.h"
#include "target.h"

#define RUN_STREAM_ID_MAX 64

/* Why the following stopped. */
enum run_stream_stop {
    RUN_STREAM_DONE,    /* the run is over */
    RUN_STREAM_REFUSED, /* the server said no: err */
    RUN_STREAM_AWAY,    /* nothing was sent: err */
    RUN_STREAM_LOST,    /* the connection broke and stayed broken: err */
    RUN_STREAM_SIGNAL,  /* the user ended it: `signal`; the run is cancelled */
    RUN_STREAM_PIPE,    /* nobody reads our output any more; the run is cancelled */
    RUN_STREAM_OUTPUT,  /* our output cannot be written: err; the run is cancelled */
};

struct run_stream {
    const struct target *target;
    const struct run_body *body;
    struct intr *intr;
    bool quiet; /* the program's output is not echoed */
    struct rest *rest;
    struct rest_hooks hooks;
    struct ndjson parser;
    struct outq outq[2]; /* stdout, stderr */
    struct echo echo[2];
    struct buf bytes;           /* decoded base64 */
    char id[RUN_STREAM_ID_MAX]; /* "" until the run is accepted */
    uint64_t seq;               /* the last event that was seen */
    struct run_ends ends;
    bool done, ok;
    bool hurt; /* stop is set: a callback ended the transfer */
    enum run_stream_stop stop;
    int signal;
};

/* Everything is borrowed for the life of the object, which must not be moved. */
int run_stream_init(struct run_stream *s, const struct target *target, const struct run_body *body,
                    struct intr *intr, struct err *err);
/* `cap`: bytes echoed of each stream of a step, 0 = all. */
void run_stream_set_echo(struct run_stream *s, bool quiet, uint64_t cap);
void run_stream_done(struct run_stream *s); /* NULL, zeroed and half-made ones allowed */

/* Sends the request and follows the run to its end. */
enum run_stream_stop run_stream_follow(struct run_stream *s, struct err *err);
/* Waits until all output is written. RUN_STREAM_DONE, or why not. */
enum run_stream_stop run_stream_drain(struct run_stream *s, struct err *err);
