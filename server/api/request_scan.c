/* A tokenizer that knows only strings, brackets, commas and where it is. The JSON library needs
 * about 130 bytes for the two of "[]", copies strings several times, and says line and column but
 * no field; so this pass bounds what it is given and finds the field for its errors. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "request_internal.h"

/* A string of REQUEST_STRING_MAX bytes when every byte is written as \u00XX. */
#define REQUEST_SHORT_MAX (REQUEST_STRING_MAX * 6u)

struct request_level {
    bool object;
    bool want_key;
    const char *key; /* raw, between the quotes; NULL = none yet */
    size_t key_len;
    size_t index; /* in an array */
};

struct request_scan {
    const char *json;
    size_t len; /* where to stop */
    size_t pos;
    size_t tokens;
    unsigned depth;
    const char *text; /* the last string, raw */
    size_t text_len;
    struct request_level levels[REQUEST_DEPTH_MAX + 1];
};

enum request_token { REQUEST_END, REQUEST_OTHER, REQUEST_STRING, REQUEST_TOO_DEEP };

static void request_scan_init(struct request_scan *s, const char *json, size_t len) {
    memset(s, 0, offsetof(struct request_scan, levels) + sizeof(s->levels[0]));
    s->json = json;
    s->len = len;
}

/* Moves behind the closing quote; s->pos is at the opening one. */
static enum request_token request_scan_string(struct request_scan *s) {
    const char *start = s->json + s->pos + 1;
    const char *end = s->json + s->len;
    const char *p = start;
    while (p < end && (p = memchr(p, '"', (size_t)(end - p))) != NULL) {
        size_t slashes = 0;
        while (p - slashes > start && p[-1 - (ptrdiff_t)slashes] == '\\')
            slashes++;
        if (slashes % 2 == 0)
            break;
        p++;
    }
    if (!p || p >= end)
        p = end;
    s->text = start;
    s->text_len = (size_t)(p - start);
    s->pos = (size_t)(p - s->json) + (p < end);
    struct request_level *level = &s->levels[s->depth];
    if (level->object && level->want_key) {
        level->key = s->text;
        level->key_len = s->text_len;
        level->want_key = false;
        return REQUEST_OTHER;
    }
    return REQUEST_STRING;
}

static enum request_token request_scan_open(struct request_scan *s, bool object) {
    if (s->depth == REQUEST_DEPTH_MAX)
        return REQUEST_TOO_DEEP;
    s->levels[++s->depth] = (struct request_level){.object = object, .want_key = object};
    return REQUEST_OTHER;
}

/* The next thing that matters. REQUEST_STRING is a string that is a value. */
static enum request_token request_scan_next(struct request_scan *s) {
    while (s->pos < s->len) {
        char c = s->json[s->pos];
        struct request_level *level = &s->levels[s->depth];
        if (c == '"')
            return request_scan_string(s);
        s->pos++;
        switch (c) {
        case '{':
        case '[':
            s->tokens++;
            return request_scan_open(s, c == '{');
        case '}':
        case ']':
            if (s->depth > 0)
                s->depth--;
            return REQUEST_OTHER;
        case ',':
            s->tokens++;
            level->index++;
            level->want_key = level->object;
            if (level->object)
                level->key = NULL;
            return REQUEST_OTHER;
        default:
            break;
        }
    }
    return REQUEST_END;
}

static bool request_scan_key_is(const struct request_level *level, const char *key) {
    return level->key && level->key_len == strlen(key) &&
           memcmp(level->key, key, level->key_len) == 0;
}

/* Appends "/" and the component with '~' and '/' escaped (RFC 6901) at dst + at; returns where the
 * next one goes, or `size` when it had to be cut and nothing may follow. */
static size_t request_scan_pointer(char *dst, size_t size, size_t at, const char *key, size_t len) {
    if (at + 1 >= size)
        return size;
    dst[at++] = '/';
    size_t i = 0;
    for (; i < len && at + 2 < size; i++) {
        bool escape = key[i] == '~' || key[i] == '/';
        dst[at++] = escape ? '~' : key[i];
        if (escape)
            dst[at++] = key[i] == '~' ? '0' : '1';
    }
    dst[at] = '\0';
    return i < len ? size : at;
}

static void request_scan_field(const struct request_scan *s, char *field, size_t size) {
    size_t at = 0;
    field[0] = '\0';
    for (unsigned d = 1; d <= s->depth; d++) {
        const struct request_level *level = &s->levels[d];
        char number[24];
        if (!level->object) {
            int n = snprintf(number, sizeof(number), "%zu", level->index);
            at = request_scan_pointer(field, size, at, number, (size_t)n);
        } else if (level->key) {
            at = request_scan_pointer(field, size, at, level->key, level->key_len);
        }
    }
}

void request_where(const char *json, size_t len, size_t position, char *field, size_t size) {
    struct request_scan s;
    request_scan_init(&s, json, position < len ? position : len);
    for (;;) {
        enum request_token token = request_scan_next(&s);
        if (token == REQUEST_END || token == REQUEST_TOO_DEEP)
            break;
    }
    request_scan_field(&s, field, size);
}

int request_scan(const char *json, size_t len, struct api_error *error) {
    struct request_scan s;
    char field[API_ERROR_FIELD_MAX];
    request_scan_init(&s, json, len);
    for (;;) {
        switch (request_scan_next(&s)) {
        case REQUEST_END:
            return 0;
        case REQUEST_TOO_DEEP:
            request_scan_field(&s, field, sizeof(field));
            return api_error_set(error, 400, "bad_json", field,
                                 "The body is nested more than %u levels deep.", REQUEST_DEPTH_MAX);
        case REQUEST_STRING:
            if (s.text_len <= REQUEST_SHORT_MAX ||
                request_scan_key_is(&s.levels[s.depth], "stdin") ||
                request_scan_key_is(&s.levels[s.depth], "content"))
                break;
            request_scan_field(&s, field, sizeof(field));
            return api_error_set(error, 400, "too_large", field,
                                 "A string may have at most %u bytes; only file contents and stdin "
                                 "may be longer.",
                                 REQUEST_STRING_MAX);
        default:
            break;
        }
        if (s.levels[s.depth].object && s.levels[s.depth].index >= REQUEST_MEMBERS_MAX) {
            request_scan_field(&s, field, sizeof(field));
            return api_error_set(error, 400, "too_large", field,
                                 "An object may have at most %u members.", REQUEST_MEMBERS_MAX);
        }
        if (s.tokens > REQUEST_TOKENS_MAX)
            return api_error_set(error, 413, "too_large", NULL, "The body has more than %u values.",
                                 REQUEST_TOKENS_MAX);
    }
}
