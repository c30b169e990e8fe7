#include <stdlib.h>
#include <string.h>

#include "api_files.h"
#include "tar_write.h"

/* What is ready to be sent; an operation that is faster than the client is not read meanwhile. */
#define API_ARCHIVE_GET_HIGH ((size_t)512 * 1024)
#define API_ARCHIVE_GET_LOW (API_ARCHIVE_GET_HIGH / 2)
#define API_ARCHIVE_GET_MAX (API_ARCHIVE_GET_HIGH + API_ARCHIVE_GET_LOW + 2 * FILEOP_PARSE_SIZE)

/* A tree that is packed as it is sent. */
struct api_archive_get {
    struct http_req *req;   /* NULL = the client is gone */
    struct fileop_run *run; /* NULL = over */
    struct tar_write *tar;
    struct buf out;
    size_t sent;
    bool answered, streaming, paused;
    bool broken; /* the archive has no end: neither must the answer */
    char path[FILE_PATH_SIZE];
};

static void api_archive_get_put(struct api_archive_get *g) {
    if (g->run != NULL || g->streaming)
        return;
    tar_write_free(g->tar);
    buf_done(&g->out);
    free(g);
}

static ssize_t api_archive_get_read(void *arg, char *data, size_t size) {
    struct api_archive_get *g = arg;
    size_t left = g->out.len - g->sent, n = left < size ? left : size;
    if (g->broken)
        return -2;
    if (n > 0)
        memcpy(data, g->out.data + g->sent, n);
    g->sent += n;
    if (g->sent == g->out.len) {
        buf_clear(&g->out);
        g->sent = 0;
    }
    if (g->paused && g->run != NULL && g->out.len - g->sent < API_ARCHIVE_GET_LOW) {
        g->paused = false;
        fileop_run_resume(g->run);
    }
    if (n > 0)
        return (ssize_t)n;
    return g->run != NULL ? 0 : -1;
}

static void api_archive_get_sent(void *arg) {
    struct api_archive_get *g = arg;
    g->req = NULL;
    g->streaming = false;
    if (g->run != NULL)
        fileop_run_cancel(g->run);
    api_archive_get_put(g);
}

static const struct http_stream api_archive_get_stream = {.read = api_archive_get_read,
                                                          .done = api_archive_get_sent};

static void api_archive_get_begin(struct api_archive_get *g) {
    g->answered = true;
    g->streaming = true;
    g->req->gone = NULL; /* the stream's end says it */
    http_reply_stream(g->req, 200, "application/x-tar", UINT64_MAX, &api_archive_get_stream, g);
}

static int api_archive_get_item(void *arg, const struct fileop_item *item) {
    struct api_archive_get *g = arg;
    if (g->req == NULL)
        return -1;
    if (g->sent >= API_ARCHIVE_GET_LOW) {
        buf_consume(&g->out, g->sent);
        g->sent = 0;
    }
    if (tar_write_item(g->tar, item, NULL) < 0) {
        g->broken = true;
        return -1;
    }
    if (!g->answered)
        api_archive_get_begin(g);
    else if (g->sent < g->out.len)
        http_wake(g->req);
    if (g->out.len - g->sent >= API_ARCHIVE_GET_HIGH) {
        g->paused = true;
        fileop_run_pause(g->run);
    }
    return 0;
}

static void api_archive_get_done(void *arg, const struct fileop_result *result) {
    struct api_archive_get *g = arg;
    struct fileop_result failed = *result;
    g->run = NULL;
    if (failed.code == FILEOP_OK && !g->broken && tar_write_end(g->tar, NULL) < 0)
        fileop_status_set(&failed, FILEOP_IO, 0, g->path);
    if (failed.code != FILEOP_OK)
        g->broken = true;
    if (g->req != NULL && g->answered) {
        http_wake(g->req);
    } else if (g->req != NULL && g->broken) {
        g->req->gone = NULL;
        api_files_failed(g->req, &failed);
    } else if (g->req != NULL) {
        api_archive_get_begin(g); /* an operation that found nothing to tell */
    }
    api_archive_get_put(g);
}

static const struct fileop_run_ops api_archive_get_ops = {.item = api_archive_get_item,
                                                          .done = api_archive_get_done};

static void api_archive_get_gone(struct http_req *req) {
    struct api_archive_get *g = req->owner;
    g->req = NULL;
    fileop_run_cancel(g->run);
}

static struct api_archive_get *api_archive_get_new(struct http_req *req, const char *path) {
    struct api_archive_get *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->req = req;
    memcpy(g->path, path, strlen(path) + 1);
    buf_init(&g->out, API_ARCHIVE_GET_MAX);
    g->tar = tar_write_new(&g->out, strrchr(g->path, '/') + 1, NULL);
    if (g->tar != NULL)
        return g;
    free(g);
    return NULL;
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
    struct api_archive_get *g = api_archive_get_new(req, path);
    if (g == NULL) {
        api_files_no_memory(req);
        return;
    }
    const char *argv[] = {"pack", path, NULL};
    g->run = api_files_start(req, sb, argv, false, &api_archive_get_ops, g);
    if (g->run == NULL) {
        api_archive_get_put(g);
        return;
    }
    req->owner = g;
    req->gone = api_archive_get_gone;
}
