#include "exec_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "say.h"
#include "str.h"

#define EXEC_STREAM_LINE_MAX ((size_t)1024 * 1024)
#define EXEC_STREAM_CANCEL_MS 5000
#define EXEC_STREAM_CANCEL_TRIES 4
#define EXEC_STREAM_CANCEL_PAUSE_MS 50
#define EXEC_STREAM_SETTLED_MS 1000 /* a connection that held for so long was one */

/* While waiting. */

static size_t exec_stream_want(void *arg, struct pollfd fds[REST_WAIT_MAX]) {
    struct exec_stream *s = arg;
    size_t n = 0;

    fds[n++] = (struct pollfd){.fd = s->intr->fd, .events = POLLIN};
    if (s->tty != NULL && s->tty->changes >= 0)
        fds[n++] = (struct pollfd){.fd = s->tty->changes, .events = POLLIN};
    if (exec_input_wants(&s->input))
        fds[n++] = (struct pollfd){.fd = s->input.fd, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        if (!outq_is_empty(&s->outq[i]))
            fds[n++] = (struct pollfd){.fd = s->outq[i].fd, .events = POLLOUT};
    return n;
}

/* -> HTTP status, 0 when no answer came. */
static int exec_stream_delete(struct exec_stream *s, struct rest *rest, struct err *err) {
    char path[256];
    struct rest_call call = {.method = "DELETE", .path = path, .timeout_ms = EXEC_STREAM_CANCEL_MS};

    snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec/%s", s->sandbox, s->id);
    if (rest_perform(rest, &call, err) < 0)
        return 0;
    if (call.status >= 400)
        rest_refusal(&call, err);
    return call.status;
}

/* Tells the server to end it: on a connection of its own. A second signal ends us at once. */
static void exec_stream_cancel(struct exec_stream *s) {
    struct err err = {0};
    struct rest *other = rest_new(s->target, NULL, &err);
    int status = 0;

    intr_rude(s->intr);
    s->outq[0].wake = s->outq[1].wake = -1;
    for (int i = 0; other != NULL && i < EXEC_STREAM_CANCEL_TRIES; i++) {
        status = exec_stream_delete(s, other, &err);
        /* The request may be on its way still: what is not known now may be in a moment. */
        if (status != 404 || s->accepted)
            break;
        (void)poll(NULL, 0, EXEC_STREAM_CANCEL_PAUSE_MS);
    }
    if (status == 0 || (status >= 400 && status != 404))
        say_line("the execution %s could not be cancelled and may go on: %s", s->id, err.text);
    rest_free(other);
}

/* A callback failed: what does it mean for the execution? */
static int exec_stream_hurt(struct exec_stream *s, const struct err *err) {
    s->hurt = true;
    if (s->input.left)
        s->stop = EXEC_STOP_LEFT;
    else if (s->signal != 0)
        s->stop = EXEC_STOP_SIGNAL;
    else if (err->kind == ERR_SYSTEM && err->code == EPIPE)
        s->stop = EXEC_STOP_PIPE;
    else if (err->kind == ERR_PROTOCOL)
        s->stop = EXEC_STOP_LOST;
    else
        s->stop = EXEC_STOP_OUTPUT;
    if (!s->done && !s->keep && s->body != NULL && s->stop != EXEC_STOP_LEFT)
        exec_stream_cancel(s);
    return -1;
}

static int exec_stream_check_signal(struct exec_stream *s, struct err *err) {
    int number = intr_take(s->intr);

    if (number == 0)
        return 0;
    s->signal = number;
    return err_set(err, ERR_STATE, EINTR, "interrupted");
}

static int exec_stream_keys(struct exec_stream *s, struct err *err) {
    bool old = s->replay != 0;

    if (exec_input_read(&s->input, err) < 0)
        return -1;
    if (s->input.left)
        return err_set(err, ERR_STATE, 0, "left");
    if (old)
        buf_clear(&s->input.next);
    return 0;
}

static int exec_stream_ready(void *arg, struct err *err) {
    struct exec_stream *s = arg;

    if (s->tty != NULL && tty_changed(s->tty))
        s->resize_due = true;
    if (exec_stream_check_signal(s, err) < 0 || exec_stream_keys(s, err) < 0 ||
        outq_push(&s->outq[0], err) < 0 || outq_push(&s->outq[1], err) < 0)
        return exec_stream_hurt(s, err);
    exec_feed_next(s);
    return 0;
}

/* Events. */

static int exec_stream_on_event(void *arg, const struct json_t *event, struct err *err) {
    return exec_event_take(arg, event, err);
}

static int exec_stream_on_data(void *arg, const char *data, size_t len, struct err *err) {
    struct exec_stream *s = arg;

    if (ndjson_feed(&s->parser, data, len, err) == 0)
        return 0;
    /* outq gave up waiting because of the signal: take it, so that it is known. */
    if (err->kind == ERR_STATE && err->code == EINTR)
        (void)exec_stream_check_signal(s, err);
    return exec_stream_hurt(s, err);
}

/* Followed again: a command that is silent says nothing by itself. */
static void exec_stream_on_answer(void *arg) {
    struct exec_stream *s = arg;

    s->online = true;
    s->online_ms = clock_mono_ms();
    if (s->told)
        say_line("the connection is back");
    s->told = false;
}

/* Life. */

int exec_stream_init(struct exec_stream *s, const struct exec_stream_setup *setup,
                     struct err *err) {
    *s = (struct exec_stream){.target = setup->target,
                              .sandbox = setup->sandbox,
                              .body = setup->body,
                              .intr = setup->intr,
                              .tty = setup->tty,
                              .follow = true,
                              .accepted = setup->body == NULL};
    s->hooks = (struct rest_hooks){exec_stream_want, exec_stream_ready, s};
    buf_init(&s->bytes, EXEC_STREAM_LINE_MAX);
    ndjson_init(&s->parser, EXEC_STREAM_LINE_MAX, exec_stream_on_event, s);
    exec_input_init(&s->input, setup->input, setup->escapes ? &s->escape : NULL);
    outq_init(&s->outq[0], STDOUT_FILENO, setup->intr->fd);
    outq_init(&s->outq[1], STDERR_FILENO, setup->intr->fd);
    exec_stream_set_echo(s, false, 0);
    if (!str_copy(s->id, sizeof(s->id), setup->id))
        return err_set(err, ERR_INVALID, 0, "%s is not the id of an execution", setup->id);
    if (run_ends_init(&s->ends, 1, err) < 0)
        return -1;
    s->rest = rest_new(setup->target, &s->hooks, err);
    return s->rest != NULL ? 0 : -1;
}

void exec_stream_set_echo(struct exec_stream *s, bool quiet, uint64_t cap) {
    s->quiet = quiet;
    for (int i = 0; i < 2; i++)
        echo_init(&s->echo[i], &s->outq[i], cap);
}

void exec_stream_done(struct exec_stream *s) {
    if (s == NULL || s->target == NULL)
        return;
    rest_free(s->rest);
    s->rest = NULL;
    ndjson_done(&s->parser);
    buf_done(&s->bytes);
    run_ends_done(&s->ends);
    exec_input_done(&s->input);
    for (int i = 0; i < 2; i++) {
        echo_done(&s->echo[i]);
        outq_done(&s->outq[i]);
    }
}

/* Following. */

/* One request whose answer is a stream of events. 1 = the stream ended in order or broke: look at
 * s->done; 0 = the server answered with an error; -1 = a callback stopped it. */
static int exec_stream_request(struct exec_stream *s, struct rest_call *call, struct err *err) {
    int rc;

    err_clear(err);
    call->on_answer = exec_stream_on_answer;
    call->on_data = exec_stream_on_data;
    call->arg = s;
    ndjson_reset(&s->parser);
    s->online = false;
    rc = rest_perform(s->rest, call, err);
    if (s->online && clock_mono_ms() - s->online_ms >= EXEC_STREAM_SETTLED_MS)
        resume_heard(&s->resume);
    s->online = false;
    if (s->hurt)
        return -1;
    if (rc == 0 && call->status >= 400) {
        rest_refusal(call, err);
        return 0;
    }
    if (rc == 0 && !s->done && s->follow)
        err_set(err, ERR_SYSTEM, ECONNRESET, "the server ended the stream too early");
    return 1;
}

static int exec_stream_attempt(struct exec_stream *s, int *status, struct err *err) {
    char path[320];
    struct rest_call call = {.path = path};
    int rc;

    if (!s->accepted) {
        snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec", s->sandbox);
        call.method = "POST";
        call.body = s->body->data;
        call.body_len = s->body->len;
    } else {
        snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec/%s/events?after=%" PRIu64 "&follow=%s",
                 s->sandbox, s->id, s->seq, s->follow ? "true" : "false");
        call.method = "GET";
    }
    rc = exec_stream_request(s, &call, err);
    *status = call.status;
    return rc;
}

