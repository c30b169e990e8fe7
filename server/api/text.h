/* Bytes as JSON: UTF-8 goes as a string, anything else as base64, and a second field says which.
 * Nothing is replaced. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"

struct json_t;

/* Is all of it UTF-8? Strict: no surrogates, no overlong forms, nothing above U+10FFFF. NUL and
 * other control characters are UTF-8. */
bool text_is_utf8(const void *data, size_t len);

/* Length of the longest prefix that consists of whole UTF-8 characters. *incomplete (may be NULL)
 * is true when what follows it is the beginning (1 to 3 bytes) of a character that more bytes could
 * complete; false when nothing follows or when it can never become UTF-8. */
size_t text_utf8_prefix(const void *data, size_t len, bool *incomplete);

/* Number of continuation bytes (0 to 3) at the front: what a cut in the middle of a character
 * leaves. */
size_t text_utf8_orphans(const void *data, size_t len);

/* Length of the base64 text of `len` bytes, without NUL. */
size_t text_base64_len(size_t len);

/* Appends base64 (RFC 4648 section 4, padded). */
int text_base64_encode(const void *data, size_t len, struct buf *out, struct err *err);

/* Decodes `len` characters of padded base64; line breaks are skipped, everything else is strict
 * (ERR_INVALID). Writes at most len / 4 * 3 bytes to `dst`, which holds that many, and returns
 * their number through *size. */
int text_base64_decode(const char *text, size_t len, char *dst, size_t *size, struct err *err);

/* Sets object[key] and object[key "_encoding"] = "utf-8" | "base64". `key` has at most 48 bytes.
 * -1 only when memory is short. */
int text_to_json(struct json_t *object, const char *key, const void *data, size_t len);

/* The other way: the bytes of object[key], by object[key "_encoding"] (absent: utf-8), appended to
 * `out`. ERR_INVALID when a field is missing or of the wrong type. */
int text_from_json(const struct json_t *object, const char *key, struct buf *out, struct err *err);

/* Appends `data`, which must be UTF-8, as a JSON string with its quotes. For streams, where
 * building a tree first would cost more than the data. */
int text_append_json(struct buf *out, const void *data, size_t len, struct err *err);
