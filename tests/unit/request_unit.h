/* Bodies that are accepted, and bodies that are refused with this status, code and field. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "request.h"
#include "unit.h"

/* Decodes from an exact-size heap copy, so that a read beyond the end is seen by the sanitizer. */
static int decode_bytes(const char *json, size_t len, struct run_request *r, struct api_error *e) {
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, json, len);
    memset(e, 0, sizeof(*e));
    int rc = request_decode(copy, len, r, e);
    free(copy);
    return rc;
}

static struct run_request decode_ok(const char *json) {
    struct run_request r = {0};
    struct api_error e;
    if (decode_bytes(json, strlen(json), &r, &e) != 0)
        fail_msg("%.200s: refused: %s (%s)", json, e.message, e.field);
    return r;
}

static void expect_error_bytes(const char *json, size_t len, int status, const char *code,
                               const char *field) {
    struct run_request r, before;
    struct api_error e;
    memset(&r, 0x5a, sizeof(r));
    before = r;
    if (decode_bytes(json, len, &r, &e) == 0)
        fail_msg("%.200s: accepted", json);
    if (e.status != status || strcmp(e.code, code) != 0 || (field && strcmp(e.field, field) != 0))
        fail_msg("%.200s: got %d %s at \"%s\" (%s), wanted %d %s at \"%s\"", json, e.status, e.code,
                 e.field, e.message, status, code, field ? field : "");
    assert_true(strlen(e.message) > 10);
    assert_non_null(strchr(".?", e.message[strlen(e.message) - 1])); /* a whole sentence */
    assert_memory_equal(&r, &before, sizeof(r));
}

static void expect_error(const char *json, int status, const char *code, const char *field) {
    expect_error_bytes(json, strlen(json), status, code, field);
}

struct bad {
    const char *json;
    const char *code;
    const char *field;
};

static void expect_bad(const struct bad *table, size_t count) {
    for (size_t i = 0; i < count; i++)
        expect_error(table[i].json, 400, table[i].code, table[i].field);
}

#define EXPECT_BAD(table) expect_bad(table, sizeof(table) / sizeof((table)[0]))