/* Waits before the next attempt; the user's keys and signals are heard meanwhile. -1: stopped. */
static int exec_stream_wait(struct exec_stream *s, int ms, struct err *err) {
    uint64_t until = clock_mono_ms() + (uint64_t)ms;
    uint64_t now;

    while ((now = clock_mono_ms()) < until)
        if (rest_idle(s->rest, (int)(until - now), err) < 0)
            return -1;
    return 0;
}

static enum exec_stop exec_stream_lost(const struct exec_stream *s, int rc, const struct err *err) {
    if (rc == 0)
        return EXEC_STOP_REFUSED;
    return s->accepted || err->code != ECONNREFUSED ? EXEC_STOP_LOST : EXEC_STOP_AWAY;
}

enum exec_stop exec_stream_follow(struct exec_stream *s, struct err *err) {
    bool sent = false;

    for (;;) {
        struct err late = {0};
        int status = 0, pause, rc = exec_stream_attempt(s, &status, err);

        if (rc < 0)
            return s->stop;
        if (s->done || (!s->follow && rc > 0 && err->kind == ERR_NONE))
            return EXEC_STOP_DONE;
        sent = sent || s->accepted || (rc > 0 && err->code != ECONNREFUSED);
        /* Nothing of it is there yet: that is for the user to decide. */
        if (!sent || (rc == 0 && !resume_worth(status)))
            return exec_stream_lost(s, rc, err);
        /* What is back at once is not worth a sentence. */
        if (s->resume.tries == 1) {
            s->told = true;
            say_line("%s; trying again for up to %u s", err->text, RESUME_BOUND_MS / 1000);
        }
        pause = resume_pause(&s->resume, clock_mono_ms());
        if (pause < 0)
            return exec_stream_lost(s, rc, err);
        if (exec_stream_wait(s, pause, &late) < 0) {
            *err = late;
            return s->stop;
        }
    }
}

enum exec_stop exec_stream_drain(struct exec_stream *s, struct err *err) {
    if (outq_drain(&s->outq[0], err) == 0 && outq_drain(&s->outq[1], err) == 0)
        return EXEC_STOP_DONE;
    if (err->kind == ERR_STATE && err->code == EINTR)
        (void)exec_stream_check_signal(s, err);
    (void)exec_stream_hurt(s, err);
    return s->stop;
}
