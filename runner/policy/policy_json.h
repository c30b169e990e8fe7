/* Reading a policy's JSON strictly: a table of keys per object, and errors that say where. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

#define POLICY_WHERE_MAX 128

/* One object that is being read; `where` is its JSON pointer ("" for the file's top level). */
struct policy_object {
    char where[POLICY_WHERE_MAX];
    const json_t *json;
};

/* Opens the member `key` of `up`: it must be an object with exactly the keys of the NULL-terminated
 * list. */
int policy_json_open(const struct policy_object *up, const char *key, const char *const *keys,
                     struct policy_object *out, struct err *err);
/* The same for the whole file, in which the keys of `more` may be missing. */
int policy_json_top(const json_t *json, const char *const *keys, const char *const *more,
                    struct policy_object *out, struct err *err);

bool policy_json_has(const struct policy_object *o, const char *key);
int policy_json_bool(const struct policy_object *o, const char *key, bool *out, struct err *err);
int policy_json_u64(const struct policy_object *o, const char *key, uint64_t min, uint64_t max,
                    uint64_t *out, struct err *err);
/* A string that is not blank; borrowed. */
int policy_json_text(const struct policy_object *o, const char *key, const char **out,
                     struct err *err);
/* Index of the string in the NULL-terminated list of words. */
int policy_json_word(const struct policy_object *o, const char *key, const char *const *words,
                     uint32_t *out, struct err *err);
/* An array; borrowed. */
int policy_json_array(const struct policy_object *o, const char *key, const json_t **out,
                      struct err *err);
/* An array of different words: bit i of the mask stands for words[i]. */
int policy_json_words(const struct policy_object *o, const char *key, const char *const *words,
                      uint32_t *mask, struct err *err);
