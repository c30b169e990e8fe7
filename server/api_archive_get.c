#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "api_files.h"
#include "fd.h"

/* A pipe that fills is widened: fewer wake-ups per byte. */
#define API_ARCHIVE_GET_PIPE (1024 * 1024)
#define API_ARCHIVE_GET_PIPE_FULL ((size_t)64 * 1024)

/* A tree that is packed as it is sent: the operation's records go to a process, which makes a tar
 * of them, and from there to the client. */
struct api_archive_get {
    struct server *server;
    struct http_req *req;   /* NULL = the client is gone */
    struct fileop_run *run; /* NULL = over */
    struct archives_job job;
    bool packing;  /* the process is at work */
    bool reported; /* `report` is there; else it ended before its time */
    struct tar_pack_result report;
    struct fileop_result result; /* of the operation */
    int fd;                      /* the archive; -1 = that was all */
    struct loop_source source;
    bool streaming, widened;
    char path[FILE_PATH_SIZE];
};

static void api_archive_get_put(struct api_archive_get *g) {
    if (g->run != NULL || g->req != NULL || g->streaming || g->packing)
        return;
    loop_del(g->server->loop, &g->source);
    fd_close(&g->fd);
    free(g);
}

/* Nobody takes it any more. */
static void api_archive_get_stop(struct api_archive_get *g) {
    loop_del(g->server->loop, &g->source);
    fd_close(&g->fd);
    if (g->run != NULL)
        fileop_run_cancel(g->run);
}

/* The stream. */

static void api_archive_get_more(void *arg, uint32_t events) {
    struct api_archive_get *g = arg;
    (void)events;
    loop_del(g->server->loop, &g->source);
    if (g->req != NULL)
        http_wake(g->req);
}

/* The end: whole only when the process says so. An archive that is cut must not look like one. */
static ssize_t api_archive_get_end(const struct api_archive_get *g) {
    if (g->packing)
        return 0;
    return g->reported && g->report.code == TAR_PACK_OK ? -1 : -2;
}

static ssize_t api_archive_get_read(void *arg, char *data, size_t size) {
    struct api_archive_get *g = arg;
    ssize_t n;
    if (g->fd < 0)
        return api_archive_get_end(g);
    do
        n = read(g->fd, data, size);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        if (!g->widened && (size_t)n >= API_ARCHIVE_GET_PIPE_FULL) {
            g->widened = true;
            (void)fcntl(g->fd, F_SETPIPE_SZ, API_ARCHIVE_GET_PIPE); /* only a matter of speed */
        }
        return n;
    }
    if (n == 0) {
        loop_del(g->server->loop, &g->source);
        fd_close(&g->fd);
        return api_archive_get_end(g);
    }
    if (errno != EAGAIN)
        return -2;
    if (g->source.fd >= 0)
        return 0;
    return loop_add(g->server->loop, &g->source, g->fd, EPOLLIN, api_archive_get_more, g, NULL) < 0
               ? -2
               : 0;
}

static void api_archive_get_sent(void *arg) {
    struct api_archive_get *g = arg;
    g->req = NULL;
    g->streaming = false;
    api_archive_get_stop(g);
    api_archive_get_put(g);
}

static const struct http_stream api_archive_get_stream = {.read = api_archive_get_read,
                                                          .done = api_archive_get_sent};

/* The answer. */

/* Why there is no archive. */
static void api_archive_get_why(const struct api_archive_get *g, struct api_error *error) {
    struct fileop_result failed = g->result;
    if (!g->reported && !failed.gone) {
        api_error_set(error, 500, "internal", NULL, "%s",
                      "The archive was not made: the process that makes it ended before its time.");
        return;
    }
    if (g->report.code == TAR_PACK_REFUSED)
        fileop_status_set(&failed, (enum fileop_code)g->report.fileop, g->report.sys, g->path);
    else if (g->report.code == TAR_PACK_MEMORY)
        fileop_status_set(&failed, FILEOP_IO, ENOMEM, g->path);
    else if (g->report.code == TAR_PACK_BROKEN || failed.code == FILEOP_OK)
        fileop_status_set(&failed, FILEOP_IO, 0, g->path);
    fileop_status_error(&failed, error);
}

/* When nothing was sent, and both are over. */
static void api_archive_get_refuse(struct api_archive_get *g) {
    struct http_req *req = g->req;
    struct api_error error = {0};
    if (req == NULL || g->streaming || g->run != NULL || g->packing)
        return;
    if (g->reported && g->report.code == TAR_PACK_OK)
        return; /* the first bytes are about to be seen */
    api_archive_get_why(g, &error);
    g->req = NULL;
    req->gone = NULL;
    http_reply_error(req, &error);
}

