#include <stdlib.h>
#include <string.h>

#include "api_files.h"
#include "file_json.h"

/* Lines that wait for the client; when there are more, the operation is not read, and what its own
 * queue cannot hold comes as "overflow". */
#define API_FILES_WATCH_HIGH ((size_t)256 * 1024)
#define API_FILES_WATCH_MAX (API_FILES_WATCH_HIGH + (size_t)64 * 1024)

/* A stream of changes, one JSON object per line. The first line, "ready", says that from now on
 * nothing is missed. */
struct api_files_watch {
    struct http_req *req;   /* NULL = the client is gone */
    struct fileop_run *run; /* NULL = over */
    bool streaming;         /* the answer has begun; freed after its end */
    bool answered;
    bool paused;
    struct buf out;
    size_t sent;
};

static void api_files_watch_put(struct api_files_watch *w) {
    if (w->run != NULL || w->streaming)
        return;
    buf_done(&w->out);
    free(w);
}

static ssize_t api_files_watch_read(void *arg, char *data, size_t size) {
    struct api_files_watch *w = arg;
    size_t left = w->out.len - w->sent, n = left < size ? left : size;
    if (n == 0)
        return w->run != NULL ? 0 : -1;
    memcpy(data, w->out.data + w->sent, n);
    w->sent += n;
    if (w->sent < w->out.len)
        return (ssize_t)n;
    buf_clear(&w->out);
    w->sent = 0;
    if (w->paused && w->run != NULL) {
        w->paused = false;
        fileop_run_resume(w->run);
    }
    return (ssize_t)n;
}

static void api_files_watch_sent(void *arg) {
    struct api_files_watch *w = arg;
    w->req = NULL;
    w->streaming = false;
    if (w->run != NULL)
        fileop_run_cancel(w->run);
    api_files_watch_put(w);
}

static const struct http_stream api_files_watch_stream = {.read = api_files_watch_read,
                                                          .done = api_files_watch_sent};

static int api_files_watch_line(struct api_files_watch *w, const char *event,
                                const struct fileop_item *item) {
    const char *type = fileop_kind_name(item->rec.kind);
    struct json_out j;
    json_out_init(&j, &w->out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "event", event);
    file_json_name(&j, "path", "path_base64", item->path);
    if (type != NULL)
        json_out_str(&j, "type", type);
    json_out_close(&j, '}');
    if (json_out_end(&j, NULL) < 0)
        return -1;
    return buf_puts(&w->out, "\n", NULL);
}

static int api_files_watch_events(struct api_files_watch *w, const struct fileop_item *item) {
    static const struct {
        uint32_t flag;
        const char *name;
    } rows[] = {{FILEOP_CREATED, "created"},
                {FILEOP_MODIFIED, "modified"},
                {FILEOP_ATTRIBUTES, "attributes"},
                {FILEOP_DELETED, "deleted"},
                {FILEOP_OVERFLOW, "overflow"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if ((item->rec.flags & rows[i].flag) != 0 &&
            api_files_watch_line(w, rows[i].name, item) < 0)
            return -1;
    return 0;
}

static int api_files_watch_item(void *arg, const struct fileop_item *item) {
    struct api_files_watch *w = arg;
    if (w->req == NULL)
        return 0;
    if (!w->answered && item->rec.type == FILEOP_ENTRY) {
        w->answered = true;
        w->streaming = true;
        w->req->gone = NULL;
        if (api_files_watch_line(w, "ready", item) < 0)
            return -1;
        http_reply_stream(w->req, 200, "application/x-ndjson", UINT64_MAX, &api_files_watch_stream,
                          w);
        return 0;
    }
    if (item->rec.type != FILEOP_EVENT || !w->answered)
        return 0;
    if (api_files_watch_events(w, item) < 0)
        return -1;
    http_wake(w->req);
    if (w->out.len >= API_FILES_WATCH_HIGH) {
        w->paused = true;
        fileop_run_pause(w->run);
    }
    return 0;
}

static void api_files_watch_done(void *arg, const struct fileop_result *result) {
    struct api_files_watch *w = arg;
    w->run = NULL;
    if (w->req != NULL && !w->answered) {
        struct fileop_result failed = *result;
        if (failed.code == FILEOP_OK)
            fileop_status_set(&failed, FILEOP_IO, 0, "");
        w->req->gone = NULL;
        api_files_failed(w->req, &failed);
    } else if (w->req != NULL) {
        http_wake(w->req);
    }
    api_files_watch_put(w);
}

static const struct fileop_run_ops api_files_watch_ops = {.item = api_files_watch_item,
                                                          .done = api_files_watch_done};

static void api_files_watch_gone(struct http_req *req) {
    struct api_files_watch *w = req->owner;
    w->req = NULL;
    fileop_run_cancel(w->run);
}

void api_files_watch(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE];
    struct api_error error = {0};
    bool recursive = false;
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL)
        return;
    if (route_query_bool(req, "recursive", &recursive, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    struct api_files_watch *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        api_files_no_memory(req);
        return;
    }
    w->req = req;
    buf_init(&w->out, API_FILES_WATCH_MAX);
    const char *argv[] = {"watch", path, recursive ? "1" : "0", NULL};
    w->run = api_files_start(req, sb, argv, true, &api_files_watch_ops, w);
    if (w->run == NULL) {
        free(w);
        return;
    }
    req->owner = w;
    req->gone = api_files_watch_gone;
}
