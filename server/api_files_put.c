#include <stdlib.h>
#include <string.h>

#include "api_files.h"
#include "file_json.h"

/* An upload: its body goes to the operation as it arrives. The file takes its name when all of it
 * is there. */
struct api_files_put {
    struct http_req *req; /* NULL = the client is gone */
    struct fileop_run *run;
    bool waits;         /* the operation's pipe is full */
    uint64_t length;    /* of the body, not announced yet; UINT64_MAX = unknown */
    uint32_t announced; /* bytes of the current record that are still to come */
    bool whole;         /* the body is in */
    bool made;          /* `entry` is there */
    struct fileop_record entry;
    char path[FILE_PATH_SIZE];
};

/* Announces a record of contents: as long as possible, since long ones are moved by the kernel. A
 * body of unknown length has one for each piece. */
static int api_files_put_announce(struct api_files_put *p, size_t len) {
    uint64_t left = p->length == UINT64_MAX ? len : p->length;
    struct fileop_record rec = {
        .type = FILEOP_DATA, .data_len = left < FILEOP_DATA_MAX ? (uint32_t)left : FILEOP_DATA_MAX};
    if (p->length != UINT64_MAX)
        p->length -= rec.data_len;
    p->announced = rec.data_len;
    return fileop_run_put(p->run, &rec, NULL, NULL, NULL);
}

/* Takes what the pipe takes. When the operation is over, nothing: done() says why. */
static size_t api_files_put_piece(void *arg, const char *data, size_t len) {
    struct api_files_put *p = arg;
    size_t taken = 0;
    while (taken < len && !p->waits) {
        if (p->announced == 0 && api_files_put_announce(p, len - taken) <= 0)
            p->waits = true;
        size_t left = len - taken < p->announced ? len - taken : p->announced;
        ssize_t n = p->waits ? 0 : fileop_run_put_bytes(p->run, data + taken, left);
        p->waits = p->waits || n < (ssize_t)left;
        taken += n > 0 ? (size_t)n : 0;
        p->announced -= n > 0 ? (uint32_t)n : 0;
    }
    return taken;
}

static void api_files_put_whole(void *arg) {
    struct api_files_put *p = arg;
    p->whole = true;
    fileop_run_finish(p->run);
}

static const struct http_upload api_files_put_upload = {.piece = api_files_put_piece,
                                                        .whole = api_files_put_whole};

static void api_files_put_writable(void *arg) {
    struct api_files_put *p = arg;
    p->waits = false;
    if (p->req != NULL)
        http_wake(p->req);
}

static int api_files_put_item(void *arg, const struct fileop_item *item) {
    struct api_files_put *p = arg;
    if (item->rec.type == FILEOP_ENTRY) {
        p->entry = item->rec;
        p->made = true;
    }
    return 0;
}

static void api_files_put_answer(struct api_files_put *p) {
    bool created = (p->entry.flags & FILEOP_CREATED) != 0;
    struct json_out j;
    struct buf out;
    buf_init(&out, 8 * (size_t)FILEOP_PATH_MAX);
    json_out_init(&j, &out);
    file_json_entry(&j, &p->entry, p->path, "");
    api_reply_buf(p->req, created ? 201 : 200, "application/json", &out, json_out_end(&j, NULL));
}

static void api_files_put_done(void *arg, const struct fileop_result *result) {
    struct api_files_put *p = arg;
    struct fileop_result failed = *result;
    if (p->req != NULL) {
        p->req->gone = NULL;
        if (failed.code == FILEOP_OK && (!p->whole || !p->made))
            fileop_status_set(&failed, FILEOP_IO, 0, p->path);
        if (failed.code != FILEOP_OK)
            api_files_failed(p->req, &failed);
        else
            api_files_put_answer(p);
    }
    free(p);
}

static const struct fileop_run_ops api_files_put_ops = {
    .item = api_files_put_item, .writable = api_files_put_writable, .done = api_files_put_done};

static void api_files_put_gone(struct http_req *req) {
    struct api_files_put *p = req->owner;
    p->req = NULL;
    /* Once all of it is there it may as well be kept: the answer was lost, not the file. */
    if (!p->whole)
        fileop_run_cancel(p->run);
}

/* What is announced to be larger than the sandbox's disk need not be sent. */
static int api_files_put_fits(struct http_req *req, const struct sandbox *sb, const char *path) {
    struct fileop_result full = {0};
    if (req->length == UINT64_MAX || req->length <= sandbox_limits(sb)->values.v[LIMIT_DISK_BYTES])
        return 0;
    fileop_status_set(&full, FILEOP_NO_SPACE, 0, path);
    api_files_failed(req, &full);
    return -1;
}

void api_files_put(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE], mode[8] = "-1";
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL || api_files_mode(req, "mode", mode) < 0 ||
        api_files_put_fits(req, sb, path) < 0)
        return;
    struct api_files_put *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        api_files_no_memory(req);
        return;
    }
    p->req = req;
    p->length = req->length;
    memcpy(p->path, path, sizeof(path));
    const char *argv[] = {"write", path, mode, "1", NULL};
    p->run = api_files_start(req, sb, argv, true, &api_files_put_ops, p);
    if (p->run == NULL) {
        free(p);
        return;
    }
    req->owner = p;
    req->gone = api_files_put_gone;
    http_take_upload(req, &api_files_put_upload, p);
}
