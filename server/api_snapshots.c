#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "json_out.h"
#include "sandbox_request.h"
#include "str.h"

#define API_SNAPSHOTS_LIST_DEFAULT 50u
#define API_SNAPSHOTS_LIST_MAX 1000u
#define API_SNAPSHOTS_BYTES ((size_t)4 * 1024 * 1024)

static void api_snapshots_reply(struct http_req *req, int status, const struct snapshot *snap) {
    struct buf out;
    struct json_out j;
    buf_init(&out, API_SNAPSHOTS_BYTES);
    json_out_init(&j, &out);
    snapshots_write_json(&j, NULL, snap);
    api_reply_buf(req, status, "application/json", &out, json_out_end(&j, NULL));
}

/* "run_…@5" -> that step's snapshot, or NULL. The run itself may lie in the store only. */
static struct snapshot *api_snapshots_of_step(struct server *s, const char *ref) {
    char id[RUN_ID_SIZE];
    uint64_t step = 0;
    const char *at = strchr(ref, '@');
    if (at == NULL || (size_t)(at - ref) >= sizeof(id) ||
        str_u64(at + 1, 0, REQUEST_STEPS_MAX, &step, NULL) < 0)
        return NULL;
    memcpy(id, ref, (size_t)(at - ref));
    id[at - ref] = '\0';
    return snapshots_of_step(&s->snapshots, id, (uint32_t)step);
}

struct snapshot *api_snapshots_named(struct server *s, const char *user, const char *ref,
                                     const char *field, struct api_error *error) {
    bool step = strncmp(ref, "run_", 4) == 0;
    struct snapshot *snap =
        step ? api_snapshots_of_step(s, ref) : snapshots_find(&s->snapshots, ref);
    if (snap == NULL && snapshots_lost_has(&s->snapshots.lost, user, ref)) {
        api_error_set(error, 410, "gone", field,
                      "The snapshot is gone: the runner that had it died.");
        return NULL;
    }
    if (snap == NULL || snap->step != step || strcmp(snap->owner, user) != 0) {
        api_error_set(error, 404, "not_found", field,
                      step ? "There is no such run, or it has kept no such step."
                           : "There is no such snapshot.");
        return NULL;
    }
    if (!snap->settled) {
        api_error_set(error, 503, "no_runner", field,
                      "The runner that has the snapshot is being looked for. Try again.");
        return NULL;
    }
    return snap;
}

/* Making one. */

struct api_snapshots_maker {
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    struct snapshot info;
};

static void api_snapshots_made(void *arg, struct sandbox *sb, const struct wire_done *done) {
    struct api_snapshots_maker *a = arg;
    struct api_error error = {0};
    struct snapshots *all = &a->server->snapshots;
    if (a->req != NULL)
        a->req->gone = NULL;
    if (done == NULL || done->code != 0) {
        snapshots_give_up(all);
        if (a->req != NULL)
            api_sandboxes_undone(a->req, sb, done);
    } else if (a->req == NULL) {
        /* Nobody has learnt its name. */
        snapshots_give_up(all);
        if (sandbox_link(sb) != NULL)
            link_drop_snapshot(sandbox_link(sb), a->info.id);
    } else {
        const struct snapshot *snap = snapshots_add(all, &a->info, done);
        if (snap != NULL) {
            http_add_header(a->req, "Location", "/v1/snapshots/%s", snap->id);
            api_snapshots_reply(a->req, 201, snap);
        } else {
            api_error_memory(&error);
            http_reply_error(a->req, &error);
        }
    }
    free(a);
}

static void api_snapshots_maker_gone(struct http_req *req) {
    struct api_snapshots_maker *a = req->owner;
    a->req = NULL;
}

static int api_snapshots_begin(struct server *s, const struct http_req *req, struct snapshot *info,
                               struct api_error *error) {
    str_copy(info->owner, sizeof(info->owner), req->user_name);
    if (req->token != NULL)
        str_copy(info->token, sizeof(info->token), req->token->id);
    return snapshots_begin(&s->snapshots, info, error);
}

void api_snapshots_create(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    struct err err;
    err_clear(&err);
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb == NULL)
        return;
    struct api_snapshots_maker *a = calloc(1, sizeof(*a));
    const char *body = req->body != NULL ? req->body : "";
    if (a == NULL)
        api_error_memory(&error);
    if (a == NULL || sandbox_request_snapshot(body, req->body_len, a->info.name, &error) < 0 ||
        api_snapshots_begin(s, req, &a->info, &error) < 0) {
        free(a);
        http_reply_error(req, &error);
        return;
    }
    const struct sandbox_spec *spec = sandbox_spec(sb);
    a->server = s;
    a->req = req;
    str_copy(a->info.shard, sizeof(a->info.shard), sandbox_shard(sb));
    str_copy(a->info.image, sizeof(a->info.image), spec->image);
    str_copy(a->info.policy, sizeof(a->info.policy), spec->policy.name);
    str_copy(a->info.source, sizeof(a->info.source), sandbox_id(sb));
    a->info.disk = spec->disk;
    if (sandbox_op_snapshot(sb, a->info.id, api_snapshots_made, a, &err) == NULL) {
        snapshots_give_up(&s->snapshots);
        free(a);
        api_sandboxes_refuse(req, &err);
        return;
    }
    req->owner = a;
    req->gone = api_snapshots_maker_gone;
}

/* Looking and deleting. */

void api_snapshots_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    const struct snapshot *snap =
        api_snapshots_named(s, req->user_name, args->value[0], NULL, &error);
    if (snap == NULL)
        http_reply_error(req, &error);
    else
        api_snapshots_reply(req, 200, snap);
}

void api_snapshots_delete(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    struct http_body body = {.data = "", .len = 0};
    struct snapshot *snap = api_snapshots_named(s, req->user_name, args->value[0], NULL, &error);
    if (snap == NULL) {
        http_reply_error(req, &error);
        return;
    }
    snapshots_remove(&s->snapshots, snap);
    http_reply(req, 204, "application/json", &body);
}

static void api_snapshots_write_list(struct json_out *j, const struct snapshot *from,
                                     const char *owner, uint64_t limit) {
    const struct snapshot *last = NULL, *snap = from;
    uint64_t n = 0;
    json_out_open(j, NULL, '{');
    json_out_open(j, "snapshots", '[');
    for (; snap != NULL; snap = snap->older) {
        if (snap->step || !snap->settled || strcmp(snap->owner, owner) != 0)
            continue;
        if (n++ == limit)
            break;
        snapshots_write_json(j, NULL, snap);
        last = snap;
    }
    json_out_close(j, ']');
    if (snap == NULL || last == NULL)
        json_out_null(j, "next");
    else
        json_out_str(j, "next", last->id);
    json_out_close(j, '}');
}

void api_snapshots_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    uint64_t limit = API_SNAPSHOTS_LIST_DEFAULT;
    const char *after = http_query(req, "after");
    const struct snapshot *from = s->snapshots.newest;
    if (route_query_u64(req, "limit", 1, API_SNAPSHOTS_LIST_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (after != NULL && after[0] != '\0') {
        const struct snapshot *snap = api_snapshots_named(s, req->user_name, after, NULL, &error);
        if (snap == NULL) {
            http_reply_error(req, &error);
            return;
        }
        from = snap->older;
    }
    struct buf out;
    struct json_out j;
    buf_init(&out, API_SNAPSHOTS_BYTES);
    json_out_init(&j, &out);
    api_snapshots_write_list(&j, from, req->user_name, limit);
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}
