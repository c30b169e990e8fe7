#include "run_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run_event.h"
#include "say.h"

#define RUN_STREAM_LINE_MAX ((size_t)1024 * 1024)
#define RUN_STREAM_TRIES 6
#define RUN_STREAM_PAUSE_MS 200
#define RUN_STREAM_CANCEL_MS 5000

/* While waiting. */

static size_t run_stream_want(void *arg, struct pollfd fds[REST_WAIT_MAX]) {
    struct run_stream *s = arg;
    size_t n = 0;

    fds[n++] = (struct pollfd){.fd = s->intr->fd, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        if (!outq_is_empty(&s->outq[i]))
            fds[n++] = (struct pollfd){.fd = s->outq[i].fd, .events = POLLOUT};
    return n;
}

/* Tells the server to end the run: on a connection of its own, while ours is still open, so that
 * the run ends as cancelled and not because of a client that vanished. A second signal ends us at
 * once. */
static void run_stream_cancel(struct run_stream *s) {
    char path[RUN_STREAM_ID_MAX + 16];
    struct rest_call call = {.method = "DELETE", .path = path, .timeout_ms = RUN_STREAM_CANCEL_MS};
    struct rest *other;
    struct err err = {0};

    intr_rude(s->intr);
    s->outq[0].wake = s->outq[1].wake = -1;
    if (s->id[0] == '\0')
        return;
    snprintf(path, sizeof(path), "/v1/runs/%s", s->id);
    other = rest_new(s->target, NULL, &err);
    if (other == NULL || rest_perform(other, &call, &err) < 0 || call.status >= 400) {
        if (err.kind == ERR_NONE)
            rest_refusal(&call, &err);
        /* The server ends the run anyway when our connection goes: it was asked to. */
        say_line("the run %s could not be cancelled: %s", s->id, err.text);
    }
    rest_free(other);
}

/* A callback failed: what does it mean for the run? */
static int run_stream_hurt(struct run_stream *s, const struct err *err) {
    s->hurt = true;
    if (s->signal != 0)
        s->stop = RUN_STREAM_SIGNAL;
    else if (err->kind == ERR_SYSTEM && err->code == EPIPE)
        s->stop = RUN_STREAM_PIPE;
    else if (err->kind == ERR_PROTOCOL)
        s->stop = RUN_STREAM_LOST;
    else
        s->stop = RUN_STREAM_OUTPUT;
    if (!s->done)
        run_stream_cancel(s);
    return -1;
}

static int run_stream_check_signal(struct run_stream *s, struct err *err) {
    int number = intr_take(s->intr);

    if (number == 0)
        return 0;
    s->signal = number;
    return err_set(err, ERR_STATE, EINTR, "interrupted");
}

static int run_stream_ready(void *arg, struct err *err) {
    struct run_stream *s = arg;

    if (run_stream_check_signal(s, err) < 0 || outq_push(&s->outq[0], err) < 0 ||
        outq_push(&s->outq[1], err) < 0)
        return run_stream_hurt(s, err);
    return 0;
}

/* Events. */

static int run_stream_on_event(void *arg, const struct json_t *event, struct err *err) {
    return run_event_take(arg, event, err);
}

static int run_stream_on_data(void *arg, const char *data, size_t len, struct err *err) {
    struct run_stream *s = arg;

    if (ndjson_feed(&s->parser, data, len, err) == 0)
        return 0;
    /* outq gave up waiting because of the signal: take it, so that it is known. */
    if (err->kind == ERR_STATE && err->code == EINTR)
        (void)run_stream_check_signal(s, err);
    return run_stream_hurt(s, err);
}

/* Life. */

int run_stream_init(struct run_stream *s, const struct target *target, const struct run_body *body,
                    struct intr *intr, struct err *err) {
    *s = (struct run_stream){.target = target, .body = body, .intr = intr};
    s->hooks = (struct rest_hooks){run_stream_want, run_stream_ready, s};
    buf_init(&s->bytes, RUN_STREAM_LINE_MAX);
    ndjson_init(&s->parser, RUN_STREAM_LINE_MAX, run_stream_on_event, s);
    outq_init(&s->outq[0], STDOUT_FILENO, intr->fd);
    outq_init(&s->outq[1], STDERR_FILENO, intr->fd);
    run_stream_set_echo(s, false, 0);
    if (run_ends_init(&s->ends, body->step_count, err) < 0)
        return -1;
    s->rest = rest_new(target, &s->hooks, err);
    return s->rest != NULL ? 0 : -1;
}

void run_stream_set_echo(struct run_stream *s, bool quiet, uint64_t cap) {
    s->quiet = quiet;
    for (int i = 0; i < 2; i++)
        echo_init(&s->echo[i], &s->outq[i], cap);
}

void run_stream_done(struct run_stream *s) {
    if (s == NULL || s->target == NULL)
        return;
    rest_free(s->rest);
    s->rest = NULL;
    ndjson_done(&s->parser);
    buf_done(&s->bytes);
    run_ends_done(&s->ends);
    for (int i = 0; i < 2; i++) {
        echo_done(&s->echo[i]);
        outq_done(&s->outq[i]);
    }
}

/* Following. */

/* One request whose answer is a stream of events. 1 = the stream ended in order or broke: look at
 * s->done; 0 = the server answered with an error; -1 = a callback stopped it. */
static int run_stream_request(struct run_stream *s, struct rest_call *call, struct err *err) {
    int rc;

    call->on_data = run_stream_on_data;
    call->arg = s;
    ndjson_reset(&s->parser);
    rc = rest_perform(s->rest, call, err);
    if (s->hurt)
        return -1;
    if (rc == 0 && call->status >= 400)
        return 0;
    if (rc == 0 && !s->done)
        err_set(err, ERR_SYSTEM, ECONNRESET, "the server ended the stream too early");
    return 1;
}

/* Waits before the next attempt. -1: a signal came. */
static int run_stream_pause(struct run_stream *s, int tries, struct err *err) {
    struct pollfd wake = {.fd = s->intr->fd, .events = POLLIN};

    (void)poll(&wake, 1, RUN_STREAM_PAUSE_MS << tries);
    return run_stream_ready(s, err);
}

/* After a lost connection: takes the events up again behind the last one that came. */
static enum run_stream_stop run_stream_resume(struct run_stream *s, struct err *err) {
    char path[RUN_STREAM_ID_MAX + 80];
    int tries = 0;

    while (!s->done && tries < RUN_STREAM_TRIES) {
        struct rest_call call = {.method = "GET", .path = path};
        uint64_t before = s->seq;
        int rc;

        if (run_stream_pause(s, tries, err) < 0)
            return s->stop;
        err_clear(err);
        snprintf(path, sizeof(path), "/v1/runs/%s/events?after=%" PRIu64 "&follow=true", s->id,
                 s->seq);
        rc = run_stream_request(s, &call, err);
        if (rc < 0)
            return s->stop;
        if (rc == 0) {
            rest_refusal(&call, err);
            if (call.status != 429 && call.status < 500)
                break;
        }
        tries = s->seq > before ? 0 : tries + 1;
    }
    return s->done ? RUN_STREAM_DONE : RUN_STREAM_LOST;
}

enum run_stream_stop run_stream_follow(struct run_stream *s, struct err *err) {
    struct rest_call call = {.method = "POST",
                             .path = "/v1/runs",
                             .body = s->body->json.data,
                             .body_len = s->body->json.len};
    int rc = run_stream_request(s, &call, err);

    if (rc < 0)
        return s->stop;
    if (rc == 0) {
        rest_refusal(&call, err);
        return RUN_STREAM_REFUSED;
    }
    if (s->done)
        return RUN_STREAM_DONE;
    if (s->id[0] != '\0')
        return run_stream_resume(s, err);
    return err->code == ECONNREFUSED ? RUN_STREAM_AWAY : RUN_STREAM_LOST;
}

enum run_stream_stop run_stream_drain(struct run_stream *s, struct err *err) {
    if (outq_drain(&s->outq[0], err) == 0 && outq_drain(&s->outq[1], err) == 0)
        return RUN_STREAM_DONE;
    if (err->kind == ERR_STATE && err->code == EINTR)
        (void)run_stream_check_signal(s, err);
    (void)run_stream_hurt(s, err);
    return s->stop;
}
