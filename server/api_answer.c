#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "api.h"

/* Everything that was kept of a run, in the worst encoding (each byte as \u00XX), and more. */
#define API_ANSWER_MAX ((size_t)16 * 1024 * 1024 * 1024)

#define API_ANSWER_FIRST 2048u
#define API_ANSWER_KEEP ((size_t)64 * 1024)

void api_reply_buf(struct http_req *req, int status, const char *type, struct buf *b, int rc) {
    struct api_error error = {0};
    struct http_body body = {.len = b->len, .release = free};
    if (rc < 0) {
        buf_done(b);
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    char *data = buf_take(b);
    body.data = data;
    body.arg = data;
    http_reply(req, status, type, &body);
}

static void api_answer_release(void *arg) {
    answer_bytes_drop(arg);
}

static void api_answer_send(struct http_req *req, struct answer_bytes *bytes) {
    struct http_body body = {.data = bytes->data,
                             .len = bytes->len,
                             .release = api_answer_release,
                             .arg = answer_bytes_keep(bytes)};
    http_reply(req, 200, "application/json", &body);
}

/* Keeps what was encoded with the run, so that it is encoded once. A large answer is not kept: it
 * would double what the run takes, and a worker can make it again. */
static void api_answer_keep(struct run *run, struct buf *out) {
    if (run->phase != RUN_DONE || run->answer != NULL || out->len > API_ANSWER_KEEP)
        return;
    size_t len = out->len;
    run->answer = answer_bytes_new(buf_take(out), len);
    if (run->answer != NULL)
        runs_grown(run, len);
}

static void api_answer_encoded(struct http_req *req, struct run *run, struct buf *out, int rc) {
    if (rc == 0)
        api_answer_keep(run, out);
    if (req == NULL) {
        buf_done(out);
    } else if (rc == 0 && run->answer != NULL) {
        buf_done(out);
        api_answer_send(req, run->answer);
    } else {
        /* Also when keeping failed for want of memory: there is nothing to send then. */
        api_reply_buf(req, 200, "application/json", out, out->len > 0 ? rc : -1);
    }
}

struct api_answer_job {
    struct work_job job;
    struct http_req *req; /* NULL = the client is gone */
    struct run *run;      /* pinned, and finished */
    struct buf out;
    int rc;
};

static void api_answer_encode(struct work_job *job) {
    struct api_answer_job *j = (struct api_answer_job *)(void *)job;
    j->rc = answer_encode(j->run, 0, &j->out, NULL);
}

static void api_answer_encode_done(struct work_job *job) {
    struct api_answer_job *j = (struct api_answer_job *)(void *)job;
    if (j->req != NULL)
        j->req->gone = NULL;
    api_answer_encoded(j->req, j->run, &j->out, j->rc);
    runs_unpin(j->run);
    free(j);
}

static void api_answer_job_gone(struct http_req *req) {
    struct api_answer_job *j = req->owner;
    j->req = NULL;
}

static int api_answer_start_job(struct server *s, struct http_req *req, struct run *run) {
    struct api_answer_job *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return -1;
    j->job = (struct work_job){.run = api_answer_encode, .done = api_answer_encode_done};
    j->req = req;
    j->run = run;
    buf_init(&j->out, API_ANSWER_MAX);
    runs_pin(run);
    req->owner = j;
    req->gone = api_answer_job_gone;
    work_add(s->work, &j->job);
    return 0;
}

void api_answer_now(struct server *s, struct http_req *req, struct run *run) {
    if (run->answer != NULL) {
        api_answer_send(req, run->answer);
        return;
    }
    if (run->phase == RUN_DONE && answer_weight(run) > SERVER_INLINE_MAX) {
        struct api_error error = {0};
        if (http_hold_answer(req, answer_weight(run), &error) < 0) {
            http_reply_error(req, &error);
            return;
        }
        if (api_answer_start_job(s, req, run) == 0)
            return;
    }
    size_t position = run->phase == RUN_QUEUED ? queue_position(&s->runs.queue, &run->queued) : 0;
    struct buf out;
    buf_init(&out, API_ANSWER_MAX);
    (void)buf_reserve(&out, API_ANSWER_FIRST, NULL); /* most answers fit, and nothing is moved */
    int rc = answer_encode(run, position, &out, NULL);
    api_answer_encoded(req, run, &out, rc);
}

/* A client that waits. */
struct api_answer_waiter {
    struct run_watcher watcher;
    struct server *server;
    struct http_req *req;
};

/* The server stops before the run has begun. */
static void api_answer_kept(struct http_req *req, const struct run *run) {
    struct api_error error = {0};
    api_error_set(&error, 503, "draining", NULL,
                  "The server stops; the run %s waits for its next start.", run->id);
    http_reply_error(req, &error);
}

static void api_answer_changed(struct run_watcher *w) {
    struct api_answer_waiter *a = (struct api_answer_waiter *)(void *)w;
    struct run *run = w->run;
    if (run->phase != RUN_DONE && !runs_is_kept(run))
        return;
    a->req->gone = NULL;
    runs_pin(run);
    run_unwatch(w);
    if (run->phase == RUN_DONE)
        api_answer_now(a->server, a->req, run);
    else
        api_answer_kept(a->req, run);
    runs_unpin(run);
    free(a);
}

static void api_answer_gone(struct http_req *req) {
    struct api_answer_waiter *a = req->owner;
    struct run *run = a->watcher.run;
    runs_pin(run);
    run_unwatch(&a->watcher);
    if (run->cancel_on_disconnect && req->half_close_is_gone)
        run_cancel(run, CAUSE_LOST_CLIENT);
    runs_unpin(run);
    free(a);
}

void api_answer_when_done(struct server *s, struct http_req *req, struct run *run) {
    struct api_error error = {0};
    if (run->phase == RUN_DONE) {
        api_answer_now(s, req, run);
        return;
    }
    struct api_answer_waiter *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    a->server = s;
    a->req = req;
    a->watcher.changed = api_answer_changed;
    req->owner = a;
    req->gone = api_answer_gone;
    /* Only who asked for the run decides over it by leaving; he who cancels it has decided. */
    http_half_close_is_gone(req, run->cancel_on_disconnect && run->cancel == CAUSE_NONE);
    run_watch(run, &a->watcher);
}
