/* GET /v1/me: who the caller is, what he may use, what he uses, and his place among others. */
#include <string.h>

#include "accounts_json.h"
#include "api.h"
#include "clock.h"
#include "json_out.h"

#define API_ME_MAX ((size_t)1024 * 1024)

struct api_me_count {
    uint64_t queued, running, kept, bytes;
    uint64_t snapshots, snapshot_bytes;
};

static void api_me_count(const struct server *s, const char *owner, struct api_me_count *c) {
    for (const struct run *run = s->runs.newest; run != NULL; run = run->older) {
        if (strcmp(run->owner, owner) != 0)
            continue;
        c->queued += run->phase == RUN_QUEUED;
        c->running += run->phase >= RUN_STEP && run->phase <= RUN_SEAL;
        c->kept += run->phase == RUN_DONE;
        c->bytes += run->memory;
    }
    for (const struct snapshot *x = s->snapshots.newest; x != NULL; x = x->older) {
        if (strcmp(x->owner, owner) != 0)
            continue;
        c->snapshots++;
        c->snapshot_bytes += x->added_bytes;
    }
}

static void api_me_limit(struct json_out *j, enum quota_kind kind, uint64_t limit) {
    if (limit == QUOTA_UNLIMITED)
        json_out_null(j, quota_name(kind));
    else
        json_out_u64(j, quota_name(kind), limit);
}

/* The user's quotas, and what is bounded for everybody. */
static void api_me_quota(struct json_out *j, const struct server *s,
                         const struct accounts_user *user, uint64_t blobs) {
    uint64_t snapshots = s->snapshots.options.bytes;
    json_out_open(j, "quota", '{');
    for (unsigned kind = 0; kind < QUOTA_COUNT; kind++) {
        uint64_t limit = quota_limit_of_user(s->quota, user, kind);
        if (kind == QUOTA_SNAPSHOT_BYTES && snapshots < limit)
            limit = snapshots; /* of all together: nobody gets more */
        api_me_limit(j, kind, limit);
    }
    json_out_u64(j, "queued_runs", s->runs.options.queue_count);
    json_out_u64(j, "results_kept", s->runs.options.keep_count);
    json_out_u64(j, "results_bytes", s->runs.options.keep_bytes);
    json_out_u64(j, "snapshots", s->snapshots.options.count);
    json_out_u64(j, "blobs_bytes", blobs);
    json_out_close(j, '}');
}

static void api_me_used(struct json_out *j, const struct server *s,
                        const struct accounts_user *user, const struct blobs_usage *blobs) {
    struct api_me_count c = {0};
    api_me_count(s, user->name, &c);
    json_out_open(j, "used", '{');
    for (unsigned kind = 0; kind < QUOTA_COUNT; kind++)
        if (kind != QUOTA_SNAPSHOT_BYTES)
            json_out_u64(j, quota_name(kind), quota_used(&user->use, kind));
    json_out_u64(j, "runs_today", quota_runs_today(&user->use));
    json_out_u64(j, "queued_runs", c.queued);
    json_out_u64(j, "running_runs", c.running);
    json_out_u64(j, "results_kept", c.kept);
    json_out_u64(j, "results_bytes", c.bytes);
    json_out_u64(j, "snapshots", c.snapshots);
    json_out_u64(j, "snapshot_bytes", c.snapshot_bytes);
    json_out_u64(j, "blobs", blobs->count);
    json_out_u64(j, "blobs_bytes", blobs->bytes);
    json_out_close(j, '}');
}

/* What it has, and which of that counts against its own quota. */
static void api_me_token(struct json_out *j, const struct accounts_token *t) {
    json_out_open(j, "token", '{');
    accounts_json_token_members(j, t, clock_real_ms());
    json_out_open(j, "used", '{');
    for (unsigned kind = 0; kind < QUOTA_COUNT; kind++)
        if (kind != QUOTA_RESULT_BYTES)
            json_out_u64(j, quota_name(kind), quota_used(&t->use, kind));
    json_out_u64(j, "runs_today", quota_runs_today(&t->use));
    json_out_close(j, '}');
    json_out_close(j, '}');
}

/* Of 1,000 turns that the queue gives, how many are the caller's as long as the same users wait. */
static void api_me_queue(struct json_out *j, const struct server *s,
                         const struct accounts_user *user) {
    struct queue_share share;
    queue_share(&s->runs.queue, user->name, &share);
    uint64_t others = share.weights - (share.waiting > 0 && !share.aside ? share.weight : 0);
    json_out_open(j, "queue", '{');
    json_out_u64(j, "waiting", share.waiting);
    json_out_u64(j, "running", share.running);
    json_out_u64(j, "weight", user->weight);
    json_out_u64(j, "share_permille", user->weight * UINT64_C(1000) / (user->weight + others));
    json_out_u64(j, "users_waiting", share.users);
    json_out_bool(j, "set_aside", share.aside);
    json_out_close(j, '}');
}

void api_me_get(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct buf out;
    struct json_out j;
    const struct accounts_token *t = req->token;
    struct blobs_usage blobs = blobs_usage(s->blobs, req->user_name);
    buf_init(&out, API_ME_MAX);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "user", req->user_name);
    accounts_json_scopes(&j, t->scopes);
    api_me_quota(&j, s, t->user, blobs.quota);
    api_me_used(&j, s, t->user, &blobs);
    api_me_token(&j, t);
    api_me_queue(&j, s, t->user);
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}
