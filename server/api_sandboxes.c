#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accounts_budget.h"
#include "admit.h"
#include "api.h"
#include "clock.h"
#include "image_check.h"
#include "json_out.h"
#include "sandbox_request.h"
#include "str.h"
#include "traces.h"

#define API_SANDBOXES_BODY_MAX ((size_t)4 * 1024 * 1024)
#define API_SANDBOXES_LIST_DEFAULT 50u
#define API_SANDBOXES_LIST_MAX 1000u
#define API_SANDBOXES_LIST_BYTES ((size_t)64 * 1024 * 1024)
#define API_SANDBOXES_BYTES ((size_t)1024 * 1024)

/* Answers. */

void api_sandboxes_reply(struct http_req *req, int status, const struct sandbox *sb) {
    struct buf out;
    struct json_out j;
    buf_init(&out, API_SANDBOXES_BYTES);
    json_out_init(&j, &out);
    sandbox_json_write(&j, NULL, sb);
    api_reply_buf(req, status, "application/json", &out, json_out_end(&j, NULL));
}

void api_sandboxes_refuse(struct http_req *req, const struct err *err) {
    struct api_error error = {0};
    if (err->kind == ERR_STATE)
        api_error_set(&error, 409, "state", NULL, "Not now: %s.", err->text);
    else if (err->kind == ERR_LIMIT)
        api_error_set(&error, 429, "quota", NULL, "Not now: %s.", err->text);
    else
        api_error_memory(&error);
    http_reply_error(req, &error);
}

void api_sandboxes_undone(struct http_req *req, const struct sandbox *sb,
                          const struct wire_done *done) {
    struct api_error error = {0};
    char text[WIRE_TEXT_MAX];
    if (done == NULL && sandbox_state(sb) == SANDBOX_GONE) {
        sandbox_life_text(sb, text, sizeof(text));
        api_error_set(&error, 410, "gone", NULL, "%s", text);
    } else if (done == NULL) {
        api_error_set(&error, 503, "no_runner", NULL,
                      "The connection to the runner broke; whether it was done is not known.");
    } else {
        str_escape(text, sizeof(text), done->text, strlen(done->text));
        if (text[0] == '\0')
            snprintf(text, sizeof(text), "%s", strerror(done->code));
        if (done->code == ETIMEDOUT)
            api_error_set(&error, 504, "timeout", NULL,
                          "The runner has not done it in time; it may still do it.");
        else if (done->code == ENOENT)
            api_error_set(&error, 404, "not_found", NULL, "The snapshot is not there any more.");
        else if (done->code == ENOTSUP)
            api_error_set(&error, 422, "unavailable", NULL, "This host cannot do it: %.300s.",
                          text);
        else if (done->code == ENOSPC)
            api_error_set(&error, 507, "no_space", NULL, "There is no room for it: %.300s.", text);
        else
            api_error_set(&error, 500, "internal", NULL, "It failed: %.300s.", text);
    }
    http_reply_error(req, &error);
}

/* Creating. */

struct api_sandboxes_waiter {
    struct sandbox_wait wait;
    struct http_req *req;
    struct sandbox *sandbox;
};

static void api_sandboxes_opened(struct sandbox_wait *w, const struct api_error *why) {
    struct api_sandboxes_waiter *a = (struct api_sandboxes_waiter *)(void *)w;
    a->req->gone = NULL;
    if (why != NULL) {
        http_reply_error(a->req, why);
    } else {
        http_add_header(a->req, "Location", "/v1/sandboxes/%s", sandbox_id(a->sandbox));
        traces_answer(a->req, &sandbox_spec(a->sandbox)->trace);
        api_sandboxes_reply(a->req, 201, a->sandbox);
    }
    free(a);
}

/* Nobody has learnt its id: it would only wait for its end. */
static void api_sandboxes_left(struct http_req *req) {
    struct api_sandboxes_waiter *a = req->owner;
    struct sandbox *sb = a->sandbox;
    sandbox_wait_stop(&a->wait);
    free(a);
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
}

