#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "sandbox_request.h"
#include "traces_late.h"

/* A request whose answer is the runner's. */
struct api_sandbox_life_op {
    struct http_req *req;
    struct sandbox_op *op;
};

static void api_sandbox_life_done(void *arg, struct sandbox *sb, const struct wire_done *done) {
    struct api_sandbox_life_op *a = arg;
    struct http_req *req = a->req;
    free(a);
    req->gone = NULL;
    if (done == NULL || done->code != 0)
        api_sandboxes_undone(req, sb, done);
    else
        api_sandboxes_reply(req, 200, sb);
}

static void api_sandbox_life_gone(struct http_req *req) {
    struct api_sandbox_life_op *a = req->owner;
    sandbox_op_forget(a->op);
    free(a);
}

static struct api_sandbox_life_op *api_sandbox_life_begin(struct http_req *req) {
    struct api_error error = {0};
    struct api_sandbox_life_op *a = calloc(1, sizeof(*a));
    if (a != NULL) {
        a->req = req;
        return a;
    }
    api_error_memory(&error);
    http_reply_error(req, &error);
    return NULL;
}

/* The request was made, or not. */
static void api_sandbox_life_wait(struct api_sandbox_life_op *a, struct sandbox_op *op,
                                  const struct err *err) {
    if (op == NULL) {
        api_sandboxes_refuse(a->req, err);
        free(a);
        return;
    }
    a->op = op;
    a->req->owner = a;
    a->req->gone = api_sandbox_life_gone;
}

static void api_sandbox_life_freeze(struct server *s, struct http_req *req, const char *id,
                                    bool frozen) {
    struct err err;
    err_clear(&err);
    struct sandbox *sb = sandbox_mine(s, req, id);
    struct api_sandbox_life_op *a = sb != NULL ? api_sandbox_life_begin(req) : NULL;
    if (a != NULL)
        api_sandbox_life_wait(a, sandbox_op_freeze(sb, frozen, api_sandbox_life_done, a, &err),
                              &err);
}

void api_sandbox_life_pause(struct server *s, struct http_req *req, const struct route_args *args) {
    api_sandbox_life_freeze(s, req, args->value[0], true);
}

void api_sandbox_life_resume(struct server *s, struct http_req *req,
                             const struct route_args *args) {
    api_sandbox_life_freeze(s, req, args->value[0], false);
}

void api_sandbox_life_restore(struct server *s, struct http_req *req,
                              const struct route_args *args) {
    struct err err;
    struct api_error error = {0};
    char ref[SANDBOX_REQUEST_REF_MAX + 1];
    const struct snapshot *snap = NULL;
    err_clear(&err);
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb == NULL)
        return;
    const char *body = req->body != NULL ? req->body : "";
    if (sandbox_request_restore(body, req->body_len, ref, &error) == 0)
        snap = api_snapshots_named(s, req->user_name, ref, "/snapshot", &error);
    if (snap != NULL && strcmp(snap->shard, sandbox_shard(sb)) != 0)
        api_error_set(&error, 409, "state", "/snapshot",
                      "The snapshot is with another runner than the sandbox: make a new sandbox "
                      "from it.");
    else if (snap != NULL && (strcmp(snap->image, sandbox_spec(sb)->image) != 0 ||
                              snap->disk != sandbox_spec(sb)->disk))
        api_error_set(&error, 409, "state", "/snapshot",
                      "The snapshot is one of another image or kind of disk than the sandbox.");
    if (error.status != 0) {
        http_reply_error(req, &error);
        return;
    }
    struct api_sandbox_life_op *a = api_sandbox_life_begin(req);
    if (a != NULL)
        api_sandbox_life_wait(a, sandbox_op_restore(sb, snap->id, api_sandbox_life_done, a, &err),
                              &err);
}

void api_sandbox_life_ttl(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    uint64_t ttl_ms = 0;
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb == NULL)
        return;
    const char *body = req->body != NULL ? req->body : "";
    if (sandbox_request_ttl(body, req->body_len, &ttl_ms, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    sandbox_life_ttl(sb, ttl_ms);
    api_sandboxes_reply(req, 200, sb);
}

/* Deleting. */

struct api_sandbox_life_closer {
    struct sandbox_wait wait;
    struct traces_late_wait late;
    struct server *server;
    struct http_req *req;
};

static void api_sandbox_life_nothing(struct http_req *req) {
    struct http_body body = {.data = "", .len = 0};
    http_reply(req, 204, "application/json", &body);
}

static void api_sandbox_life_kept(struct traces_late_wait *w) {
    struct api_sandbox_life_closer *a =
        (void *)((char *)w - offsetof(struct api_sandbox_life_closer, late));
    struct http_req *req = a->req;
    free(a);
    req->gone = NULL;
    api_sandbox_life_nothing(req);
}

/* What it leaves in its trace is to be durable before the client is told. */
static void api_sandbox_life_closed(struct sandbox_wait *w, const struct api_error *why) {
    struct api_sandbox_life_closer *a = (struct api_sandbox_life_closer *)(void *)w;
    (void)why;
    if (traces_late_after(a->server, &a->late))
        api_sandbox_life_kept(&a->late);
}

static void api_sandbox_life_closer_gone(struct http_req *req) {
    struct api_sandbox_life_closer *a = req->owner;
    sandbox_wait_stop(&a->wait);
    traces_late_forget(a->server, &a->late);
    free(a);
}

void api_sandbox_life_delete(struct server *s, struct http_req *req,
                             const struct route_args *args) {
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    struct api_error error = {0};
    if (sb == NULL)
        return;
    struct api_sandbox_life_closer *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    a->wait.fn = api_sandbox_life_closed;
    a->late.fn = api_sandbox_life_kept;
    a->server = s;
    a->req = req;
    req->owner = a;
    req->gone = api_sandbox_life_closer_gone;
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    if (sandbox_wait_closed(sb, &a->wait))
        api_sandbox_life_closed(&a->wait, NULL);
}
