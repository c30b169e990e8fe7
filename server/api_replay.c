#include <stdlib.h>

#include "api.h"
#include "results.h"
#include "run_store.h"
#include "str.h"

#define API_REPLAY_MAX ((size_t)256 * 1024 * 1024)

/* A body that a worker reads. */
struct api_replay_job {
    struct work_job job;
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    int results;          /* directory; borrowed */
    char file[STORE_RUNS_FILE_SIZE];
    struct buf body;
    struct err err;
    int rc;
};

static void api_replay_refuse(struct http_req *req, const struct err *err) {
    struct api_error error = {0};
    if (err == NULL)
        api_error_set(&error, 410, "inputs_gone", NULL,
                      "The inputs of this run are not kept (any more), so it cannot be run again.");
    else
        api_error_set(&error, 500, "internal", NULL, "The inputs of this run cannot be read.");
    http_reply_error(req, &error);
}

/* The stored body takes the place of the request's own; the rest is as with any run. */
static void api_replay_run(struct server *s, struct http_req *req, struct buf *body) {
    static const struct route_args none = {0};
    size_t len;
    free(http_take_body(req, &len));
    req->body_len = body->len;
    req->body = buf_take(body);
    api_runs_create(s, req, &none);
}

static void api_replay_read(struct work_job *job) {
    struct api_replay_job *j = (struct api_replay_job *)(void *)job;
    j->rc = results_read(j->results, j->file, &j->body, &j->err);
}

static void api_replay_read_done(struct work_job *job) {
    struct api_replay_job *j = (struct api_replay_job *)(void *)job;
    if (j->req != NULL) {
        j->req->gone = NULL;
        if (j->rc == 0)
            api_replay_run(j->server, j->req, &j->body);
        else
            api_replay_refuse(j->req, &j->err);
    }
    buf_done(&j->body);
    free(j);
}

static void api_replay_gone(struct http_req *req) {
    struct api_replay_job *j = req->owner;
    j->req = NULL;
}

static void api_replay_later(struct server *s, struct http_req *req, const char *file) {
    struct api_error error = {0};
    struct api_replay_job *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    j->job = (struct work_job){.run = api_replay_read, .done = api_replay_read_done};
    j->server = s;
    j->req = req;
    j->results = s->runs.results;
    str_copy(j->file, sizeof(j->file), file);
    buf_init(&j->body, API_REPLAY_MAX);
    req->owner = j;
    req->gone = api_replay_gone;
    work_add(s->work, &j->job);
}

static void api_replay_found(struct server *s, struct http_req *req, struct run *run,
                             const struct route_args *args) {
    char file[STORE_RUNS_FILE_SIZE] = "";
    struct buf body;
    struct err err;
    (void)args;
    err_clear(&err);
    buf_init(&body, API_REPLAY_MAX);
    int rc = run_store_body_find(&s->runs, req->user_name, run->id, &body, file, &err);
    str_copy(req->replay_of, sizeof(req->replay_of), run->id);
    if (rc <= 0)
        api_replay_refuse(req, rc < 0 ? &err : NULL);
    else if (file[0] != '\0')
        api_replay_later(s, req, file);
    else
        api_replay_run(s, req, &body);
    buf_done(&body);
}

void api_replay(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_replay_found);
}
