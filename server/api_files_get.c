#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api_files.h"
#include "file_json.h"
#include "range.h"

/* A download. The answer begins when the operation has told what it is; from then on its contents
 * go from the operation's pipe straight into the socket, or the buffer that is sent. A part of a
 * file needs its size first, so it takes two operations. */
struct api_files_get {
    struct sandbox *sandbox;
    struct http_req *req;   /* NULL = the client is gone */
    struct fileop_run *run; /* NULL = over */
    bool head;              /* only the headers */
    bool sizing;            /* the first of two operations: stat */
    bool streaming;         /* the answer has begun; freed after its end */
    bool found, answered;
    /* The last byte is held back until the operation has said that all of them are good: of a file
     * that became shorter meanwhile, zeros come. */
    bool held, good;
    char last_byte;
    struct fileop_record entry;
    enum range_result range;
    uint64_t first, last, left;
    char path[FILE_PATH_SIZE];
};

static const struct fileop_run_ops api_files_get_ops;

static void api_files_get_put(struct api_files_get *g) {
    if (g->run == NULL && !g->streaming)
        free(g);
}

/* The stream. */

static ssize_t api_files_get_read(void *arg, char *data, size_t size) {
    struct api_files_get *g = arg;
    if (g->left == 0)
        return -1;
    if (g->held && (g->run != NULL || !g->good))
        return g->run != NULL ? 0 : -2;
    if (g->held) {
        *data = g->last_byte;
        g->left = 0;
        return 1;
    }
    if (g->run == NULL)
        return -2;
    ssize_t n = fileop_run_read(g->run, data, size < g->left ? size : (size_t)g->left);
    if (n <= 0)
        return n == 0 ? 0 : -2; /* it ended before its announced length */
    g->left -= (uint64_t)n;
    if (g->left > 0)
        return n;
    g->last_byte = data[n - 1];
    g->left = 1;
    g->held = true;
    fileop_run_skip(g->run);
    return n - 1;
}

static ssize_t api_files_get_send(void *arg, int socket, size_t size) {
    struct api_files_get *g = arg;
    ssize_t n = g->run != NULL ? fileop_run_read_to(g->run, socket, size) : -2;
    if (n == FILEOP_RUN_FULL)
        return HTTP_STREAM_FULL;
    if (n < 0)
        return -2;
    g->left -= (uint64_t)n;
    return n;
}

static void api_files_get_sent(void *arg) {
    struct api_files_get *g = arg;
    g->req = NULL;
    g->streaming = false;
    if (g->run != NULL)
        fileop_run_cancel(g->run);
    api_files_get_put(g);
}

static const struct http_stream api_files_get_stream = {
    .read = api_files_get_read, .send = api_files_get_send, .done = api_files_get_sent};

static void api_files_get_gone(struct http_req *req) {
    struct api_files_get *g = req->owner;
    g->req = NULL;
    if (g->run != NULL)
        fileop_run_cancel(g->run);
    api_files_get_put(g);
}

/* Headers. */