/* A snapshot can only be used where it is. */
static const struct link_policy *api_sandboxes_policy(struct server *s, const char *name,
                                                      enum backend wish, struct sandbox_spec *spec,
                                                      struct api_error *error) {
    const struct link *l = spec->shard[0] != '\0' ? links_find(&s->links, spec->shard) : NULL;
    const struct link_policy *p = l != NULL && l->state == LINK_READY ? link_policy(l, name) : NULL;
    if (p == NULL)
        return api_runs_policy(s, name, wish, &spec->backend, error);
    if (wish != BACKEND_NONE && wish != l->welcome.backend) {
        api_error_set(error, 400, "conflict", "/backend",
                      "The snapshot is one of the back end %s, so the sandbox must be, too.",
                      backend_name(l->welcome.backend));
        return NULL;
    }
    wish = (enum backend)l->welcome.backend;
    return admit_backend(wish, &p->head, &spec->backend, error) < 0 ? NULL : p;
}

/* What comes from the snapshot that it starts from. */
static int api_sandboxes_from(struct server *s, const struct sandbox_request *r, const char *user,
                              struct sandbox_spec *spec, struct api_error *error) {
    const struct snapshot *snap = api_snapshots_named(s, user, r->from, "/from", error);
    if (snap == NULL)
        return -1;
    if (r->image != NULL && strcmp(r->image, snap->image) != 0)
        return api_error_set(error, 400, "conflict", "/image",
                             "The snapshot is one of image %s, so the sandbox must be, too.",
                             snap->image);
    uint32_t disk = r->disk_file ? WIRE_DISK_FILE : WIRE_DISK_MEMORY;
    if (r->disk_set && disk != snap->disk)
        return api_error_set(error, 400, "conflict", "/disk",
                             "The snapshot is one of a disk in %s, so the sandbox's must be, too.",
                             snap->disk == WIRE_DISK_FILE ? "a file" : "memory");
    str_copy(spec->from, sizeof(spec->from), snap->id);
    str_copy(spec->shard, sizeof(spec->shard), snap->shard);
    str_copy(spec->image, sizeof(spec->image), snap->image);
    str_copy(spec->origin, sizeof(spec->origin), r->from);
    spec->disk = snap->disk;
    return 0;
}

static int api_sandboxes_spec(struct server *s, const struct sandbox_request *r,
                              struct http_req *req, struct sandbox_spec *spec,
                              struct api_error *error) {
    const char *policy_name = r->policy != NULL ? r->policy : "default";
    if (api_runs_check_policy(req, policy_name, error) < 0 ||
        accounts_budget_open(req->token, clock_real_ms(), error) < 0 ||
        api_tokens_check_env(req, &r->env, "/env", error) < 0)
        return -1;
    str_copy(spec->owner, sizeof(spec->owner), req->user_name);
    str_copy(spec->token, sizeof(spec->token), req->token->id);
    str_copy(spec->image, sizeof(spec->image), r->image != NULL ? r->image : "host");
    spec->disk = r->disk_file ? WIRE_DISK_FILE : WIRE_DISK_MEMORY;
    spec->ttl_ms = r->ttl_ms != 0 ? r->ttl_ms : SANDBOX_TTL_DEFAULT_MS;
    spec->idle_ms = r->idle_ms != 0 ? r->idle_ms : SANDBOX_IDLE_DEFAULT_MS;
    if (r->from != NULL && api_sandboxes_from(s, r, req->user_name, spec, error) < 0)
        return -1;
    const struct link_policy *policy =
        api_sandboxes_policy(s, policy_name, r->backend, spec, error);
    if (policy == NULL || admit_network(r->network, error) < 0 ||
        admit_limits(&r->limits, &policy->head, &spec->limits, error) < 0 ||
        image_check(policy, spec->image, r->image_digest, spec->image_sha256, error) < 0)
        return -1;
    if (r->from == NULL && !r->disk_set)
        spec->disk = links_disk(&s->links, spec->backend);
    spec->policy = policy->head;
    spec->metadata = r->metadata != NULL ? json_incref(r->metadata) : json_object();
    if (spec->metadata == NULL || sandbox_spec_set_env(spec, &r->env, NULL) < 0)
        return api_error_memory(error);
    return 0;
}

