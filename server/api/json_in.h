/* Reads JSON value by value, in the order in which it stands there, without building a tree: for
 * bodies of a hundred thousand objects, of which a tree costs ten times as much as reading them.
 *
 * Strict: RFC 8259, nothing around the value but blanks, every string valid UTF-8 and without NUL.
 * Strings are decoded in place and terminated, so the bytes are changed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_IN_DEPTH_MAX 8u

enum json_in_type {
    JSON_IN_NOTHING, /* the end, or what cannot begin a value */
    JSON_IN_OBJECT,
    JSON_IN_ARRAY,
    JSON_IN_STRING,
    JSON_IN_NUMBER,
    JSON_IN_TRUE,
    JSON_IN_FALSE,
    JSON_IN_NULL,
};

struct json_in {
    char *json;
    size_t len, pos;
    unsigned depth;
    bool later[JSON_IN_DEPTH_MAX + 1]; /* something was read at this level: a comma comes first */
    const char *wrong;                 /* what is wrong with the bytes at `pos`; NULL = nothing */
};

void json_in_init(struct json_in *j, char *json, size_t len);

/* What comes next; reads nothing but blanks. */
enum json_in_type json_in_peek(struct json_in *j);

/* All return -1 with j->wrong set when the bytes are something else. */
int json_in_open(struct json_in *j, char bracket); /* '{' or '[' */
/* The next member of an object: 1, with its name, or 0 when the object is over. */
int json_in_key(struct json_in *j, const char **key, size_t *len);
/* Is there another element in the array? 0: it is over. */
int json_in_item(struct json_in *j);
int json_in_string(struct json_in *j, const char **text, size_t *len);
/* An integer that is not negative, without fraction or exponent. */
int json_in_u64(struct json_in *j, uint64_t *value);
int json_in_bool(struct json_in *j, bool *value);
/* Nothing else may come. */
int json_in_end(struct json_in *j);
