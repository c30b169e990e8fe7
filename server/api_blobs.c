#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "api_range.h"
#include "blobs.h"
#include "fd.h"
#include "json_out.h"
#include "sync_request.h"

static void api_blobs_no_blob(struct http_req *req) {
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL, "There is no such blob.");
    http_reply_error(req, &error);
}

/* PUT */

struct api_blobs_put {
    struct server *server;
    struct http_req *req;
    struct blobs_put *put;
    uint64_t size;
    unsigned char sha256[BLOBS_SHA256_SIZE];
};

static void api_blobs_put_free(struct api_blobs_put *p) {
    blobs_put_abort(p->put);
    free(p);
}

static void api_blobs_gone(struct http_req *req) {
    api_blobs_put_free(req->owner);
}

static void api_blobs_say(struct api_error *error, const struct err *err) {
    if (err->kind == ERR_INVALID)
        api_error_set(error, 422, "digest_mismatch", NULL,
                      "Nothing was kept: %s than the one in the path.", err->text);
    else if (err->kind == ERR_LIMIT && err->code == EFBIG)
        api_error_set(error, 413, "too_large", NULL, "It is too large: %s.", err->text);
    else if (err->kind == ERR_LIMIT)
        api_error_set(error, 429, "quota_exceeded", NULL, "There is no room: %s.", err->text);
    else if (err->code == ENOSPC || err->code == EDQUOT)
        api_error_set(error, 507, "no_space", NULL, "The server's disk is full.");
    else if (err->code == ENOMEM)
        api_error_memory(error);
    else
        api_error_set(error, 500, "internal", NULL, "The blob could not be kept: %s.", err->text);
}

static void api_blobs_refuse(struct api_blobs_put *p, const struct err *err) {
    struct api_error error = {0};
    api_blobs_say(&error, err);
    p->req->gone = NULL;
    http_reply_error(p->req, &error);
    api_blobs_put_free(p);
}

static size_t api_blobs_piece(void *arg, const char *data, size_t len) {
    struct api_blobs_put *p = arg;
    struct err err;
    err_clear(&err);
    p->size += len;
    if (blobs_put_write(p->put, data, len, &err) < 0)
        api_blobs_refuse(p, &err);
    return len;
}

static void api_blobs_whole(void *arg) {
    struct api_blobs_put *p = arg;
    struct http_req *req = p->req;
    struct blobs_put *put = p->put;
    char hex[2 * BLOBS_SHA256_SIZE + 1];
    struct buf out;
    struct json_out j;
    struct err err;
    bool had = false;
    err_clear(&err);
    p->put = NULL;
    if (blobs_put_finish(put, p->sha256, NULL, &had, &err) < 0) {
        api_blobs_refuse(p, &err);
        return;
    }
    req->gone = NULL;
    sync_sha256_text(p->sha256, hex);
    buf_init(&out, 256);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "sha256", hex);
    json_out_u64(&j, "size", p->size);
    json_out_close(&j, '}');
    api_reply_buf(req, had ? 200 : 201, "application/json", &out, json_out_end(&j, NULL));
    api_blobs_put_free(p);
}

static const struct http_upload api_blobs_upload = {.piece = api_blobs_piece,
                                                    .whole = api_blobs_whole};

void api_blobs_put(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    struct err err;
    struct api_blobs_put *p = calloc(1, sizeof(*p));
    err_clear(&err);
    if (p == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    p->server = s;
    p->req = req;
    if (sync_sha256_parse(args->value[0], strlen(args->value[0]), p->sha256) < 0) {
        api_error_set(&error, 400, "invalid_value", NULL,
                      "A blob is named by 64 hexadecimal digits: the SHA-256 of its bytes.");
        http_reply_error(req, &error);
        free(p);
        return;
    }
    p->put = blobs_put_start(s->blobs, req->user_name, req->length, &err);
    if (p->put == NULL) {
        api_blobs_refuse(p, &err);
        return;
    }
    req->owner = p;
    req->gone = api_blobs_gone;
    http_take_upload(req, &api_blobs_upload, p);
}

/* GET */

struct api_blobs_get {
    int fd;
    uint64_t at, end;
};

static ssize_t api_blobs_read(void *arg, char *data, size_t size) {
    struct api_blobs_get *g = arg;
    uint64_t left = g->end - g->at;
    size_t want = left < size ? (size_t)left : size;
    ssize_t n;
    if (want == 0)
        return -1;
    do
        n = pread(g->fd, data, want, (off_t)g->at);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return -2; /* what was announced cannot be sent */
    g->at += (uint64_t)n;
    return n;
}

static void api_blobs_done(void *arg) {
    struct api_blobs_get *g = arg;
    fd_close(&g->fd);
    free(g);
}

static const struct http_stream api_blobs_stream = {.read = api_blobs_read, .done = api_blobs_done};

static void api_blobs_send(struct http_req *req, struct api_blobs_get *g, uint64_t size) {
    struct api_range range;
    if (api_range_begin(req, size, "of the blob", &range) < 0) {
        api_blobs_done(g);
        return;
    }
    g->at = range.at;
    g->end = range.end;
    api_range_reply(req, &range, &api_blobs_stream, g);
}

void api_blobs_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    unsigned char sha256[BLOBS_SHA256_SIZE];
    uint64_t size = 0;
    if (sync_sha256_parse(args->value[0], strlen(args->value[0]), sha256) < 0) {
        api_blobs_no_blob(req);
        return;
    }
    struct api_blobs_get *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    g->fd = blobs_read(s->blobs, req->user_name, sha256, &size, NULL);
    if (g->fd < 0) {
        free(g);
        api_blobs_no_blob(req);
        return;
    }
    api_blobs_send(req, g, size);
}
