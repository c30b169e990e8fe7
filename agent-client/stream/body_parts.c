#include "body_parts.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

int body_parts_memory(struct err *err) {
    return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the request");
}

/* A string of ours, which must be text: JSON has no other. */
static json_t *body_parts_text(const char *what, const char *text, struct err *err) {
    json_t *value;

    if (!text_is_utf8(text, strlen(text))) {
        err_set(err, ERR_INVALID, 0, "%s is not UTF-8, so it cannot be sent", what);
        return NULL;
    }
    value = json_string(text);
    if (value == NULL)
        body_parts_memory(err);
    return value;
}

int body_parts_set(json_t *object, const char *key, json_t *value, struct err *err) {
    if (value == NULL)
        return -1;
    if (json_object_set_new(object, key, value) < 0)
        return body_parts_memory(err);
    return 0;
}

int body_parts_set_text(json_t *object, const char *key, const char *text, struct err *err) {
    return text == NULL ? 0 : body_parts_set(object, key, body_parts_text(key, text, err), err);
}

int body_parts_set_image(json_t *object, const char *text, struct err *err) {
    const char *at = text != NULL ? strchr(text, '@') : NULL;
    char name[256];

    if (at == NULL)
        return body_parts_set_text(object, "image", text, err);
    snprintf(name, sizeof(name), "%.*s", (int)(at - text), text);
    if (body_parts_set_text(object, "image", name, err) < 0)
        return -1;
    return body_parts_set_text(object, "image_digest", at + 1, err);
}

int body_parts_set_list(json_t *object, const char *key, const char *const *items, size_t count,
                        struct err *err) {
    json_t *array = json_array();

    if (array == NULL || json_object_set_new(object, key, array) < 0)
        return body_parts_memory(err);
    for (size_t i = 0; i < count; i++) {
        json_t *item = body_parts_text(key, items[i], err);

        if (item == NULL)
            return -1;
        if (json_array_append_new(array, item) < 0)
            return body_parts_memory(err);
    }
    return 0;
}

int body_parts_check_pairs(const struct opt_list *list, const char *option, struct err *err) {
    for (size_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->item[i], '=');

        if (equals == NULL || equals == list->item[i])
            return err_set(err, ERR_INVALID, 0, "option --%s: expected NAME=VALUE", option);
    }
    return 0;
}

int body_parts_set_pairs(json_t *object, const char *key, const struct opt_list *list,
                         struct err *err) {
    json_t *pairs = json_object();

    if (pairs == NULL || json_object_set_new(object, key, pairs) < 0)
        return body_parts_memory(err);
    for (size_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->item[i], '=');
        char name[256];
        size_t len = (size_t)(equals - list->item[i]);

        if (len >= sizeof(name) || !text_is_utf8(list->item[i], len))
            return err_set(err, ERR_INVALID, 0, "a name in %s is too long or not UTF-8", key);
        memcpy(name, list->item[i], len);
        name[len] = '\0';
        if (body_parts_set(pairs, name, body_parts_text(name, equals + 1, err), err) < 0)
            return -1;
    }
    return 0;
}

int body_parts_set_limits(json_t *object, const struct limit_options *o, struct err *err) {
    json_t *limits = json_object();

    if (limits == NULL || json_object_set_new(object, "limits", limits) < 0)
        return body_parts_memory(err);
    for (int i = 0; i < LIMIT_COUNT; i++)
        if (o->value[i] != LIMIT_OPTIONS_UNSET &&
            json_object_set_new(limits, limit_info((enum limit_id)i)->name,
                                json_integer((json_int_t)o->value[i])) < 0)
            return body_parts_memory(err);
    return 0;
}

/* Is it text whose JSON form is not longer than base64 would be? (A control character takes six
 * bytes.) */
static bool body_parts_is_text(const char *data, size_t len) {
    size_t extra = 0;

    for (size_t i = 0; i < len; i++)
        extra += (unsigned char)data[i] < 0x20 ? 5u : data[i] == '"' || data[i] == '\\';
    return (len < 1024 || extra <= len / 3) && text_is_utf8(data, len);
}

/* "key":"…","key_or_encoding":"utf-8" */
int body_parts_put_bytes(struct buf *out, const char *key, const char *encoding_key,
                         const struct buf *bytes, struct err *err) {
    const char *data = bytes->data != NULL ? bytes->data : "";
    bool utf8 = body_parts_is_text(data, bytes->len);

    if (buf_printf(out, err, "\"%s\":", key) < 0)
        return -1;
    if (utf8) {
        if (text_append_json(out, data, bytes->len, err) < 0)
            return -1;
    } else if (buf_puts(out, "\"", err) < 0 || text_base64_encode(data, bytes->len, out, err) < 0 ||
               buf_puts(out, "\"", err) < 0) {
        return -1;
    }
    return buf_printf(out, err, ",\"%s\":\"%s\"", encoding_key, utf8 ? "utf-8" : "base64");
}
