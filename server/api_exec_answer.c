#include <stdlib.h>
#include <string.h>

#include "api_exec.h"
#include "execs.h"
#include "receipt_exec.h"
#include "server.h"

/* Everything that was kept of an execution, in the worst encoding, and more. */
#define API_EXEC_ANSWER_MAX ((size_t)16 * 1024 * 1024 * 1024)
#define API_EXEC_ANSWER_FIRST 3072u

/* Reading may fail (the sandbox was deleted meanwhile, the disk is broken). */
static void api_exec_answer_send(struct http_req *req, struct buf *out, int rc) {
    struct api_error error = {0};
    if (rc == 0) {
        api_reply_buf(req, 200, "application/json", out, 0);
        return;
    }
    buf_done(out);
    api_error_set(&error, 500, "internal", NULL, "The output of this execution cannot be read.");
    http_reply_error(req, &error);
}

/* What is told of it. */
struct api_exec_shape {
    bool receipt;
    struct receipt_exec_place place;
};

static int api_exec_answer_write(const struct api_exec_shape *shape, const struct exec *x,
                                 struct spool streams[SPOOL_STREAMS], struct buf *out) {
    return shape->receipt ? receipt_exec_write(x, &shape->place, streams, out, NULL)
                          : exec_answer_encode(x, streams, out, NULL);
}

struct api_exec_answer_job {
    struct work_job job;
    struct api_exec_shape shape;
    struct http_req *req;                /* NULL = the client is gone */
    struct exec *x;                      /* pinned, and finished */
    struct spool streams[SPOOL_STREAMS]; /* copies with descriptors of their own */
    struct buf out;
    int rc;
};

static void api_exec_answer_encode(struct work_job *job) {
    struct api_exec_answer_job *j = (struct api_exec_answer_job *)(void *)job;
    j->rc = api_exec_answer_write(&j->shape, j->x, j->streams, &j->out);
}

static void api_exec_answer_encoded(struct work_job *job) {
    struct api_exec_answer_job *j = (struct api_exec_answer_job *)(void *)job;
    for (int i = 0; i < SPOOL_STREAMS; i++)
        spool_done(&j->streams[i]);
    if (j->req != NULL) {
        j->req->gone = NULL;
        api_exec_answer_send(j->req, &j->out, j->rc);
    } else {
        buf_done(&j->out);
    }
    exec_unpin(j->x);
    free(j);
}

static void api_exec_answer_job_gone(struct http_req *req) {
    struct api_exec_answer_job *j = req->owner;
    j->req = NULL;
}

/* The journal may be written anew while a worker reads, so what lies in it is not for workers. */
static int api_exec_answer_copies(struct exec *x, struct spool streams[SPOOL_STREAMS]) {
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct spool *from = &x->out[i].spool;
        if ((from->host == NULL || from->total == 0) && spool_lend(from, &streams[i], NULL) == 0)
            continue;
        while (i-- > 0)
            spool_done(&streams[i]);
        return -1;
    }
    return 0;
}

static int api_exec_answer_start_job(struct server *s, struct http_req *req, struct exec *x,
                                     const struct api_exec_shape *shape) {
    struct api_exec_answer_job *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return -1;
    if (api_exec_answer_copies(x, j->streams) < 0) {
        free(j);
        return -1;
    }
    j->job = (struct work_job){.run = api_exec_answer_encode, .done = api_exec_answer_encoded};
    j->shape = *shape;
    j->req = req;
    j->x = x;
    buf_init(&j->out, API_EXEC_ANSWER_MAX);
    exec_pin(x);
    req->owner = j;
    req->gone = api_exec_answer_job_gone;
    work_add(s->work, &j->job);
    return 0;
}

static void api_exec_answer_shaped(struct server *s, struct http_req *req, struct exec *x,
                                   const struct api_exec_shape *shape) {
    struct buf out;
    if (exec_answer_weight(x) > SERVER_INLINE_MAX) {
        struct api_error error = {0};
        if (http_hold_answer(req, exec_answer_weight(x), &error) < 0) {
            http_reply_error(req, &error);
            return;
        }
        if (api_exec_answer_start_job(s, req, x, shape) == 0)
            return;
    }
    struct spool streams[SPOOL_STREAMS] = {x->out[SPOOL_STDOUT].spool, x->out[SPOOL_STDERR].spool};
    exec_pin(x);
    buf_init(&out, API_EXEC_ANSWER_MAX);
    (void)buf_reserve(&out, API_EXEC_ANSWER_FIRST, NULL); /* most answers fit */
    int rc = api_exec_answer_write(shape, x, streams, &out);
    for (int i = 0; i < SPOOL_STREAMS; i++)
        if (streams[i].fd != x->out[i].spool.fd)
            spool_done(&streams[i]);
    api_exec_answer_send(req, &out, rc);
    exec_unpin(x);
}

void api_exec_answer_now(struct server *s, struct http_req *req, struct exec *x) {
    static const struct api_exec_shape plain = {.receipt = false};
    api_exec_answer_shaped(s, req, x, &plain);
}

void api_exec_receipt(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_exec_shape shape = {.receipt = true};
    struct api_error error = {0};
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    if (x->state != EXEC_DONE)
        api_error_set(&error, 409, "running", NULL,
                      "The execution is not over; there is a receipt when it is.");
    else if (x->receipt == NULL)
        api_error_set(&error, 404, "no_receipt", NULL,
                      "This execution has no receipt: an earlier version of the server ran it, or "
                      "its command is too long.");
    if (error.status != 0) {
        http_reply_error(req, &error);
        return;
    }
    receipt_exec_place(x, &s->receipt_key, &shape.place);
    api_exec_answer_shaped(s, req, x, &shape);
}

/* A client that waits. */
struct api_exec_waiter {
    struct exec_watcher watcher;
    struct server *server;
    struct http_req *req;
    enum api_exec_when when;
};

static void api_exec_waiter_changed(struct exec_watcher *w) {
    static const struct http_body nothing = {.data = "", .len = 0};
    struct api_exec_waiter *a = (struct api_exec_waiter *)(void *)w;
    struct exec *x = w->exec;
    if (x->state != EXEC_DONE)
        return;
    a->req->gone = NULL;
    exec_pin(x);
    exec_unwatch(w);
    if (a->when == API_EXEC_REMOVES)
        http_reply(a->req, 204, "application/json", &nothing);
    else
        api_exec_answer_now(a->server, a->req, x);
    exec_unpin(x);
    free(a);
}

static void api_exec_waiter_gone(struct http_req *req) {
    struct api_exec_waiter *a = req->owner;
    struct exec *x = a->watcher.exec;
    exec_pin(x);
    exec_unwatch(&a->watcher);
    if (a->when == API_EXEC_CANCELS)
        exec_kill(x, CAUSE_LOST_CLIENT);
    exec_unpin(x);
    free(a);
}

void api_exec_answer_when_done(struct server *s, struct http_req *req, struct exec *x,
                               enum api_exec_when when) {
    struct api_error error = {0};
    if (x->state == EXEC_DONE) {
        api_exec_answer_now(s, req, x);
        return;
    }
    struct api_exec_waiter *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    a->server = s;
    a->req = req;
    a->when = when;
    a->watcher.changed = api_exec_waiter_changed;
    req->owner = a;
    req->gone = api_exec_waiter_gone;
    http_half_close_is_gone(req, when == API_EXEC_CANCELS);
    exec_watch(x, &a->watcher);
}
