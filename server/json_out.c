#include "json_out.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/uio.h>

#include "text.h"

void json_out_init(struct json_out *j, struct buf *buf) {
    memset(j, 0, sizeof(*j));
    j->buf = buf;
}

int json_out_end(struct json_out *j, struct err *err) {
    if (!j->failed)
        return 0;
    if (err != NULL)
        *err = j->err;
    return -1;
}

static char *json_out_room(struct json_out *j, size_t len) {
    char *at = j->failed ? NULL : buf_extend(j->buf, len, &j->err);
    if (at == NULL)
        j->failed = true;
    return at;
}

static void json_out_put(struct json_out *j, const char *data, size_t len) {
    char *at = json_out_room(j, len);
    if (at != NULL)
        memcpy(at, data, len);
}

/* The comma, the key, and room for a value of so many bytes, which is where NULL or the pointer
 * points. A short answer has two hundred members: each is one piece for the buffer. */
static char *json_out_member(struct json_out *j, const char *key, size_t len) {
    size_t name = key != NULL ? strlen(key) : 0;
    bool comma = j->comma;
    j->comma = true;
    char *at = json_out_room(j, comma + (key != NULL ? name + 3 : 0) + len);
    if (at == NULL)
        return NULL;
    if (comma)
        *at++ = ',';
    if (key == NULL)
        return at;
    *at++ = '"';
    memcpy(at, key, name);
    at += name;
    *at++ = '"';
    *at++ = ':';
    return at;
}

static void json_out_literal(struct json_out *j, const char *key, const char *text, size_t len) {
    char *at = json_out_member(j, key, len);
    if (at != NULL)
        memcpy(at, text, len);
}

void json_out_raw(struct json_out *j, const char *key) {
    (void)json_out_member(j, key, 0);
}

void json_out_open(struct json_out *j, const char *key, char bracket) {
    json_out_literal(j, key, &bracket, 1);
    j->comma = false;
}

void json_out_close(struct json_out *j, char bracket) {
    json_out_put(j, &bracket, 1);
    j->comma = true;
}

void json_out_u64(struct json_out *j, const char *key, uint64_t value) {
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    json_out_literal(j, key, digits + at, sizeof(digits) - at);
}

void json_out_i64(struct json_out *j, const char *key, int64_t value) {
    if (value >= 0) {
        json_out_u64(j, key, (uint64_t)value);
        return;
    }
    json_out_literal(j, key, "-", 1);
    j->comma = false;
    json_out_u64(j, NULL, (uint64_t)0 - (uint64_t)value);
}

void json_out_bool(struct json_out *j, const char *key, bool value) {
    json_out_literal(j, key, value ? "true" : "false", value ? 4 : 5);
}

void json_out_null(struct json_out *j, const char *key) {
    json_out_literal(j, key, "null", 4);
}

void json_out_hex(struct json_out *j, const char *key, const uint8_t *bytes, size_t len) {
    static const char digits[] = "0123456789abcdef";
    char *at = json_out_member(j, key, 2 * len + 2);
    if (at == NULL)
        return;
    *at++ = '"';
    for (size_t i = 0; i < len; i++) {
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
    }
    *at = '"';
}

static void json_out_text(struct json_out *j, const char *text, size_t len) {
    if (!j->failed && text_append_json(j->buf, text, len, &j->err) < 0)
        j->failed = true;
}

/* Nothing of it is escaped, or needs a look at all of it. */
static bool json_out_is_plain(const char *text, size_t len) {
    bool plain = true;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        plain &= c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
    }
    return plain;
}

void json_out_str(struct json_out *j, const char *key, const char *text) {
    size_t len = strlen(text);
    if (json_out_is_plain(text, len)) {
        char *at = json_out_member(j, key, len + 2);
        if (at == NULL)
            return;
        at[0] = '"';
        memcpy(at + 1, text, len);
        at[len + 1] = '"';
        return;
    }
    json_out_raw(j, key);
    if (text_is_utf8(text, len)) {
        json_out_text(j, text, len);
        return;
    }
    json_out_put(j, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        json_out_put(j, plain ? text + i : "?", 1);
    }
    json_out_put(j, "\"", 1);
}

static int json_out_sink(const char *data, size_t len, void *arg) {
    struct json_out *j = arg;
    json_out_put(j, data, len);
    return j->failed ? -1 : 0;
}

void json_out_tree(struct json_out *j, const char *key, const struct json_t *tree) {
    json_out_raw(j, key);
    if (j->failed)
        return;
    if (tree == NULL ||
        json_dump_callback(tree, json_out_sink, j, JSON_COMPACT | JSON_ENCODE_ANY) < 0) {
        if (!j->failed)
            err_set(&j->err, ERR_SYSTEM, 0, "writing JSON: out of memory");
        j->failed = true;
    }
}

/* A JSON string of several parts: each part is appended as a string of its own and the quotes
 * between them are taken out. A character may be cut by a border only if `utf8` is false. */
static void json_out_joined(struct json_out *j, const struct iovec *parts, size_t count) {
    json_out_put(j, "\"", 1);
    for (size_t i = 0; i < count && !j->failed; i++) {
        if (parts[i].iov_len == 0)
            continue;
        size_t before = j->buf->len;
        json_out_text(j, parts[i].iov_base, parts[i].iov_len);
        if (j->failed)
            return;
        memmove(j->buf->data + before, j->buf->data + before + 1, j->buf->len - before - 2);
        j->buf->len -= 2;
        j->buf->data[j->buf->len] = '\0';
    }
    json_out_put(j, "\"", 1);
}

static void json_out_base64(struct json_out *j, const struct iovec *parts, size_t count) {
    struct buf whole;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].iov_len;
    buf_init(&whole, total + 1);
    const char *data = count > 0 ? parts[0].iov_base : "";
    if (count > 1) {
        for (size_t i = 0; i < count && !j->failed; i++)
            j->failed = buf_append(&whole, parts[i].iov_base, parts[i].iov_len, &j->err) < 0;
        data = whole.data;
    }
    json_out_put(j, "\"", 1);
    if (!j->failed && text_base64_encode(data, total, j->buf, &j->err) < 0)
        j->failed = true;
    json_out_put(j, "\"", 1);
    buf_done(&whole);
}

void json_out_bytes(struct json_out *j, const struct json_out_bytes *bytes) {
    json_out_raw(j, bytes->key);
    if (!bytes->utf8)
        json_out_base64(j, bytes->parts, bytes->count);
    else if (bytes->count == 1)
        json_out_text(j, bytes->parts[0].iov_base, bytes->parts[0].iov_len);
    else
        json_out_joined(j, bytes->parts, bytes->count);
    json_out_str(j, bytes->encoding_key, bytes->utf8 ? "utf-8" : "base64");
}