static void api_files_get_http_date(int64_t ns, char text[64]) {
    time_t seconds = (time_t)(file_json_ms(ns) / 1000);
    struct tm tm;
    text[0] = '\0';
    if (gmtime_r(&seconds, &tm) != NULL)
        strftime(text, 64, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

static void api_files_get_tag(const struct fileop_record *e, char tag[80]) {
    snprintf(tag, 80, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", e->inode, (uint64_t)e->ctime_ns,
             e->size);
}

static void api_files_get_headers(struct http_req *req, const struct fileop_record *e) {
    char date[64], tag[80];
    api_files_get_http_date(e->mtime_ns, date);
    api_files_get_tag(e, tag);
    if (date[0] != '\0')
        http_add_header(req, "Last-Modified", "%s", date);
    http_add_header(req, "ETag", "%s", tag);
    http_add_header(req, "Accept-Ranges", "bytes");
    http_add_header(req, "X-Pinfold-Mode", "%04o", e->mode & 07777u);
    http_add_header(req, "X-Pinfold-Type", "%s", fileop_kind_name(e->kind));
    http_add_header(req, "X-Content-Type-Options", "nosniff");
}

/* Does If-Range, when there is one, still stand for this file? */
static bool api_files_get_same(struct http_req *req, const struct fileop_record *e) {
    const char *want = http_header(req, "If-Range");
    char date[64], tag[80];
    api_files_get_http_date(e->mtime_ns, date);
    api_files_get_tag(e, tag);
    return want == NULL || strcmp(want, tag) == 0 || strcmp(want, date) == 0;
}

/* Answers. */

static void api_files_get_fail(struct api_files_get *g, enum fileop_code code) {
    struct fileop_result result = {0};
    if (g->req == NULL || g->answered)
        return;
    fileop_status_set(&result, code, 0, g->path);
    g->answered = true;
    g->req->gone = NULL;
    api_files_failed(g->req, &result);
}

static void api_files_get_unsatisfiable(struct api_files_get *g) {
    struct api_error error = {0};
    g->answered = true;
    g->req->gone = NULL;
    http_add_header(g->req, "Content-Range", "bytes */%" PRIu64, g->entry.size);
    api_error_set(&error, 416, "bad_range", NULL,
                  "The range lies outside of the file's %" PRIu64 " bytes.", g->entry.size);
    http_reply_error(g->req, &error);
}

/* Is it something that can be sent? Else it is refused. */
static bool api_files_get_sendable(struct api_files_get *g) {
    const struct fileop_record *e = &g->entry;
    if (e->kind == FILEOP_DIRECTORY)
        api_files_get_fail(g, FILEOP_IS_DIRECTORY);
    else if (e->kind != FILEOP_FILE)
        api_files_get_fail(g, FILEOP_NOT_REGULAR);
    else if (g->range == RANGE_NONE && !g->head && e->size > api_files_max(g->sandbox))
        api_files_get_fail(g, FILEOP_TOO_LARGE);
    return !g->answered;
}

static void api_files_get_begin(struct api_files_get *g) {
    struct http_req *req = g->req;
    bool part = g->range == RANGE_PART;
    g->left = part ? g->last - g->first + 1 : g->entry.size;
    g->answered = true;
    g->streaming = true;
    api_files_get_headers(req, &g->entry);
    if (part)
        http_add_header(req, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, g->first,
                        g->last, g->entry.size);
    req->gone = NULL; /* the stream's end says it */
    http_reply_stream(req, part ? 206 : 200, "application/octet-stream", g->left,
                      &api_files_get_stream, g);
}

static int api_files_get_item(void *arg, const struct fileop_item *item) {
    struct api_files_get *g = arg;
    if (item->rec.type != FILEOP_ENTRY || g->found)
        return 0;
    g->found = true;
    if (g->req == NULL)
        return 0;
    if (g->sizing) {
        g->entry = item->rec;
        return 0;
    }
    /* Of another size than a moment ago: the part is another one, too. */
    if (g->range == RANGE_PART && item->rec.size != g->entry.size) {
        api_files_get_fail(g, FILEOP_CHANGED);
        return -1;
    }
    g->entry = item->rec;
    if (!api_files_get_sendable(g))
        return -1;
    api_files_get_begin(g);
    return 0;
}

static void api_files_get_readable(void *arg) {
    struct api_files_get *g = arg;
    if (g->req != NULL)
        http_wake(g->req);
}

/* Sends the operation; -1: it was answered. */
static int api_files_get_start(struct api_files_get *g) {
    char offset[24], length[24];
    snprintf(offset, sizeof(offset), "%" PRIu64, g->first);
    snprintf(length, sizeof(length), "%" PRIu64,
             g->range == RANGE_PART ? g->last - g->first + 1 : (uint64_t)INT64_MAX);
    const char *stat[] = {"stat", g->path, "1", NULL};
    const char *read[] = {"read", g->path, offset, length, NULL};
    g->found = false;
    g->run =
        api_files_start(g->req, g->sandbox, g->sizing ? stat : read, false, &api_files_get_ops, g);
    return g->run != NULL ? 0 : -1;
}

/* The size is known: HEAD is answered, a part is fetched. True when another operation was begun. */
static bool api_files_get_sized(struct api_files_get *g) {
    const char *header =
        api_files_get_same(g->req, &g->entry) ? http_header(g->req, "Range") : NULL;
    g->range = range_parse(header, g->entry.size, &g->first, &g->last);
    if (!api_files_get_sendable(g))
        return false;
    if (g->range == RANGE_UNSATISFIABLE) {
        api_files_get_unsatisfiable(g);
        return false;
    }
    if (g->head) {
        api_files_get_begin(g);
        return false;
    }
    g->sizing = false;
    if (g->range != RANGE_PART)
        g->first = 0;
    g->req->gone = NULL;
    if (api_files_get_start(g) < 0)
        return false;
    g->req->gone = api_files_get_gone;
    return true;
}

static void api_files_get_done(void *arg, const struct fileop_result *result) {
    struct api_files_get *g = arg;
    g->run = NULL;
    g->good = result->code == FILEOP_OK;
    if (g->req != NULL && !g->answered && result->code != FILEOP_OK) {
        g->answered = true;
        g->req->gone = NULL;
        api_files_failed(g->req, result);
    } else if (g->req != NULL && !g->answered && !g->found) {
        api_files_get_fail(g, FILEOP_IO);
    } else if (g->req != NULL && g->sizing) {
        if (api_files_get_sized(g))
            return;
    }
    if (g->streaming && g->req != NULL)
        http_wake(g->req);
    api_files_get_put(g);
}

static const struct fileop_run_ops api_files_get_ops = {
    .item = api_files_get_item, .readable = api_files_get_readable, .done = api_files_get_done};

void api_files_get(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE];
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL)
        return;
    struct api_files_get *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        api_files_no_memory(req);
        return;
    }
    g->sandbox = sb;
    g->req = req;
    g->head = strcmp(req->method, "HEAD") == 0;
    g->sizing = g->head || http_header(req, "Range") != NULL;
    memcpy(g->path, path, sizeof(path));
    if (api_files_get_start(g) < 0) {
        free(g);
        return;
    }
    req->owner = g;
    req->gone = api_files_get_gone;
}
