#include <string.h>

#include "request_internal.h"

static bool request_env_name_ok(const char *name) {
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '_';
        if (!letter && (p == name || *p < '0' || *p > '9'))
            return false;
    }
    return name[0] != '\0';
}

static char *request_env_item(struct request_ctx *ctx, const struct request_path *at,
                              json_t *value) {
    const char *text;
    size_t name_len = strlen(at->key);
    if (!request_env_name_ok(at->key)) {
        (void)request_fail(
            ctx, at, 400, "invalid_value",
            "is not a name for a variable: letters, digits and '_', no digit first.");
        return NULL;
    }
    if (request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return NULL;
    size_t len = json_string_length(value);
    if (name_len + 1 + len > REQUEST_STRING_MAX) {
        (void)request_fail(ctx, at, 400, "too_large",
                           "has %zu bytes with its name; at most %u are allowed.",
                           name_len + 1 + len, REQUEST_STRING_MAX);
        return NULL;
    }
    char *item = request_alloc(ctx, name_len + 1 + len + 1, 1);
    if (!item)
        return NULL;
    memcpy(item, at->key, name_len);
    item[name_len] = '=';
    memcpy(item + name_len + 1, text, len + 1);
    return item;
}

int request_env(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                struct request_env *out) {
    if (!json_is_object(value))
        return request_wrong_type(ctx, at, "an object");
    size_t count = json_object_size(value), i = 0;
    if (count == 0)
        return 0;
    if (count > REQUEST_ENV_MAX)
        return request_fail(ctx, at, 400, "too_large", "has %zu entries; at most %u are allowed.",
                            count, REQUEST_ENV_MAX);
    const char **items = request_alloc(ctx, count, sizeof(*items));
    if (!items)
        return -1;
    for (void *it = json_object_iter(value); it; it = json_object_iter_next(value, it)) {
        struct request_path here = {.up = at, .key = json_object_iter_key(it)};
        items[i] = request_env_item(ctx, &here, json_object_iter_value(it));
        if (!items[i++])
            return -1;
    }
    *out = (struct request_env){.items = items, .count = count};
    return 0;
}
