#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_files.h"
#include "file_json.h"
#include "text.h"

#define API_FILES_LIST_DEFAULT 1000u
#define API_FILES_LIST_MAX 10000u
#define API_FILES_DEPTH_MAX 64u
/* A page that is longer ends early; names may be long, and their bytes need six characters each. */
#define API_FILES_LIST_WANT ((size_t)4 * 1024 * 1024)
#define API_FILES_LIST_BYTES                                                                       \
    (API_FILES_LIST_WANT + 14 * (size_t)(FILEOP_PATH_MAX + FILEOP_TARGET_MAX))

struct api_files_list {
    struct http_req *req; /* NULL = the client is gone */
    struct fileop_run *run;
    uint64_t count, skipped;
    bool full; /* the page ends here, although there may be more */
    struct json_out json;
    struct buf out;
    char last[FILE_PATH_SIZE]; /* of the last entry */
};

static int api_files_list_item(void *arg, const struct fileop_item *item) {
    struct api_files_list *l = arg;
    if (item->rec.type == FILEOP_ERROR)
        l->skipped++; /* a directory that cannot be read: its entry is there */
    if (item->rec.type != FILEOP_ENTRY || item->path[0] == '\0')
        return 0;
    file_json_entry(&l->json, &item->rec, item->path, item->target);
    memcpy(l->last, item->path, item->rec.path_len + 1);
    l->count++;
    if (l->out.len < API_FILES_LIST_WANT && !l->json.failed)
        return 0;
    l->full = true;
    return -1;
}

static void api_files_list_answer(struct api_files_list *l, bool more) {
    struct json_out *j = &l->json;
    more = more && l->count > 0;
    json_out_close(j, ']');
    json_out_bool(j, "more", more);
    if (more)
        file_json_name(j, "next", "next_base64", l->last);
    else
        json_out_null(j, "next");
    json_out_u64(j, "unreadable", l->skipped);
    json_out_close(j, '}');
    api_reply_buf(l->req, 200, "application/json", &l->out, json_out_end(j, NULL));
}

static void api_files_list_done(void *arg, const struct fileop_result *result) {
    struct api_files_list *l = arg;
    if (l->req != NULL) {
        l->req->gone = NULL;
        if (result->code == FILEOP_OK || l->full)
            api_files_list_answer(l, result->more || l->full);
        else
            api_files_failed(l->req, result);
    }
    buf_done(&l->out);
    free(l);
}

static const struct fileop_run_ops api_files_list_ops = {.item = api_files_list_item,
                                                         .done = api_files_list_done};

static void api_files_list_gone(struct http_req *req) {
    struct api_files_list *l = req->owner;
    l->req = NULL;
    fileop_run_cancel(l->run);
}

/* `after`, or `after_base64` for a name that is not UTF-8. */
static int api_files_list_after(struct http_req *req, char after[FILE_PATH_SIZE],
                                struct api_error *error) {
    char coded[FILE_PATH_SIZE * 4 / 3 + 8], raw[FILE_PATH_SIZE + 8];
    size_t len = 0;
    if (route_query_text(req, "after", after, FILE_PATH_SIZE, error) < 0 ||
        route_query_text(req, "after_base64", coded, sizeof(coded), error) < 0)
        return -1;
    if (coded[0] == '\0')
        return 0;
    if (text_base64_decode(coded, strlen(coded), raw, &len, NULL) < 0 || len >= FILE_PATH_SIZE ||
        memchr(raw, '\0', len) != NULL)
        return api_error_set(error, 400, "bad_query", NULL,
                             "The query parameter after_base64 must be a path in base64.");
    memcpy(after, raw, len);
    after[len] = '\0';
    return 0;
}

static void api_files_list_start(struct http_req *req, struct sandbox *sb,
                                 const char *const *argv) {
    struct api_files_list *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        api_files_no_memory(req);
        return;
    }
    l->req = req;
    buf_init(&l->out, API_FILES_LIST_BYTES);
    json_out_init(&l->json, &l->out);
    json_out_open(&l->json, NULL, '{');
    json_out_open(&l->json, "entries", '[');
    l->run = api_files_start(req, sb, argv, false, &api_files_list_ops, l);
    if (l->run == NULL) {
        buf_done(&l->out);
        free(l);
        return;
    }
    req->owner = l;
    req->gone = api_files_list_gone;
}

void api_files_list(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE], after[FILE_PATH_SIZE], depth_text[24], limit_text[24];
    struct api_error error = {0};
    uint64_t depth = 1, limit = API_FILES_LIST_DEFAULT;
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL)
        return;
    if (route_query_u64(req, "depth", 1, API_FILES_DEPTH_MAX, &depth, &error) < 0 ||
        route_query_u64(req, "limit", 1, API_FILES_LIST_MAX, &limit, &error) < 0 ||
        api_files_list_after(req, after, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    snprintf(depth_text, sizeof(depth_text), "%" PRIu64, depth);
    snprintf(limit_text, sizeof(limit_text), "%" PRIu64, limit);
    const char *argv[] = {"list", path, depth_text, limit_text, after, NULL};
    api_files_list_start(req, sb, argv);
}
