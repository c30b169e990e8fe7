#include "api_error.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "json_memory.h"
#include "text.h"

/* Makes a text fit for a terminal and for JSON: control characters and what is not UTF-8 become
 * '?'; a character that the cut at the end of the array halved goes. */
static void api_error_clean(char *text) {
    size_t len = strlen(text), at = 0;
    for (;;) {
        bool incomplete;
        at += text_utf8_prefix(text + at, len - at, &incomplete);
        if (at >= len)
            break;
        if (incomplete) {
            text[at] = '\0';
            break;
        }
        text[at++] = '?';
    }
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7F)
            *p = '?';
}

int api_error_set(struct api_error *e, int status, const char *code, const char *field,
                  const char *fmt, ...) {
    if (!e)
        return -1;
    va_list args;
    e->status = status;
    (void)snprintf(e->code, sizeof(e->code), "%s", code);
    (void)snprintf(e->field, sizeof(e->field), "%s", field ? field : "");
    e->quota[0] = '\0';
    e->retry_after_s = 0;
    va_start(args, fmt);
    (void)vsnprintf(e->message, sizeof(e->message), fmt, args);
    va_end(args);
    api_error_clean(e->message);
    api_error_clean(e->field);
    return -1;
}

int api_error_quota(struct api_error *e, const char *quota, unsigned retry_after_s) {
    if (!e)
        return -1;
    (void)snprintf(e->quota, sizeof(e->quota), "%s", quota);
    e->retry_after_s = retry_after_s;
    return -1;
}

int api_error_memory(struct api_error *e) {
    return api_error_set(e, 500, "internal", NULL, "The server is out of memory.");
}

char *api_error_encode(const struct api_error *e, size_t *len) {
    json_t *body =
        json_pack("{s:{s:s, s:s, s:s?, s:s*}}", "error", "code", e->code, "message", e->message,
                  "field", e->field[0] ? e->field : NULL, "quota", e->quota[0] ? e->quota : NULL);
    char *text = body ? json_memory_dump(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text && len)
        *len = strlen(text);
    return text;
}

static const char *api_error_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int api_error_decode(const json_t *body, int status, struct api_error *e) {
    const json_t *object = json_object_get(body, "error");
    const char *message = api_error_text(object, "message");
    if (message[0] == '\0') {
        return api_error_set(e, status, "unknown", NULL, "The server answered with HTTP status %d.",
                             status);
    }
    (void)api_error_set(e, status, api_error_text(object, "code"), api_error_text(object, "field"),
                        "%s", message);
    (void)api_error_quota(e, api_error_text(object, "quota"), 0);
    return 0;
}
