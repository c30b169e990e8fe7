#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "api_exec.h"
#include "execs.h"
#include "json_out.h"

/* Encoded events that are ready to be sent; one event has at most 64 KiB of data, each byte of
 * which may need six characters. */
#define API_EXEC_EVENTS_WANT ((size_t)48 * 1024)
#define API_EXEC_EVENTS_MAX (API_EXEC_EVENTS_WANT + 6 * (size_t)SPOOL_EVENTS_CHUNK + 8192)

struct api_exec_events {
    struct exec_watcher watcher; /* keeps the execution in memory */
    struct http_req *req;
    struct exec *x;
    struct buf out;
    size_t sent;
    bool follow;  /* stay until it is over */
    bool cancels; /* the client that leaves wants it to end */
    bool last;    /* the last event is in `out` or was sent */
    bool failed;
};

static void api_exec_events_changed(struct exec_watcher *w) {
    struct api_exec_events *e = (struct api_exec_events *)(void *)w;
    http_wake(e->req);
}

/* The answer breaks off behind the last whole event. */
static void api_exec_events_fail(struct api_exec_events *e) {
    answer_event_cut(&e->out);
    e->failed = true;
}

static ssize_t api_exec_events_read(void *arg, char *data, size_t size) {
    struct api_exec_events *e = arg;
    if (e->sent == e->out.len && !e->last && !e->failed) {
        buf_clear(&e->out);
        e->sent = 0;
        int rc = exec_events(e->x, &e->watcher, API_EXEC_EVENTS_WANT, &e->out, NULL);
        if (rc < 0)
            api_exec_events_fail(e);
        e->last = rc == 1;
    }
    size_t left = e->out.len - e->sent;
    if (left == 0) {
        if (e->failed)
            return -2;
        return e->last || !e->follow ? -1 : 0;
    }
    size_t n = left < size ? left : size;
    memcpy(data, e->out.data + e->sent, n);
    e->sent += n;
    return (ssize_t)n;
}

static void api_exec_events_done(void *arg) {
    struct api_exec_events *e = arg;
    struct exec *x = e->x;
    exec_pin(x);
    exec_unwatch(&e->watcher);
    /* Whoever has read to the end has not gone away. */
    if (e->cancels && !e->last)
        exec_kill(x, CAUSE_LOST_CLIENT);
    exec_unpin(x);
    buf_done(&e->out);
    free(e);
}

static const struct http_stream api_exec_events_ops = {.read = api_exec_events_read,
                                                       .done = api_exec_events_done};

/* The client hung up while there was nothing to send. */
static void api_exec_events_gone(struct http_req *req) {
    struct api_exec_events *e = req->owner;
    if (e->cancels && !e->last)
        exec_kill(e->x, CAUSE_LOST_CLIENT);
}

static struct api_exec_events *api_exec_events_new(struct http_req *req, struct exec *x) {
    struct api_error error = {0};
    struct api_exec_events *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return NULL;
    }
    e->req = req;
    e->x = x;
    e->follow = true;
    buf_init(&e->out, API_EXEC_EVENTS_MAX);
    e->watcher.changed = api_exec_events_changed;
    e->watcher.follows = true;
    return e;
}

static void api_exec_events_start(struct api_exec_events *e, struct http_req *req, uint64_t after) {
    exec_watch(e->x, &e->watcher);
    exec_events_seek(e->x, &e->watcher, after);
    req->owner = e;
    req->gone = api_exec_events_gone;
    http_reply_stream(req, 200, "application/x-ndjson", UINT64_MAX, &api_exec_events_ops, e);
}

void api_exec_events_stream(struct http_req *req, struct exec *x, bool cancels) {
    struct api_exec_events *e = api_exec_events_new(req, x);
    struct json_out j;
    if (e == NULL)
        return;
    e->cancels = cancels;
    json_out_init(&j, &e->out);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "seq", 0);
    json_out_str(&j, "type", "accepted");
    json_out_str(&j, "id", x->id);
    if (answer_event_close(&j, NULL) < 0)
        api_exec_events_fail(e);
    api_exec_events_start(e, req, 0);
}

void api_exec_events_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    uint64_t after = 0;
    bool follow = false;
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    if (route_query_u64(req, "after", 0, UINT64_MAX - 8, &after, &error) < 0 ||
        route_query_bool(req, "follow", &follow, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    struct api_exec_events *e = api_exec_events_new(req, x);
    if (e == NULL)
        return;
    e->follow = follow;
    api_exec_events_start(e, req, after);
}
