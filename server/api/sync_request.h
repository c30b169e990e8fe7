/* The body of POST /v1/sandboxes/{id}/sync, decoded: what is to be below a directory of a sandbox.
 *
 * Pure; safe on any thread. Read with json_in.h, in one pass: of 10,000 entries (1.6 MB), jansson's
 * tree takes 35 ms and its release another 7; this takes 6.
 *
 * Strict, as request.h. Names that are not UTF-8 come as `path_base64` and `target_base64`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "fileop.h"

#define SYNC_ENTRIES_MAX 200000u /* those that are named, and their parents besides */
#define SYNC_SHA256_SIZE 32u
#define SYNC_MODE_ANY UINT32_MAX /* leave it, or the usual one */
#define SYNC_SIZE_MAX ((uint64_t)1 << 50)

struct sync_entry {
    const char *path; /* bundle_path_ok() holds */
    const char *target;
    uint64_t size;
    uint32_t path_len, target_len;
    uint32_t mode;  /* 0…0777, or SYNC_MODE_ANY; of a symlink: always ANY */
    uint32_t index; /* in the request; of an implied directory: of what implies it */
    uint8_t kind;   /* enum fileop_kind: FILE, DIRECTORY, SYMLINK */
    bool implied;   /* a directory that was not named, but something below it */
    unsigned char sha256[SYNC_SHA256_SIZE];
};

/* Owned by it, until sync_request_done(). May be moved. */
struct sync_request {
    const char *root;           /* sync_root_ok() holds */
    struct sync_entry *entries; /* in the order of sync_path_compare(), parents first; no path
                                   twice, none below what is not a directory */
    size_t count;
    bool delete;
    bool snapshot; /* default true: a layer boundary may be made afterwards */

    char *json; /* private: strings are in it */
    char *extra;
};

/* Decodes `len` bytes, at json[len] there is a NUL. They are changed. 0: json (malloc'ed) belongs
 * to *out. -1: *error is filled (400, 413, or 500 when memory is short), json stays the caller's,
 * in an undefined state. */
int sync_request_decode(char *json, size_t len, struct sync_request *out, struct api_error *error);
/* Accepts NULL and a zeroed struct. */
void sync_request_done(struct sync_request *r);

/* Order of trees: '/' is less than every other byte, so that what is below a path comes right after
 * it. */
int sync_path_compare(const char *a, size_t a_len, const char *b, size_t b_len);
/* Is `path` below `dir` ("a/b" below "a")? */
bool sync_path_below(const char *path, size_t path_len, const char *dir, size_t dir_len);

/* Absolute, one of the directories that a sandbox can write to or below it, in its shortest form.
 */
bool sync_root_ok(const char *root, size_t len);

/* 64 hexadecimal digits, 0-9 and a-f. */
int sync_sha256_parse(const char *hex, size_t len, unsigned char sha256[SYNC_SHA256_SIZE]);
void sync_sha256_text(const unsigned char sha256[SYNC_SHA256_SIZE],
                      char hex[2 * SYNC_SHA256_SIZE + 1]);