static int api_sandboxes_check_room(struct server *s, const struct http_req *req,
                                    struct api_error *error) {
    if (req->body_len > API_SANDBOXES_BODY_MAX)
        return api_error_set(error, 413, "too_large", NULL,
                             "The body has %zu bytes; at most %zu are possible.", req->body_len,
                             API_SANDBOXES_BODY_MAX);
    if (s->draining)
        return api_error_set(error, 503, "draining", NULL,
                             "The server is about to stop and takes no new work.");
    if (!sandboxes_may_queue(&s->sandboxes, req->user_name, 1))
        return api_error_set(error, 429, "queue_full", NULL,
                             "%zu sandboxes wait for a place. Try again later.",
                             s->sandboxes.queue.count);
    return 0;
}

int api_sandboxes_check_quota(struct server *s, const struct http_req *req,
                              const struct sandbox_spec *spec, uint64_t count,
                              struct api_error *error) {
    const uint64_t *limits = spec->limits.values.v;
    struct quota_held who = {0};
    if (server_check_memory(s, limits[LIMIT_MEM_BYTES], error) < 0)
        return -1;
    quota_hold(s->quota, &who, req->token, req->user_name);
    int rc = quota_may_sandbox(s->quota, &who, count, limits[LIMIT_MEM_BYTES],
                               limits[LIMIT_DISK_BYTES], error);
    quota_let_go(s->quota, &who);
    return rc;
}

static struct sandbox *api_sandboxes_make(struct server *s, struct http_req *req,
                                          const struct sandbox_request *r,
                                          struct api_error *error) {
    struct sandbox_spec spec;
    struct sandbox *sb = NULL;
    memset(&spec, 0, sizeof(spec));
    if (traces_begin(s, req, NULL, &spec.trace, NULL, NULL) < 0)
        api_error_memory(error);
    else if (api_sandboxes_spec(s, r, req, &spec, error) == 0 &&
             api_sandboxes_check_quota(s, req, &spec, 1, error) == 0)
        sb = sandboxes_create(&s->sandboxes, &spec, error);
    sandbox_spec_done(&spec);
    return sb;
}

static void api_sandboxes_decoded(struct server *s, struct http_req *req,
                                  const struct sandbox_request *r) {
    struct api_error error = {0};
    struct api_sandboxes_waiter *a = calloc(1, sizeof(*a));
    struct sandbox *sb = NULL;
    if (a == NULL)
        api_error_memory(&error);
    else if (api_sandboxes_check_room(s, req, &error) == 0)
        sb = api_sandboxes_make(s, req, r, &error);
    if (sb == NULL) {
        free(a);
        http_reply_error(req, &error);
        return;
    }
    a->wait.fn = api_sandboxes_opened;
    a->req = req;
    a->sandbox = sb;
    req->owner = a;
    req->gone = api_sandboxes_left;
    sandbox_wait_open(sb, &a->wait);
}

/* A large body is decoded by a worker. */

struct api_sandboxes_job {
    struct work_job job; /* first: a job is its request */
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    char *body;
    size_t len;
    struct http_hold hold; /* of the body */
    struct sandbox_request request;
    struct api_error error;
    int rc;
};

static void api_sandboxes_gone(struct http_req *req) {
    struct api_sandboxes_job *j = req->owner;
    j->req = NULL;
}

static void api_sandboxes_decode(struct work_job *job) {
    struct api_sandboxes_job *j = (struct api_sandboxes_job *)(void *)job;
    j->rc = sandbox_request_decode(j->body, j->len, &j->request, &j->error);
    free(j->body);
    j->body = NULL;
}

