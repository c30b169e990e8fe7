#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "json_out.h"
#include "sandbox.h"
#include "sync.h"
#include "text.h"

/* 200,000 entries with long names, twice over. */
#define API_SYNC_ANSWER_MAX ((size_t)512 * 1024 * 1024)

/* A request for a transfer. */
struct api_sync {
    struct work_job job; /* decoding, first: a job is its request */
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    char id[SANDBOX_ID_SIZE];
    char *body;
    size_t len;
    struct http_hold hold; /* of the body, which the request keeps */
    struct sync_request request;
    bool is_sync, contents;
    char root[FILEOP_PATH_MAX + 1];
    struct api_error error;
    int rc;
    struct buf out;
};

static void api_sync_gone(struct http_req *req) {
    struct api_sync *a = req->owner;
    a->req = NULL;
}

static struct api_sync *api_sync_new(struct server *s, struct http_req *req,
                                     const struct route_args *args) {
    struct api_error error = {0};
    struct api_sync *a = calloc(1, sizeof(*a));
    if (a == NULL || strlen(args->value[0]) >= sizeof(a->id)) {
        free(a);
        api_error_memory(&error);
        http_reply_error(req, &error);
        return NULL;
    }
    a->server = s;
    a->req = req;
    memcpy(a->id, args->value[0], strlen(args->value[0]) + 1);
    req->owner = a;
    req->gone = api_sync_gone;
    return a;
}

static void api_sync_answer(struct api_sync *a, const struct api_error *error, int rc) {
    if (a->req != NULL) {
        a->req->gone = NULL;
        if (error != NULL)
            http_reply_error(a->req, error);
        else
            api_reply_buf(a->req, 200, "application/json", &a->out, rc);
    }
    buf_done(&a->out);
    http_hold_end(&a->hold);
    free(a);
}

/* sync */

static void api_sync_write(const struct sync_result *r, struct json_out *j) {
    char hex[2 * SYNC_SHA256_SIZE + 1];
    json_out_open(j, NULL, '{');
    json_out_open(j, "missing", '[');
    for (size_t i = 0; i < r->missing_count; i++) {
        sync_sha256_text(r->missing[i].sha256, hex);
        json_out_str(j, NULL, hex);
    }
    json_out_close(j, ']');
    json_out_bool(j, "applied", r->applied);
    if (r->applied) {
        json_out_u64(j, "created", r->created);
        json_out_u64(j, "modified", r->modified);
        json_out_u64(j, "deleted", r->deleted);
        json_out_u64(j, "unchanged", r->unchanged);
    }
    json_out_close(j, '}');
}

/* A name, as text if it is. `keys` are the two names that it may have. */
static void api_sync_name(struct json_out *j, const char *const keys[2], const char *name,
                          size_t len) {
    bool text = text_is_utf8(name, len);
    json_out_raw(j, keys[text ? 0 : 1]);
    if (j->failed)
        return;
    if (text) {
        j->failed = text_append_json(j->buf, name, len, &j->err) < 0;
        return;
    }
    j->failed = buf_puts(j->buf, "\"", &j->err) < 0 ||
                text_base64_encode(name, len, j->buf, &j->err) < 0 ||
                buf_puts(j->buf, "\"", &j->err) < 0;
}

static void api_sync_file(struct json_out *j, const struct sync_node *n) {
    char hex[2 * SYNC_SHA256_SIZE + 1];
    if (n->sha256 == NULL) {
        json_out_u64(j, "size", n->seen->size);
        json_out_null(j, "sha256");
        json_out_str(j, "error",
                     fileop_code_name(n->failed != FILEOP_OK ? n->failed : FILEOP_CHANGED));
        return;
    }
    json_out_u64(j, "size", n->stamp.size);
    sync_sha256_text(n->sha256, hex);
    json_out_str(j, "sha256", hex);
    if (n->absent)
        json_out_bool(j, "stored", false);
}

static void api_sync_entry(struct json_out *j, const struct sync_node *n) {
    static const char *const changes[] = {"", "created", "modified", "deleted"};
    static const char *const paths[2] = {"path", "path_base64"};
    static const char *const targets[2] = {"target", "target_base64"};
    size_t len;
    const char *path = sync_node_path(n, &len);
    bool deleted = n->change == SYNC_DELETED;
    const char *kind = fileop_kind_name(deleted ? n->row->kind : n->seen->kind);
    json_out_open(j, NULL, '{');
    api_sync_name(j, paths, path, len);
    json_out_str(j, "change", changes[n->change]);
    json_out_str(j, "type", kind != NULL ? kind : "other");
    if (!deleted && n->seen->kind != FILEOP_SYMLINK) {
        char mode[8];
        snprintf(mode, sizeof(mode), "%04o", n->seen->mode & 0777u);
        json_out_str(j, "mode", mode);
    }
    if (!deleted && n->seen->kind == FILEOP_SYMLINK)
        api_sync_name(j, targets, n->seen->target, n->seen->target_len);
    if (!deleted && n->seen->kind == FILEOP_FILE)
        api_sync_file(j, n);
    json_out_close(j, '}');
}

