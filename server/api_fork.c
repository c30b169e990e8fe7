#include <stdlib.h>
#include <string.h>

#include "accounts_budget.h"
#include "api.h"
#include "clock.h"
#include "id.h"
#include "json_out.h"
#include "sandbox_request.h"
#include "str.h"
#include "sync.h"
#include "traces.h"

#define API_FORK_BYTES ((size_t)16 * 1024 * 1024)

/* One snapshot, then as many sandboxes from it as were asked for: all of them or none. */
struct api_fork_child {
    struct sandbox_wait wait;
    struct api_fork *fork;
    struct sandbox *sandbox; /* NULL = it could not be made */
};

struct api_fork {
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    char key[WIRE_NAME_MAX];
    char shard[LINK_NAME_MAX];
    struct sandbox_spec spec;
    uint32_t count, asked, waiting;
    struct api_error error;
    struct api_fork_child children[SANDBOX_REQUEST_FORK_MAX];
};

static void api_fork_free(struct api_fork *f) {
    sandbox_spec_done(&f->spec);
    free(f);
}

/* What was made has layers of its own now. */
static void api_fork_drop(struct api_fork *f) {
    struct link *l = links_find(&f->server->links, f->shard);
    if (l != NULL)
        link_drop_snapshot(l, f->key);
}

static void api_fork_reply(struct api_fork *f) {
    struct buf out;
    struct json_out j;
    buf_init(&out, API_FORK_BYTES);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_open(&j, "sandboxes", '[');
    for (uint32_t i = 0; i < f->count; i++)
        sandbox_json_write(&j, NULL, f->children[i].sandbox);
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    api_reply_buf(f->req, 201, "application/json", &out, json_out_end(&j, NULL));
}

static void api_fork_finish(struct api_fork *f) {
    api_fork_drop(f);
    for (uint32_t i = 0; i < f->asked; i++)
        if (f->children[i].sandbox != NULL)
            sandbox_release(f->children[i].sandbox);
    if (f->req != NULL)
        f->req->gone = NULL;
    if (f->error.status == 0 && f->req != NULL) {
        api_fork_reply(f);
        api_fork_free(f);
        return;
    }
    for (uint32_t i = 0; i < f->asked; i++)
        if (f->children[i].sandbox != NULL)
            sandbox_life_end(f->children[i].sandbox, SANDBOX_END_DELETED, NULL);
    if (f->req != NULL)
        http_reply_error(f->req, &f->error);
    api_fork_free(f);
}

static void api_fork_opened(struct sandbox_wait *w, const struct api_error *why) {
    struct api_fork_child *c = (struct api_fork_child *)(void *)w;
    struct api_fork *f = c->fork;
    if (why != NULL) {
        c->sandbox = NULL;
        if (f->error.status == 0)
            f->error = *why;
    }
    if (--f->waiting == 0)
        api_fork_finish(f);
}

static void api_fork_make(struct api_fork *f, const struct sandbox *sb) {
    f->waiting = 1; /* not before all were asked for */
    /* While the snapshot was taken others may have taken what was left. */
    (void)api_sandboxes_check_quota(f->server, f->req, &f->spec, f->count, &f->error);
    for (; f->asked < f->count && f->error.status == 0; f->asked++) {
        struct api_fork_child *c = &f->children[f->asked];
        struct sandbox_spec spec;
        c->fork = f;
        c->wait.fn = api_fork_opened;
        struct trace trace;
        if (traces_begin(f->server, f->req, &f->spec.trace, &trace, NULL, NULL) < 0 ||
            sandbox_spec_copy(&f->spec, &spec, NULL) < 0) {
            api_error_memory(&f->error);
            break;
        }
        spec.trace = trace;
        c->sandbox = sandboxes_create(&f->server->sandboxes, &spec, &f->error);
        sandbox_spec_done(&spec);
        if (c->sandbox == NULL)
            break;
        sandbox_hold(c->sandbox); /* it may be gone before the last one is there */
        sync_inherit(sb, c->sandbox);
        f->waiting++;
        sandbox_wait_open(c->sandbox, &c->wait);
    }
    if (--f->waiting == 0)
        api_fork_finish(f);
}

static void api_fork_snapped(void *arg, struct sandbox *sb, const struct wire_done *done) {
    struct api_fork *f = arg;
    if (done != NULL && done->code == 0 && f->req != NULL) {
        api_fork_make(f, sb);
        return;
    }
    if (done != NULL && done->code == 0)
        api_fork_drop(f);
    if (f->req != NULL) {
        f->req->gone = NULL;
        api_sandboxes_undone(f->req, sb, done);
    }
    api_fork_free(f);
}

static void api_fork_gone(struct http_req *req) {
    struct api_fork *f = req->owner;
    f->req = NULL;
}

static int api_fork_prepare(struct api_fork *f, const struct sandbox *sb, struct api_error *error) {
    struct err err;
    err_clear(&err);
    if (id_make(f->key, sizeof(f->key), "fork_", &err) < 0 ||
        sandbox_spec_copy(sandbox_spec(sb), &f->spec, &err) < 0)
        return api_error_memory(error);
    if (api_runs_check_policy(f->req, f->spec.policy.name, error) < 0 ||
        accounts_budget_open(f->req->token, clock_real_ms(), error) < 0)
        return -1;
    str_copy(f->spec.token, sizeof(f->spec.token), f->req->token->id);
    str_copy(f->shard, sizeof(f->shard), sandbox_shard(sb));
    str_copy(f->spec.shard, sizeof(f->spec.shard), f->shard);
    str_copy(f->spec.from, sizeof(f->spec.from), f->key);
    str_copy(f->spec.origin, sizeof(f->spec.origin), sandbox_id(sb));
    if (api_sandboxes_check_quota(f->server, f->req, &f->spec, f->count, error) < 0)
        return -1;
    if (!sandboxes_may_queue(&f->server->sandboxes, f->spec.owner, f->count))
        return api_error_set(error, 429, "queue_full", NULL,
                             "%zu sandboxes wait for a place. Try again later.",
                             f->server->sandboxes.queue.count);
    return 0;
}

void api_fork(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    struct err err;
    err_clear(&err);
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb == NULL)
        return;
    struct api_fork *f = calloc(1, sizeof(*f));
    const char *body = req->body != NULL ? req->body : "";
    if (f == NULL) {
        api_error_memory(&error);
    } else {
        f->server = s;
        f->req = req;
        if (sandbox_request_fork(body, req->body_len, &f->count, &error) == 0)
            (void)api_fork_prepare(f, sb, &error);
    }
    if (error.status != 0) {
        if (f != NULL)
            api_fork_free(f);
        http_reply_error(req, &error);
        return;
    }
    if (sandbox_op_snapshot(sb, f->key, api_fork_snapped, f, &err) == NULL) {
        api_fork_free(f);
        api_sandboxes_refuse(req, &err);
        return;
    }
    req->owner = f;
    req->gone = api_fork_gone;
}
