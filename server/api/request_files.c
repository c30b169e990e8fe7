#include <stdlib.h>
#include <string.h>

#include "request_internal.h"

#define REQUEST_MODE_DEFAULT 0644u

struct request_raw_file {
    json_t *path, *content, *encoding, *mode;
};

static const struct request_field request_file_fields[] = {
    {"path", request_keep, offsetof(struct request_raw_file, path)},
    {"content", request_keep, offsetof(struct request_raw_file, content)},
    {"encoding", request_keep, offsetof(struct request_raw_file, encoding)},
    {"mode", request_keep, offsetof(struct request_raw_file, mode)},
    {NULL, NULL, 0},
};

/* Octal text; set-id and sticky bits are dropped, since a file in a jail has no use for them. */
static int request_mode(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                        uint32_t *mode) {
    static const char rule[] = "must be an octal string such as \"0644\"";
    const char *text;
    uint32_t bits = 0;
    if (!json_is_string(value))
        return request_fail(ctx, at, 400, "wrong_type", "%s.", rule);
    if (request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    size_t len = strlen(text);
    if (len < 3 || len > 4 || strspn(text, "01234567") != len)
        return request_fail(ctx, at, 400, "invalid_value", "%s.", rule);
    for (const char *p = text; *p; p++)
        bits = bits * 8 + (uint32_t)(*p - '0');
    *mode = bits & 0777u;
    return 0;
}

/* A path or pattern, normalised into memory of ctx. */
static const char *request_clean(struct request_ctx *ctx, const struct request_path *at,
                                 json_t *value) {
    if (!json_is_string(value)) {
        (void)request_wrong_type(ctx, at, "a string");
        return NULL;
    }
    size_t len = json_string_length(value);
    char *out = request_alloc(ctx, len + 1, 1);
    if (!out)
        return NULL;
    const char *wrong = request_path_clean(json_string_value(value), len, out);
    if (wrong) {
        (void)request_fail(ctx, at, 400, "invalid_value", "%s.", wrong);
        return NULL;
    }
    return out;
}

static int request_file(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                        struct request_file *out) {
    struct request_raw_file raw = {0};
    struct request_path path_at = {.up = at, .key = "path"};
    struct request_path content_at = {.up = at, .key = "content"};
    struct request_path mode_at = {.up = at, .key = "mode"};
    if (request_object(ctx, at, value, request_file_fields, &raw) != 0)
        return -1;
    if (!raw.path)
        return request_fail(ctx, &path_at, 400, "missing_field", "is missing.");
    if (!raw.content)
        return request_fail(ctx, &content_at, 400, "missing_field", "is missing.");
    struct request_file file = {.path = request_clean(ctx, &path_at, raw.path),
                                .mode = REQUEST_MODE_DEFAULT};
    if (!file.path)
        return -1;
    struct request_bytes bytes = {0};
    struct request_source source = {.value = raw.content,
                                    .encoding = raw.encoding,
                                    .key = "content",
                                    .encoding_key = "encoding",
                                    .max = SIZE_MAX};
    if (request_blob(ctx, at, &source, &bytes) != 0)
        return -1;
    if (raw.mode && request_mode(ctx, &mode_at, raw.mode, &file.mode) != 0)
        return -1;
    file.data = bytes.data;
    file.size = bytes.len;
    *out = file;
    return 0;
}

/* Orders paths with '/' below every other byte, so that what is below a path comes right after it.
 */
static int request_path_order(const char *a, const char *b) {
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a == *b)
        return 0;
    int x = *a == '/' ? 1 : *a ? (unsigned char)*a + 2 : 0;
    int y = *b == '/' ? 1 : *b ? (unsigned char)*b + 2 : 0;
    return x - y;
}

static int request_file_order(const void *a, const void *b) {
    const struct request_file *x = *(const struct request_file *const *)a;
    const struct request_file *y = *(const struct request_file *const *)b;
    int order = request_path_order(x->path, y->path);
    return order != 0 ? order : (x > y) - (x < y);
}

/* No path twice, and no file where another file needs a directory. */
static int request_files_distinct(struct request_ctx *ctx, const struct request_path *at,
                                  const struct request_file *files, size_t count) {
    const struct request_file **sorted = request_alloc(ctx, count, sizeof(*sorted));
    if (!sorted)
        return -1;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &files[i];
    qsort(sorted, count, sizeof(*sorted), request_file_order);
    for (size_t i = 1; i < count; i++) {
        const struct request_file *a = sorted[i - 1], *b = sorted[i];
        size_t len = strlen(a->path);
        if (strncmp(a->path, b->path, len) != 0 || (b->path[len] && b->path[len] != '/'))
            continue;
        bool same = b->path[len] == '\0';
        struct request_path item = {.up = at, .index = (size_t)(b - files)};
        struct request_path here = {.up = &item, .key = "path"};
        return request_fail(ctx, &here, 400, "conflict",
                            same ? "is the same path as files[%zu]."
                                 : "lies below files[%zu], which is a file.",
                            (size_t)(a - files));
    }
    return 0;
}

int request_files(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                  struct run_request *out) {
    if (!json_is_array(value))
        return request_wrong_type(ctx, at, "an array");
    size_t count = json_array_size(value);
    if (count == 0)
        return 0;
    if (count > REQUEST_FILES_MAX)
        return request_fail(ctx, at, 400, "too_large", "has %zu entries; at most %u are allowed.",
                            count, REQUEST_FILES_MAX);
    struct request_file *files = request_alloc(ctx, count, sizeof(*files));
    if (!files)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct request_path here = {.up = at, .index = i};
        if (request_file(ctx, &here, json_array_get(value, i), &files[i]) != 0)
            return -1;
    }
    if (count > 1 && request_files_distinct(ctx, at, files, count) != 0)
        return -1;
    out->files = files;
    out->file_count = count;
    return 0;
}

int request_collect(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                    struct run_request *out) {
    if (!json_is_array(value))
        return request_wrong_type(ctx, at, "an array");
    size_t count = json_array_size(value);
    if (count == 0)
        return 0;
    if (count > REQUEST_COLLECT_MAX)
        return request_fail(ctx, at, 400, "too_large", "has %zu entries; at most %u are allowed.",
                            count, REQUEST_COLLECT_MAX);
    const char **patterns = request_alloc(ctx, count, sizeof(*patterns));
    if (!patterns)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct request_path here = {.up = at, .index = i};
        patterns[i] = request_clean(ctx, &here, json_array_get(value, i));
        if (!patterns[i])
            return -1;
    }
    out->collect = patterns;
    out->collect_count = count;
    return 0;
}