/* The first bytes are there, or none will come. */
static void api_archive_get_first(void *arg, uint32_t events) {
    struct api_archive_get *g = arg;
    loop_del(g->server->loop, &g->source);
    if (g->req == NULL)
        return;
    if ((events & EPOLLIN) == 0)
        return; /* over() answers */
    g->streaming = true;
    g->req->gone = NULL; /* the stream's end says it */
    http_reply_stream(g->req, 200, "application/x-tar", UINT64_MAX, &api_archive_get_stream, g);
}

static void api_archive_get_over(void *arg, const struct tar_apart_report *report) {
    struct api_archive_get *g = arg;
    g->packing = false;
    g->reported = report != NULL;
    if (report != NULL)
        g->report = report->packed;
    /* It has stopped reading what may still be written. (Records that have ended say themselves
     * why, or their operation does.) */
    if (g->run != NULL &&
        (!g->reported || g->report.code == TAR_PACK_BROKEN || g->report.code == TAR_PACK_MEMORY))
        fileop_run_cancel(g->run);
    if (g->streaming && g->req != NULL)
        http_wake(g->req);
    api_archive_get_refuse(g);
    api_archive_get_put(g);
}

static int api_archive_get_item(void *arg, const struct fileop_item *item) {
    (void)arg;
    (void)item;
    return -1; /* they are read by the process */
}

static void api_archive_get_done(void *arg, const struct fileop_result *result) {
    struct api_archive_get *g = arg;
    g->run = NULL;
    g->result = *result;
    api_archive_get_refuse(g);
    api_archive_get_put(g);
}

static const struct fileop_run_ops api_archive_get_ops = {.item = api_archive_get_item,
                                                          .done = api_archive_get_done};

static void api_archive_get_gone(struct http_req *req) {
    struct api_archive_get *g = req->owner;
    g->req = NULL;
    api_archive_get_stop(g);
    api_archive_get_put(g);
}

/* Starting. */

static int api_archive_get_begin(struct api_archive_get *g) {
    struct tar_apart_job job = {.what = TAR_APART_PACK};
    struct err err = {0};
    int ends[2];
    fd_cleanup int records = fileop_run_take_stdout(g->run);
    if (records < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    g->fd = ends[0];
    fd_cleanup int out = ends[1];
    const char *name = strrchr(g->path, '/') + 1;
    if (fcntl(g->fd, F_SETFL, O_NONBLOCK) < 0 || strlen(name) >= sizeof(job.name))
        return -1;
    memcpy(job.name, name, strlen(name) + 1);
    g->job.over = api_archive_get_over;
    g->job.arg = g;
    if (archives_begin(&g->server->archives, &g->job, &job, fd_steal(&records), fd_steal(&out),
                       &err) < 0) {
        log_err(&g->server->log, LOG_ERROR, "archive_not_begun", &err);
        return -1;
    }
    g->packing = true;
    return loop_add(g->server->loop, &g->source, g->fd, EPOLLIN, api_archive_get_first, g, NULL);
}

static struct api_archive_get *api_archive_get_new(struct server *s, struct http_req *req,
                                                   const char *path) {
    struct api_archive_get *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->server = s;
    g->req = req;
    g->fd = g->source.fd = -1;
    memcpy(g->path, path, strlen(path) + 1);
    return g;
}

void api_archive_get(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE];
    struct api_error error = {0};
    const char *format = http_query(req, "format");
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL)
        return;
    if (format != NULL && strcmp(format, "tar") != 0) {
        api_error_set(&error, 400, "bad_query", NULL, "The only format of archives is tar.");
        http_reply_error(req, &error);
        return;
    }
    if (!api_files_archive_room(s, req))
        return;
    struct api_archive_get *g = api_archive_get_new(s, req, path);
    if (g == NULL) {
        api_files_no_memory(req);
        return;
    }
    const char *argv[] = {"pack", path, NULL};
    g->run = api_files_start(req, sb, argv, false, &api_archive_get_ops, g);
    if (g->run == NULL) {
        g->req = NULL;
        api_archive_get_put(g);
        return;
    }
    req->owner = g;
    req->gone = api_archive_get_gone;
    if (api_archive_get_begin(g) < 0) {
        /* done() answers */
        loop_del(s->loop, &g->source);
        fd_close(&g->fd);
        g->reported = true;
        g->report.code = TAR_PACK_MEMORY;
        fileop_run_cancel(g->run);
    }
}