static void api_sandboxes_decode_done(struct work_job *job) {
    struct api_sandboxes_job *j = (struct api_sandboxes_job *)(void *)job;
    http_hold_end(&j->hold);
    if (j->req != NULL) {
        j->req->gone = NULL;
        if (j->rc == 0)
            api_sandboxes_decoded(j->server, j->req, &j->request);
        else
            http_reply_error(j->req, &j->error);
    }
    sandbox_request_done(&j->request);
    free(j);
}

static void api_sandboxes_decode_later(struct server *s, struct http_req *req) {
    struct api_error error = {0};
    struct api_sandboxes_job *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    j->server = s;
    j->req = req;
    j->body = http_take_body(req, &j->len, &j->hold);
    j->job = (struct work_job){.run = api_sandboxes_decode, .done = api_sandboxes_decode_done};
    req->owner = j;
    req->gone = api_sandboxes_gone;
    work_add(s->work, &j->job);
}

void api_sandboxes_create(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct sandbox_request r;
    const char *body = req->body != NULL ? req->body : "{}";
    size_t len = req->body != NULL ? req->body_len : 2;
    int rc = api_sandboxes_check_room(s, req, &error);
    if (rc == 0 && len > SERVER_INLINE_MAX) {
        api_sandboxes_decode_later(s, req);
        return;
    }
    if (rc == 0)
        rc = sandbox_request_decode(body, len, &r, &error);
    if (rc < 0) {
        http_reply_error(req, &error);
        return;
    }
    api_sandboxes_decoded(s, req, &r);
    sandbox_request_done(&r);
}

/* Looking. */

void api_sandboxes_get(struct server *s, struct http_req *req, const struct route_args *args) {
    const struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb != NULL)
        api_sandboxes_reply(req, 200, sb);
}

static bool api_sandboxes_listed(const struct sandbox *sb, const char *owner) {
    enum sandbox_state state = sandbox_state(sb);
    return (state == SANDBOX_READY || state == SANDBOX_PAUSED) &&
           strcmp(sandbox_owner(sb), owner) == 0;
}

static void api_sandboxes_write_list(struct json_out *j, const struct sandbox *from,
                                     const char *owner, uint64_t limit) {
    const struct sandbox *last = NULL;
    uint64_t n = 0;
    json_out_open(j, NULL, '{');
    json_out_open(j, "sandboxes", '[');
    const struct sandbox *sb = from;
    for (; sb != NULL; sb = sandbox_older(sb)) {
        if (!api_sandboxes_listed(sb, owner))
            continue;
        if (n++ == limit)
            break;
        sandbox_json_write(j, NULL, sb);
        last = sb;
    }
    json_out_close(j, ']');
    if (sb == NULL || last == NULL)
        json_out_null(j, "next");
    else
        json_out_str(j, "next", sandbox_id(last));
    json_out_close(j, '}');
}

void api_sandboxes_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    uint64_t limit = API_SANDBOXES_LIST_DEFAULT;
    const char *after = http_query(req, "after");
    const struct sandbox *from = s->sandboxes.newest;
    if (route_query_u64(req, "limit", 1, API_SANDBOXES_LIST_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (after != NULL && after[0] != '\0') {
        const struct sandbox *sb = sandboxes_find(&s->sandboxes, after);
        if (sb == NULL || strcmp(sandbox_owner(sb), req->user_name) != 0)
            api_error_set(&error, 404, "not_found", NULL, "There is no such sandbox.");
        else
            from = sandbox_older(sb);
    }
    if (error.status == 0 && sandboxes_unsettled(&s->sandboxes, req->user_name))
        api_error_set(&error, 503, "no_runner", NULL,
                      "The runner that has some of them is being looked for. Try again.");
    if (error.status != 0) {
        http_reply_error(req, &error);
        return;
    }
    struct buf out;
    struct json_out j;
    buf_init(&out, API_SANDBOXES_LIST_BYTES);
    json_out_init(&j, &out);
    api_sandboxes_write_list(&j, from, req->user_name, limit);
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}
