#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "api_files.h"
#include "fd.h"

/* What the pipe of a body is widened to: fewer wake-ups per byte. */
#define API_ARCHIVE_PUT_PIPE (1024 * 1024)

/* An archive on its way into a sandbox: the body goes through a pipe to a process, which reads it
 * as tar and writes records into the stdin of the operation. It is answered when both are over. */
struct api_archive_put {
    struct server *server;
    struct http_req *req;   /* NULL = the client is gone */
    struct fileop_run *run; /* NULL = over */
    bool reading;           /* the process is at work */
    bool waits;             /* the pipe is full */
    int body;               /* writing end of the pipe, not blocking */
    struct loop_source room;
    struct archives_job job;
    struct fileop_result result;
    bool failed_first; /* the operation, while the process was still at work */
    char path[FILE_PATH_SIZE];
    char bad[FILE_PATH_SIZE]; /* the entry that could not be made */
    bool ended;               /* the process has ended without a report */
    struct tar_read_result tar;
};

/* The answer. */

static void api_archive_put_free(struct api_archive_put *p) {
    loop_del(p->server->loop, &p->room);
    archives_forget(&p->job);
    fd_close(&p->body);
    free(p);
}

static void api_archive_put_refused(struct api_archive_put *p, struct api_error *error) {
    const struct tar_read_result *t = &p->tar;
    static const struct {
        int status;
        const char *code;
    } rows[] = {[TAR_READ_DAMAGED] = {400, "bad_archive"},
                [TAR_READ_REFUSED] = {422, "bad_entry"},
                [TAR_READ_TOO_LARGE] = {413, "too_large"},
                [TAR_READ_MEMORY] = {500, "internal"}};
    if (t->entry[0] != '\0')
        api_error_set(error, rows[t->code].status, rows[t->code].code, NULL,
                      "The entry %s of the archive is not taken: %s.", t->entry, t->why);
    else
        api_error_set(error, rows[t->code].status, rows[t->code].code, NULL,
                      "The archive cannot be read as tar: %s.", t->why);
}

static void api_archive_put_answer(struct api_archive_put *p) {
    struct api_error error = {0};
    struct json_out j;
    struct buf out;
    p->req->gone = NULL;
    if (p->ended && !p->failed_first) {
        api_error_set(&error, 500, "internal", NULL,
                      "The archive was not unpacked: the process that reads it ended before its "
                      "time.");
        http_reply_error(p->req, &error);
    } else if (p->tar.code != TAR_READ_OK && p->tar.code != TAR_READ_CLOSED && !p->failed_first) {
        api_archive_put_refused(p, &error);
        http_reply_error(p->req, &error);
    } else if (p->result.code != FILEOP_OK || p->tar.code != TAR_READ_OK) {
        if (p->result.code == FILEOP_OK)
            fileop_status_set(&p->result, FILEOP_IO, 0, p->path);
        else if (p->bad[0] != '\0')
            fileop_status_set(&p->result, p->result.code, p->result.sys, p->bad);
        if (p->result.code == FILEOP_NOT_FOUND && p->bad[0] != '\0')
            api_error_set(&error, 422, "bad_entry", NULL,
                          "An entry of the archive is a link to what is not there. %s",
                          p->result.message);
        else
            fileop_status_error(&p->result, &error);
        http_reply_error(p->req, &error);
    } else {
        buf_init(&out, 256);
        json_out_init(&j, &out);
        json_out_open(&j, NULL, '{');
        json_out_u64(&j, "entries", p->tar.entries);
        json_out_u64(&j, "bytes", p->tar.bytes);
        json_out_close(&j, '}');
        api_reply_buf(p->req, 200, "application/json", &out, json_out_end(&j, NULL));
    }
}

static void api_archive_put_settle(struct api_archive_put *p) {
    if (p->run != NULL || p->reading)
        return;
    if (p->req != NULL)
        api_archive_put_answer(p);
    api_archive_put_free(p);
}

static void api_archive_put_close_body(struct api_archive_put *p) {
    loop_del(p->server->loop, &p->room);
    fd_close(&p->body);
}

/* The process is done. */
static void api_archive_put_over(void *arg, const struct tar_apart_report *report) {
    struct api_archive_put *p = arg;
    p->reading = false;
    p->ended = report == NULL;
    if (report != NULL)
        p->tar = report->unpacked;
    else
        p->tar.code = TAR_READ_CLOSED;
    api_archive_put_close_body(p);
    /* What it has sent so far would be made; no more is to come, and no END. */
    if ((p->ended || (p->tar.code != TAR_READ_OK && p->tar.code != TAR_READ_CLOSED)) &&
        p->run != NULL)
        fileop_run_cancel(p->run);
    api_archive_put_settle(p);
}

/* The operation. */

