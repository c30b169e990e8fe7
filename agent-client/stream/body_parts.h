/* Parts that the bodies of several requests have alike. Texts of ours must be UTF-8: JSON has no
 * other (ERR_INVALID). */
#pragma once

#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "limit_options.h"
#include "opt.h"

struct json_t;

int body_parts_memory(struct err *err);
/* Steals `value`; NULL is a failure that *err tells already. */
int body_parts_set(struct json_t *object, const char *key, struct json_t *value, struct err *err);
/* Nothing when `text` is NULL. */
int body_parts_set_text(struct json_t *object, const char *key, const char *text, struct err *err);
/* "NAME", or "NAME@sha256:HEX": that one and no other. */
int body_parts_set_image(struct json_t *object, const char *text, struct err *err);
int body_parts_set_list(struct json_t *object, const char *key, const char *const *items,
                        size_t count, struct err *err);
/* object[key] = {NAME: VALUE, …} of "NAME=VALUE" items. */
int body_parts_set_pairs(struct json_t *object, const char *key, const struct opt_list *list,
                         struct err *err);
/* 0 when all items are NAME=VALUE; `option` is for the message. */
int body_parts_check_pairs(const struct opt_list *list, const char *option, struct err *err);
int body_parts_set_limits(struct json_t *object, const struct limit_options *limits,
                          struct err *err);
/* Appends "key":"…","encoding_key":"utf-8" (or base64) as text. */
int body_parts_put_bytes(struct buf *out, const char *key, const char *encoding_key,
                         const struct buf *bytes, struct err *err);
