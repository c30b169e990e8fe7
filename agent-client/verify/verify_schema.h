/* JSON against a JSON Schema (draft 2020-12): what the two files of the verifier share.
 *
 * All keywords of the core, applicator and validation vocabularies but $dynamicRef, $anchor,
 * unevaluatedItems and unevaluatedProperties; `format` is an annotation, as the standard has it. A
 * keyword that is not known is an error, not skipped: a schema must not seem to hold. */
#pragma once

#include <jansson.h>

#include "verify.h"

#define VERIFY_SCHEMA_DEPTH_MAX 128u /* of schema inside schema, $ref included */
#define VERIFY_SCHEMA_PATH_SIZE 1024

struct verify_schema_check {
    const json_t *root; /* the schema */
    const char *file;   /* of the data; for failures */
    struct verify_report *report;
    struct err *err;
    unsigned depth;
    unsigned silent; /* inside anyOf, not, if, …: a failure there is only counted */
    uint64_t wrong;  /* failures seen while silent */
    uint64_t steps;  /* bounds the whole: a few $refs can ask for exponential work */
    char path[VERIFY_SCHEMA_PATH_SIZE]; /* JSON pointer of the value */
};

#define VERIFY_SCHEMA_STEPS_MAX ((uint64_t)50 * 1000 * 1000)

/* 0: judged, failures are in the report; -1: the schema is not understood. */
int verify_schema_value(struct verify_schema_check *c, const json_t *schema, const json_t *value);
void verify_schema_wrong(struct verify_schema_check *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* verify_schema_plain.c: keywords that look at a value only. */
/* 1: a keyword of this kind, 0: another, -1: it is not understood. */
int verify_schema_plain(struct verify_schema_check *c, const char *keyword, const json_t *wish,
                        const json_t *value);
/* Does a regular expression match? 1, 0, -1: it is none, or needs more than it may. */
int verify_schema_match(struct verify_schema_check *c, const char *pattern, const char *text,
                        size_t len);
