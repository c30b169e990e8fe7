#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "image_ref.h"
#include "request_internal.h"
#include "str.h"
#include "text.h"

#define REQUEST_NEAR_MAX 24u /* names longer than this get no "did you mean" */

/* Appends printf-like text at *used, cut at the end of the array. */
static void request_put(char *dst, size_t size, size_t *used, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void request_put(char *dst, size_t size, size_t *used, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(dst + *used, size - *used, fmt, args);
    va_end(args);
    if (n > 0)
        *used = (size_t)n < size - *used ? *used + (size_t)n : size - 1;
}

/* JSON pointer: "/steps/1/argv". */
static void request_pointer(const struct request_path *at, char *dst, size_t size, size_t *used) {
    if (!at)
        return;
    request_pointer(at->up, dst, size, used);
    if (!at->key) {
        request_put(dst, size, used, "/%zu", at->index);
        return;
    }
    request_put(dst, size, used, "/");
    for (const char *p = at->key; *p; p++) {
        if (*used + 3 >= size) {
            *used = size - 1; /* cut: nothing may follow */
            return;
        }
        if (*p == '~' || *p == '/')
            request_put(dst, size, used, "~%c", *p == '~' ? '0' : '1');
        else
            request_put(dst, size, used, "%c", *p);
    }
}

/* For people: "steps[1].argv". A key may be hostile, so it is escaped and cut. */
static void request_place(const struct request_path *at, char *dst, size_t size, size_t *used) {
    char key[80];
    if (!at)
        return;
    request_place(at->up, dst, size, used);
    if (!at->key) {
        request_put(dst, size, used, "[%zu]", at->index);
        return;
    }
    str_escape(key, sizeof(key), at->key, strlen(at->key));
    request_put(dst, size, used, "%s%s", at->up ? "." : "", key);
}

int request_fail(struct request_ctx *ctx, const struct request_path *at, int status,
                 const char *code, const char *fmt, ...) {
    char field[API_ERROR_FIELD_MAX] = "", place[200] = "", text[API_ERROR_MESSAGE_MAX];
    size_t field_len = 0, place_len = 0;
    va_list args;
    request_pointer(at, field, sizeof(field), &field_len);
    request_place(at, place, sizeof(place), &place_len);
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return api_error_set(ctx->error, status, code, field, "%s %s", at ? place : "The request",
                         text);
}

int request_wrong_type(struct request_ctx *ctx, const struct request_path *at,
                       const char *expected) {
    return request_fail(ctx, at, 400, "wrong_type", "must be %s.", expected);
}

void *request_alloc(struct request_ctx *ctx, size_t count, size_t size) {
    void *p = count <= SIZE_MAX / size ? request_mem_alloc(&ctx->mem, count * size) : NULL;
    if (!p)
        (void)api_error_memory(ctx->error);
    return p;
}

static size_t request_min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein distance of two names of at most REQUEST_NEAR_MAX bytes. */
static size_t request_distance(const char *a, const char *b) {
    size_t row[REQUEST_NEAR_MAX + 1], width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            size_t above = row[j + 1];
            row[j + 1] = request_min3(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[width];
}

int request_unknown(struct request_ctx *ctx, const struct request_path *at,
                    const struct request_field *table) {
    const char *best = NULL;
    size_t best_distance = 3; /* two slips of the finger, not another word */
    for (const struct request_field *f = table; f->name; f++) {
        if (strlen(at->key) > REQUEST_NEAR_MAX)
            break;
        size_t d = request_distance(at->key, f->name);
        if (d < best_distance) {
            best_distance = d;
            best = f->name;
        }
    }
    if (best)
        return request_fail(ctx, at, 400, "unknown_field", "is not a known field; did you mean %s?",
                            best);
    return request_fail(ctx, at, 400, "unknown_field", "is not a known field.");
}

int request_object(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                   const struct request_field *table, void *target) {
    if (!json_is_object(value))
        return request_wrong_type(ctx, at, "an object");
    for (void *it = json_object_iter(value); it; it = json_object_iter_next(value, it)) {
        struct request_path here = {.up = at, .key = json_object_iter_key(it)};
        const struct request_field *f = table;
        while (f->name && strcmp(f->name, here.key) != 0)
            f++;
        if (!f->name)
            return request_unknown(ctx, &here, table);
        if (f->read(ctx, &here, json_object_iter_value(it), (char *)target + f->offset) != 0)
            return -1;
    }
    return 0;
}

int request_keep(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                 void *slot) {
    (void)ctx;
    (void)at;
    *(json_t **)slot = value;
    return 0;
}

int request_flag(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                 void *slot) {
    if (!json_is_boolean(value))
        return request_wrong_type(ctx, at, "true or false");
    *(bool *)slot = json_is_true(value);
    return 0;
}

int request_text(struct request_ctx *ctx, const struct request_path *at, json_t *value, size_t max,
                 const char **text) {
    if (!json_is_string(value))
        return request_wrong_type(ctx, at, "a string");
    const char *string = json_string_value(value);
    size_t len = json_string_length(value);
    if (strlen(string) != len)
        return request_fail(ctx, at, 400, "invalid_value", "must not contain a NUL character.");
    if (len > max)
        return request_fail(ctx, at, 400, "too_large", "has %zu bytes; at most %zu are allowed.",
                            len, max);
    *text = string;
    return 0;
}

int request_backend(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                    void *slot) {
    const char *text;
    if (request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    enum backend backend = backend_by_name(text);
    if (backend == BACKEND_NONE)
        return request_fail(ctx, at, 400, "invalid_value", "must be \"native\" or \"docker\".");
    *(enum backend *)slot = backend;
    return 0;
}

int request_name(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                 void *slot) {
    const char *text;
    if (request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    if (!str_is_name(text))
        return request_fail(ctx, at, 400, "invalid_value",
                            "must be a name: 1 to 63 of A-Z, a-z, 0-9, '_', '.' and '-', and begin "
                            "with a letter, a digit or '_'.");
    *(const char **)slot = text;
    return 0;
}

int request_digest(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                   void *slot) {
    static const char start[] = "sha256:";
    const char *text;
    uint8_t sha256[32];
    if (request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    if (strncmp(text, start, strlen(start)) != 0 || !image_ref_hex(text + strlen(start), sha256))
        return request_fail(ctx, at, 400, "invalid_value",
                            "must be sha256: and 64 lower-case hex digits.");
    *(const char **)slot = text;
    return 0;
}

/* *base64 = which of the two encodings it is. */
static int request_encoding(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                            bool *base64) {
    const char *text = "utf-8";
    if (value && request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    *base64 = strcmp(text, "base64") == 0;
    if (!*base64 && strcmp(text, "utf-8") != 0)
        return request_fail(ctx, at, 400, "invalid_value", "must be \"utf-8\" or \"base64\".");
    return 0;
}

static int request_blob_decode(struct request_ctx *ctx, const struct request_path *at,
                               json_t *value, struct request_bytes *out) {
    size_t len = json_string_length(value), size = 0;
    char *data = request_alloc(ctx, len / 4 * 3 + 1, 1);
    if (!data)
        return -1;
    struct err err;
    if (text_base64_decode(json_string_value(value), len, data, &size, &err) != 0)
        return request_fail(ctx, at, 400, "invalid_value", "is %s.", err.text);
    data[size] = '\0';
    if (json_string_setn_nocheck(value, "", 0) != 0)
        return api_error_memory(ctx->error);
    *out = (struct request_bytes){.data = data, .len = size};
    return 0;
}

int request_blob(struct request_ctx *ctx, const struct request_path *up,
                 const struct request_source *source, struct request_bytes *out) {
    struct request_path at = {.up = up, .key = source->key};
    struct request_path encoding_at = {.up = up, .key = source->encoding_key};
    bool base64;
    if (request_encoding(ctx, &encoding_at, source->encoding, &base64) != 0)
        return -1;
    if (!source->value)
        return 0;
    if (!json_is_string(source->value))
        return request_wrong_type(ctx, &at, "a string");
    struct request_bytes bytes = {.data = json_string_value(source->value),
                                  .len = json_string_length(source->value)};
    if (base64 && request_blob_decode(ctx, &at, source->value, &bytes) != 0)
        return -1;
    if (bytes.len > source->max)
        return request_fail(ctx, &at, 413, "too_large", "has %zu bytes; at most %zu are allowed.",
                            bytes.len, source->max);
    *out = bytes;
    return 0;
}