static void api_sync_changes_write(const struct sync_result *r, const char *root,
                                   struct json_out *j) {
    json_out_open(j, NULL, '{');
    json_out_str(j, "root", root);
    json_out_open(j, "entries", '[');
    for (size_t i = 0; i < r->plan->count; i++)
        if (r->plan->nodes[i].change != SYNC_NO_CHANGE)
            api_sync_entry(j, &r->plan->nodes[i]);
    json_out_close(j, ']');
    json_out_u64(j, "created", r->created);
    json_out_u64(j, "modified", r->modified);
    json_out_u64(j, "deleted", r->deleted);
    json_out_close(j, '}');
}

/* On a worker. */
static void api_sync_encode(void *arg, const struct sync_result *result) {
    struct api_sync *a = arg;
    struct json_out j;
    json_out_init(&j, &a->out);
    if (a->is_sync)
        api_sync_write(result, &j);
    else
        api_sync_changes_write(result, a->root, &j);
    a->rc = json_out_end(&j, NULL);
}

static void api_sync_done(void *arg, const struct api_error *error) {
    struct api_sync *a = arg;
    api_sync_answer(a, error, a->rc);
}

static void api_sync_begin(struct api_sync *a) {
    struct server *s = a->server;
    struct sync_means means = {.work = s->work, .blobs = s->blobs};
    struct sync_asker asker = {.encode = api_sync_encode, .done = api_sync_done, .arg = a};
    /* It may have gone while the body came, or was decoded. */
    a->req->gone = NULL;
    struct sandbox *sb = sandbox_mine(s, a->req, a->id);
    int rc;
    if (sb == NULL) { /* it answered */
        sync_request_done(&a->request);
        http_hold_end(&a->hold);
        free(a);
        return;
    }
    a->req->gone = api_sync_gone;
    buf_init(&a->out, API_SYNC_ANSWER_MAX);
    if (a->is_sync)
        rc = sync_start(&means, sb, &a->request, &asker, &a->error);
    else
        rc = sync_changes_start(&means, sb, a->root, a->contents, &asker, &a->error);
    if (rc < 0)
        api_sync_answer(a, &a->error, 0);
}

static void api_sync_decode(struct work_job *job) {
    struct api_sync *a = (struct api_sync *)(void *)job;
    a->rc = sync_request_decode(a->body, a->len, &a->request, &a->error);
    if (a->rc == 0)
        a->body = NULL; /* it is the request's now */
}

static void api_sync_decoded(struct work_job *job) {
    struct api_sync *a = (struct api_sync *)(void *)job;
    free(a->body);
    a->body = NULL;
    if (a->rc < 0) {
        api_sync_answer(a, &a->error, 0);
    } else if (a->req == NULL) { /* nobody was told anything, so nothing is owed */
        sync_request_done(&a->request);
        http_hold_end(&a->hold);
        free(a);
    } else {
        api_sync_begin(a);
    }
}

void api_sync_post(struct server *s, struct http_req *req, const struct route_args *args) {
    if (sandbox_mine(s, req, args->value[0]) == NULL)
        return;
    struct api_sync *a = api_sync_new(s, req, args);
    if (a == NULL)
        return;
    a->is_sync = true;
    a->body = http_take_body(req, &a->len, &a->hold);
    if (a->body == NULL)
        a->body = calloc(1, 1);
    if (a->body == NULL) {
        api_error_memory(&a->error);
        api_sync_answer(a, &a->error, 0);
        return;
    }
    a->job = (struct work_job){.run = api_sync_decode, .done = api_sync_decoded};
    if (a->len > SERVER_INLINE_MAX) {
        work_add(s->work, &a->job);
        return;
    }
    api_sync_decode(&a->job);
    api_sync_decoded(&a->job);
}

void api_sync_changes(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    if (sandbox_mine(s, req, args->value[0]) == NULL)
        return;
    char root[FILEOP_PATH_MAX + 1] = "";
    bool contents = true;
    if (route_query_text(req, "root", root, sizeof(root), &error) < 0 ||
        route_query_bool(req, "contents", &contents, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (root[0] == '\0')
        snprintf(root, sizeof(root), "/workspace");
    if (!sync_root_ok(root, strlen(root))) {
        api_error_set(&error, 400, "invalid_value", "/root",
                      "root must be /workspace, /home/user, /tmp, /var/tmp or a directory below.");
        http_reply_error(req, &error);
        return;
    }
    struct api_sync *a = api_sync_new(s, req, args);
    if (a == NULL)
        return;
    a->contents = contents;
    memcpy(a->root, root, sizeof(root));
    api_sync_begin(a);
}