static int api_archive_put_item(void *arg, const struct fileop_item *item) {
    struct api_archive_put *p = arg;
    if (item->rec.type == FILEOP_ERROR)
        memcpy(p->bad, item->path, item->rec.path_len + 1);
    return 0;
}

static void api_archive_put_done(void *arg, const struct fileop_result *result) {
    struct api_archive_put *p = arg;
    p->run = NULL;
    p->result = *result;
    /* Records that are cut short are the process's doing. */
    p->failed_first = p->reading && result->code != FILEOP_OK && result->code != FILEOP_INVALID;
    /* The process meets a closed pipe, or the end of what it reads. */
    if (result->code != FILEOP_OK)
        api_archive_put_close_body(p);
    api_archive_put_settle(p);
}

static const struct fileop_run_ops api_archive_put_ops = {.item = api_archive_put_item,
                                                          .done = api_archive_put_done};

/* The body. */

static void api_archive_put_room(void *arg, uint32_t events) {
    struct api_archive_put *p = arg;
    (void)events;
    loop_del(p->server->loop, &p->room);
    p->waits = false;
    if (p->req != NULL)
        http_wake(p->req);
}

static size_t api_archive_put_piece(void *arg, const char *data, size_t len) {
    struct api_archive_put *p = arg;
    ssize_t n;
    if (p->waits || p->body < 0)
        return 0;
    do
        n = write(p->body, data, len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return len;
    if (n < 0 && errno != EAGAIN) {
        api_archive_put_close_body(p); /* the process has given up, and says why */
        return 0;
    }
    p->waits =
        loop_add(p->server->loop, &p->room, p->body, EPOLLOUT, api_archive_put_room, p, NULL) == 0;
    return n > 0 ? (size_t)n : 0;
}

static void api_archive_put_whole(void *arg) {
    api_archive_put_close_body(arg);
}

static const struct http_upload api_archive_put_upload = {.piece = api_archive_put_piece,
                                                          .whole = api_archive_put_whole};

static void api_archive_put_gone(struct http_req *req) {
    struct api_archive_put *p = req->owner;
    p->req = NULL;
    /* First: the end of a broken body must not be taken for the end of the archive. */
    if (p->run != NULL)
        fileop_run_cancel(p->run);
    api_archive_put_close_body(p);
}

/* Starting. */

/* -> the end from which the body is read. */
static int api_archive_put_open(struct api_archive_put *p) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    p->body = ends[1];
    (void)fcntl(p->body, F_SETPIPE_SZ, API_ARCHIVE_PUT_PIPE); /* only a matter of speed */
    if (fcntl(p->body, F_SETFL, O_NONBLOCK) == 0)
        return ends[0];
    fd_close(&ends[0]);
    return -1;
}

static int api_archive_put_begin(struct api_archive_put *p, struct sandbox *sb, int *in) {
    const struct limits *limits = &sandbox_limits(sb)->values;
    struct err err = {0};
    struct tar_apart_job job = {.what = TAR_APART_UNPACK,
                                .max_bytes = limits->v[LIMIT_DISK_BYTES],
                                .max_entries = limits->v[LIMIT_INODES]};
    int out = fileop_run_take_stdin(p->run);
    if (out < 0)
        return -1;
    (void)fcntl(out, F_SETPIPE_SZ, API_ARCHIVE_PUT_PIPE);
    p->job.over = api_archive_put_over;
    p->job.arg = p;
    if (archives_begin(&p->server->archives, &p->job, &job, fd_steal(in), out, &err) < 0) {
        log_err(&p->server->log, LOG_ERROR, "archive_not_begun", &err);
        return -1;
    }
    p->reading = true;
    return 0;
}

static struct api_archive_put *api_archive_put_new(struct server *s, struct http_req *req,
                                                   const char *path) {
    struct api_archive_put *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->server = s;
    p->req = req;
    p->body = p->room.fd = -1;
    memcpy(p->path, path, strlen(path) + 1);
    return p;
}

void api_archive_put(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE];
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL || !api_files_archive_room(s, req))
        return;
    struct api_archive_put *p = api_archive_put_new(s, req, path);
    fd_cleanup int in = p != NULL ? api_archive_put_open(p) : -1;
    if (in < 0) {
        if (p != NULL)
            api_archive_put_free(p);
        api_files_no_memory(req);
        return;
    }
    const char *argv[] = {"unpack", path, NULL};
    p->run = api_files_start(req, sb, argv, true, &api_archive_put_ops, p);
    if (p->run == NULL) {
        api_archive_put_free(p);
        return;
    }
    req->owner = p;
    req->gone = api_archive_put_gone;
    if (api_archive_put_begin(p, sb, &in) < 0) {
        /* done() answers */
        p->tar.code = TAR_READ_CLOSED;
        fileop_run_cancel(p->run);
    }
    http_take_upload(req, &api_archive_put_upload, p);
}
