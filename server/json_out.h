/* Writes JSON into a buffer, one value after the other, without building a tree. Errors stick:
 * write everything, then ask json_out_end(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct json_t;

struct json_out {
    struct buf *buf; /* borrowed */
    struct err err;
    bool failed;
    bool comma; /* a value was written at this level */
};

void json_out_init(struct json_out *j, struct buf *buf);
/* 0 when everything fitted; else -1 and *err (may be NULL) says why. */
int json_out_end(struct json_out *j, struct err *err);

/* In all of these, `key` is NULL for an element of an array (or the outermost value) and a literal
 * that needs no escaping otherwise. */
void json_out_open(struct json_out *j, const char *key, char bracket); /* '{' or '[' */
void json_out_close(struct json_out *j, char bracket);                 /* '}' or ']' */
void json_out_u64(struct json_out *j, const char *key, uint64_t value);
void json_out_i64(struct json_out *j, const char *key, int64_t value);
void json_out_bool(struct json_out *j, const char *key, bool value);
void json_out_null(struct json_out *j, const char *key);
/* A string of two digits for each byte. */
void json_out_hex(struct json_out *j, const char *key, const uint8_t *bytes, size_t len);
/* NUL-terminated; bytes that are not UTF-8 come out as '?'. */
void json_out_str(struct json_out *j, const char *key, const char *text);
/* A tree that jansson made (borrowed; NULL counts as memory being short). */
void json_out_tree(struct json_out *j, const char *key, const struct json_t *tree);
/* Only the key (or the comma): the caller appends the value to j->buf itself. */
void json_out_raw(struct json_out *j, const char *key);
/* Bytes that lie in several places, as `key`: text and `encoding_key`: "utf-8" or "base64". `utf8`
 * says that all of them together are UTF-8. */
struct iovec;
struct json_out_bytes {
    const char *key, *encoding_key;
    const struct iovec *parts;
    size_t count;
    bool utf8;
};
void json_out_bytes(struct json_out *j, const struct json_out_bytes *bytes);
