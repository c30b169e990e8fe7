#include <stdlib.h>

#include "api.h"
#include "run_store.h"
#include "str.h"

#define API_REPLAY_MAX ((size_t)256 * 1024 * 1024)

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
    free(http_take_body(req, &len, NULL));
    req->body_len = body->len;
    req->body = buf_take(body);
    api_runs_create(s, req, &none);
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
        api_runs_create_again(s, req, file);
    else
        api_replay_run(s, req, &body);
    buf_done(&body);
}

void api_replay(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_replay_found);
}
