#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api_files.h"
#include "fd.h"
#include "tar_read.h"

/* Archives that are unpacked at once, in the whole server: each has a thread. */
#define API_ARCHIVE_PUT_MAX 16u
#define API_ARCHIVE_PUT_STACK ((size_t)512 * 1024)

/* An archive on its way into a sandbox: the body goes through a pipe to a thread, which reads it as
 * tar and writes records into the stdin of the operation. It is answered when both are over. */
struct api_archive_put {
    struct server *server;
    struct http_req *req;   /* NULL = the client is gone */
    struct fileop_run *run; /* NULL = over */
    bool reading;           /* the thread is at work; the fields that it uses are its own */
    bool waits;             /* the pipe is full */
    int body;               /* writing end of the pipe, not blocking */
    struct loop_source room;
    int over; /* eventfd: the thread is done */
    struct loop_source source;
    struct fileop_result result;
    bool failed_first; /* the operation, while the thread was still at work */
    char path[FILE_PATH_SIZE];
    char bad[FILE_PATH_SIZE]; /* the entry that could not be made */

    pthread_t thread;
    int in, out;
    uint64_t max_bytes, max_entries;
    struct tar_read_result tar;
};

/* The thread. */

static void *api_archive_put_thread(void *arg) {
    struct api_archive_put *p = arg;
    uint64_t one = 1;
    tar_read_run(p->in, p->out, p->max_bytes, p->max_entries, &p->tar);
    fd_close(&p->in);
    fd_close(&p->out);
    while (write(p->over, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    return NULL;
}

/* Signals are for the loop's thread. */
static int api_archive_put_spawn(struct api_archive_put *p) {
    sigset_t all, old;
    pthread_attr_t attr;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, API_ARCHIVE_PUT_STACK);
    p->reading = pthread_create(&p->thread, &attr, api_archive_put_thread, p) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return p->reading ? 0 : -1;
}

/* The answer. */

static void api_archive_put_free(struct api_archive_put *p) {
    loop_del(p->server->loop, &p->room);
    loop_del(p->server->loop, &p->source);
    fd_close(&p->body);
    fd_close(&p->over);
    fd_close(&p->in);
    fd_close(&p->out);
    p->server->unpacking--;
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
    if (p->tar.code != TAR_READ_OK && p->tar.code != TAR_READ_CLOSED && !p->failed_first) {
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

/* The thread is done. */
static void api_archive_put_over(void *arg, uint32_t events) {
    struct api_archive_put *p = arg;
    (void)events;
    pthread_join(p->thread, NULL);
    p->reading = false;
    loop_del(p->server->loop, &p->source);
    api_archive_put_close_body(p);
    /* What it has sent so far would be made; no more is to come, and no END. */
    if (p->tar.code != TAR_READ_OK && p->tar.code != TAR_READ_CLOSED && p->run != NULL)
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
    /* Records that are cut short are the thread's doing. */
    p->failed_first = p->reading && result->code != FILEOP_OK && result->code != FILEOP_INVALID;
    /* The thread meets a closed pipe, or the end of what it reads. */
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
        api_archive_put_close_body(p); /* the thread has given up, and says why */
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

static int api_archive_put_open(struct api_archive_put *p) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    p->in = ends[0];
    p->body = ends[1];
    p->over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->over < 0 || fcntl(p->body, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return loop_add(p->server->loop, &p->source, p->over, EPOLLIN, api_archive_put_over, p, NULL);
}

static struct api_archive_put *api_archive_put_new(struct server *s, struct http_req *req,
                                                   struct sandbox *sb, const char *path) {
    const struct limits *limits = &sandbox_limits(sb)->values;
    struct api_archive_put *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->server = s;
    p->server->unpacking++;
    p->req = req;
    p->body = p->over = p->in = p->out = p->room.fd = p->source.fd = -1;
    p->max_bytes = limits->v[LIMIT_DISK_BYTES];
    p->max_entries = limits->v[LIMIT_INODES];
    memcpy(p->path, path, strlen(path) + 1);
    if (api_archive_put_open(p) == 0)
        return p;
    api_archive_put_free(p);
    return NULL;
}

void api_archive_put(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE];
    struct api_error error = {0};
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL)
        return;
    if (s->unpacking >= API_ARCHIVE_PUT_MAX) {
        api_error_set(&error, 429, "busy", NULL, "Too many archives are being unpacked.");
        http_reply_error(req, &error);
        return;
    }
    struct api_archive_put *p = api_archive_put_new(s, req, sb, path);
    if (p == NULL) {
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
    p->out = fileop_run_take_stdin(p->run);
    if (p->out < 0 || api_archive_put_spawn(p) < 0) {
        /* done() answers */
        p->tar.code = TAR_READ_CLOSED;
        fileop_run_cancel(p->run);
    }
    http_take_upload(req, &api_archive_put_upload, p);
}
