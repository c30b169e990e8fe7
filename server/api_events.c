#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "api.h"
#include "clock.h"
#include "json_out.h"

/* Encoded events that are ready to be sent; one event has at most 64 KiB of data, each byte of
 * which may need six characters. */
#define API_EVENTS_WANT ((size_t)48 * 1024)
#define API_EVENTS_MAX (API_EVENTS_WANT + 6 * EVENTS_CHUNK_MAX + 4096)

/* How often somebody who follows a run that waits is told its position, if it has changed. */
#define API_EVENTS_LOOK_MS 1000u

struct api_events {
    struct run_watcher watcher; /* keeps the run in memory */
    struct server *server;
    struct http_req *req;
    struct run *run;
    struct buf out;
    size_t sent;
    bool follow;  /* stay until the run is over */
    bool cancels; /* the client that leaves wants the run to end */
    bool last;    /* the last event is in `out` or was sent */
    bool failed;
    size_t position;        /* in the queue */
    bool moved;             /* that is still to be told */
    struct loop_timer look; /* at its position */
};

/* The answer breaks off behind the last whole event. */
static void api_events_fail(struct api_events *e) {
    answer_event_cut(&e->out);
    e->failed = true;
}

/* Not kept with the events: whoever comes back later wants to know where it is then. */
static void api_events_write_position(struct api_events *e) {
    struct json_out j;
    e->moved = false;
    if (e->run->phase != RUN_QUEUED)
        return;
    json_out_init(&j, &e->out);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "seq", 0);
    json_out_str(&j, "type", "queued");
    json_out_u64(&j, "position", e->position);
    if (answer_event_close(&j, NULL) < 0)
        api_events_fail(e);
}

static void api_events_look(void *arg);

static void api_events_look_later(struct api_events *e) {
    loop_timer_at(e->server->loop, &e->look, clock_mono_ns() + API_EVENTS_LOOK_MS * CLOCK_NS_PER_MS,
                  api_events_look, e, NULL);
}

static void api_events_look(void *arg) {
    struct api_events *e = arg;
    if (e->run->phase != RUN_QUEUED)
        return;
    size_t position = queue_position(&e->server->runs.queue, &e->run->queued);
    if (position != e->position) {
        e->position = position;
        e->moved = true;
        http_wake(e->req);
    }
    api_events_look_later(e);
}

static void api_events_changed(struct run_watcher *w) {
    struct api_events *e = (struct api_events *)(void *)w;
    /* Asleep means it has had everything: what comes now is the first it can be late for. */
    if (e->req->asleep)
        w->progress_ms = clock_mono_ms();
    http_wake(e->req);
}

static void api_events_fill(struct api_events *e) {
    buf_clear(&e->out);
    e->sent = 0;
    if (e->moved)
        api_events_write_position(e);
    e->watcher.progress_ms = clock_mono_ms();
    int rc = answer_events(e->run, &e->watcher, API_EVENTS_WANT, &e->out, NULL);
    if (rc < 0)
        api_events_fail(e);
    e->last = rc == 1;
    run_io_resume(e->run);
}

static ssize_t api_events_read(void *arg, char *data, size_t size) {
    struct api_events *e = arg;
    if (e->sent == e->out.len && !e->last && !e->failed)
        api_events_fill(e);
    size_t left = e->out.len - e->sent;
    if (left == 0) {
        if (e->failed)
            return -2;
        return e->last || !e->follow || runs_is_kept(e->run) ? -1 : 0;
    }
    size_t n = left < size ? left : size;
    memcpy(data, e->out.data + e->sent, n);
    e->sent += n;
    e->watcher.progress_ms = clock_mono_ms();
    return (ssize_t)n;
}

static void api_events_done(void *arg) {
    struct api_events *e = arg;
    struct run *run = e->run;
    loop_timer_stop(e->server->loop, &e->look);
    runs_pin(run);
    run_unwatch(&e->watcher);
    /* Whoever has read to the end has not gone away. */
    if (e->cancels && !e->last)
        run_cancel(run, CAUSE_LOST_CLIENT);
    runs_unpin(run);
    buf_done(&e->out);
    free(e);
}

static const struct http_stream api_events_ops = {.read = api_events_read, .done = api_events_done};

/* The client hung up while there was nothing to send. */
static void api_events_gone(struct http_req *req) {
    struct api_events *e = req->owner;
    if (e->cancels && !e->last)
        run_cancel(e->run, CAUSE_LOST_CLIENT);
}

static struct api_events *api_events_new(struct server *s, struct http_req *req, struct run *run) {
    struct api_error error = {0};
    struct api_events *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return NULL;
    }
    e->server = s;
    e->req = req;
    e->run = run;
    e->follow = true;
    buf_init(&e->out, API_EVENTS_MAX);
    e->watcher.changed = api_events_changed;
    return e;
}

static void api_events_start(struct api_events *e, struct http_req *req, uint64_t after) {
    run_follow(e->run, &e->watcher, after);
    if (e->follow && e->run->phase == RUN_QUEUED) {
        e->position = queue_position(&e->server->runs.queue, &e->run->queued);
        api_events_write_position(e);
        api_events_look_later(e);
    }
    req->owner = e;
    req->gone = api_events_gone;
    http_reply_stream(req, 200, "application/x-ndjson", UINT64_MAX, &api_events_ops, e);
}

void api_events_stream(struct server *s, struct http_req *req, struct run *run) {
    struct api_events *e = api_events_new(s, req, run);
    struct json_out j;
    if (e == NULL)
        return;
    e->cancels = run->cancel_on_disconnect;
    json_out_init(&j, &e->out);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "seq", 0);
    json_out_str(&j, "type", "accepted");
    json_out_str(&j, "id", run->id);
    if (answer_event_close(&j, NULL) < 0)
        api_events_fail(e);
    api_events_start(e, req, 0);
}

static void api_events_of(struct server *s, struct http_req *req, struct run *run,
                          const struct route_args *args) {
    struct api_error error = {0};
    uint64_t after = 0;
    bool follow = false;
    (void)args;
    if (route_query_u64(req, "after", 0, UINT64_MAX - 1, &after, &error) < 0 ||
        route_query_bool(req, "follow", &follow, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    struct api_events *e = api_events_new(s, req, run);
    if (e == NULL)
        return;
    e->follow = follow;
    api_events_start(e, req, after);
}

void api_events_get(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_events_of);
}
