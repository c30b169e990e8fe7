#include "api_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_json.h"
#include "file_move.h"

/* Operations that answer with one file, or with nothing: stat, mkdir, move, remove. */
struct api_files {
    struct http_req *req; /* NULL = the client is gone */
    struct fileop_run *run;
    int status; /* of the answer when it worked; 204: without a body */
    bool found;
    struct fileop_record entry;
    char path[FILE_PATH_SIZE];
    char target[FILEOP_TARGET_MAX + 1];
};

struct sandbox *api_files_sandbox(struct server *s, struct http_req *req,
                                  const struct route_args *args, char path[FILE_PATH_SIZE]) {
    struct api_error error = {0};
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb == NULL || file_path_clean(args->rest, path, &error) == 0)
        return sb;
    http_reply_error(req, &error);
    return NULL;
}

struct fileop_run *api_files_start(struct http_req *req, struct sandbox *sb,
                                   const char *const *argv, bool upload,
                                   const struct fileop_run_ops *ops, void *arg) {
    struct api_error error = {0};
    struct err err = {0};
    size_t argc = 0;
    while (argv[argc] != NULL)
        argc++;
    struct fileop_run *run = fileop_run_start(sb, argv, argc, upload, ops, arg, &err);
    if (run != NULL)
        return run;
    if (err.kind == ERR_STATE)
        api_error_set(&error, 409, "not_ready", NULL, "%s", err.text);
    else if (err.kind == ERR_LIMIT)
        api_error_set(&error, 429, "busy", NULL, "%s", err.text);
    else
        api_error_set(&error, 500, "internal", NULL, "The file operation could not be started.");
    http_reply_error(req, &error);
    return NULL;
}

bool api_files_archive_room(struct server *s, struct http_req *req) {
    struct api_error error = {0};
    if (!archives_full(&s->archives))
        return true;
    api_error_set(&error, 429, "busy", NULL, "Too many archives are being packed or unpacked.");
    http_reply_error(req, &error);
    return false;
}

uint64_t api_files_max(const struct sandbox *sb) {
    uint64_t disk = sandbox_limits(sb)->values.v[LIMIT_DISK_BYTES];
    return disk > FILEOP_PACK_MAX ? disk : FILEOP_PACK_MAX;
}

void api_files_failed(struct http_req *req, const struct fileop_result *result) {
    struct api_error error = {0};
    fileop_status_error(result, &error);
    http_reply_error(req, &error);
}

void api_files_no_memory(struct http_req *req) {
    struct api_error error = {0};
    api_error_memory(&error);
    http_reply_error(req, &error);
}

int api_files_mode(struct http_req *req, const char *name, char mode[8]) {
    const char *text = http_query(req, name);
    struct api_error error = {0};
    unsigned value = 0;
    if (text == NULL)
        return 0;
    size_t len = strspn(text, "01234567");
    for (size_t i = 0; i < len && i < 5; i++)
        value = value * 8 + (unsigned)(text[i] - '0');
    if (len == 0 || len > 5 || text[len] != '\0' || value > 07777) {
        api_error_set(&error, 400, "bad_query", NULL,
                      "The query parameter %s must be a mode in octal digits, as 0644.", name);
        http_reply_error(req, &error);
        return -1;
    }
    snprintf(mode, 8, "%u", value & 0777u);
    return 0;
}

static int api_files_item(void *arg, const struct fileop_item *item) {
    struct api_files *f = arg;
    if (item->rec.type != FILEOP_ENTRY)
        return 0;
    f->entry = item->rec;
    f->found = true;
    memcpy(f->target, item->target, item->rec.target_len + 1);
    return 0;
}

static void api_files_answer(struct api_files *f, const struct fileop_result *result) {
    struct fileop_result broken = {0};
    struct json_out j;
    struct buf out;
    if (result->code != FILEOP_OK) {
        api_files_failed(f->req, result);
    } else if (f->status == 204) {
        static const struct http_body none = {.data = ""};
        http_reply(f->req, 204, "application/json", &none);
    } else if (!f->found) {
        fileop_status_set(&broken, FILEOP_IO, 0, f->path);
        api_files_failed(f->req, &broken);
    } else {
        buf_init(&out, 8 * (size_t)(FILEOP_PATH_MAX + FILEOP_TARGET_MAX));
        json_out_init(&j, &out);
        file_json_entry(&j, &f->entry, f->path, f->target);
        api_reply_buf(f->req, f->status, "application/json", &out, json_out_end(&j, NULL));
    }
}

static void api_files_done(void *arg, const struct fileop_result *result) {
    struct api_files *f = arg;
    if (f->req != NULL) {
        f->req->gone = NULL;
        api_files_answer(f, result);
    }
    free(f);
}

static const struct fileop_run_ops api_files_ops = {.item = api_files_item, .done = api_files_done};

static void api_files_gone(struct http_req *req) {
    struct api_files *f = req->owner;
    f->req = NULL;
    /* What changes files goes on to its end: half of it would be worse. */
    if (f->status == 200)
        fileop_run_cancel(f->run);
}

/* argv[1] is the path; `told` the one that the answer is about. */
static void api_files_run(struct http_req *req, struct sandbox *sb, int status,
                          const char *const *argv, const char *told) {
    struct api_files *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        api_files_no_memory(req);
        return;
    }
    f->req = req;
    f->status = status;
    memcpy(f->path, told, strlen(told) + 1);
    f->run = api_files_start(req, sb, argv, false, &api_files_ops, f);
    if (f->run == NULL) {
        free(f);
        return;
    }
    req->owner = f;
    req->gone = api_files_gone;
}

void api_files_stat(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE];
    struct api_error error = {0};
    bool follow = false;
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL)
        return;
    if (route_query_bool(req, "follow", &follow, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    const char *argv[] = {"stat", path, follow ? "1" : "0", NULL};
    api_files_run(req, sb, 200, argv, path);
}

void api_files_delete(struct server *s, struct http_req *req, const struct route_args *args) {
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
    const char *argv[] = {"remove", path, recursive ? "1" : "0", NULL};
    api_files_run(req, sb, 204, argv, path);
}

void api_files_mkdir(struct server *s, struct http_req *req, const struct route_args *args) {
    char path[FILE_PATH_SIZE], mode[8] = "-1";
    struct api_error error = {0};
    bool parents = true;
    struct sandbox *sb = api_files_sandbox(s, req, args, path);
    if (sb == NULL || api_files_mode(req, "mode", mode) < 0)
        return;
    if (route_query_bool(req, "parents", &parents, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    const char *argv[] = {"mkdir", path, mode, parents ? "1" : "0", NULL};
    api_files_run(req, sb, 201, argv, path);
}

void api_files_move(struct server *s, struct http_req *req, const struct route_args *args) {
    char from[FILE_PATH_SIZE], to[FILE_PATH_SIZE];
    struct api_error error = {0};
    bool replace = false;
    struct sandbox *sb = sandbox_mine(s, req, args->value[0]);
    if (sb == NULL)
        return;
    if (file_move_decode(req->body != NULL ? req->body : "", req->body_len, from, to, &replace,
                         &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    const char *argv[] = {"move", from, to, replace ? "1" : "0", NULL};
    api_files_run(req, sb, 201, argv, to);
}
