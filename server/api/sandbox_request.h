/* The bodies of requests for sandboxes and snapshots, decoded: pure and strict, as request.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "request.h"

#define SANDBOX_REQUEST_TIME_MIN_MS 100u
#define SANDBOX_REQUEST_TIME_MAX_MS ((uint64_t)7 * 24 * 60 * 60 * 1000)
#define SANDBOX_REQUEST_METADATA_MAX 16384u /* bytes as JSON */
#define SANDBOX_REQUEST_NAME_MAX 128u       /* bytes of a snapshot's name */
#define SANDBOX_REQUEST_REF_MAX 63u         /* bytes of what is named by `from` or `snapshot` */
#define SANDBOX_REQUEST_FORK_MAX 64u

/* What the caller left open is NULL, 0 or set == false. */
struct sandbox_request {
    const char *policy, *image; /* str_is_name() holds */
    enum backend backend;       /* BACKEND_NONE when not given */
    const char *image_digest;   /* "sha256:" and 64 hex digits */
    const char *from;           /* "snap_…" or "run_…@5"; not looked at */
    enum request_network network;
    struct request_limits limits;
    struct request_env env;
    uint64_t ttl_ms, idle_ms;
    bool disk_set, disk_file;
    struct json_t *metadata; /* an object, borrowed */

    struct request_mem *mem; /* private */
    struct json_t *root;     /* private */
};

/* POST /v1/sandboxes. 0: the caller owns *out. -1: *error is filled, *out is untouched. */
int sandbox_request_decode(const char *json, size_t len, struct sandbox_request *out,
                           struct api_error *error);
void sandbox_request_done(struct sandbox_request *r);

/* POST …/ttl {"ttl_ms": N} */
int sandbox_request_ttl(const char *json, size_t len, uint64_t *ttl_ms, struct api_error *error);
/* POST …/fork {"count": N}; an empty body is 1. */
int sandbox_request_fork(const char *json, size_t len, uint32_t *count, struct api_error *error);
/* POST …/snapshots {"name": "…"}; an empty body and no name are "". */
int sandbox_request_snapshot(const char *json, size_t len, char name[SANDBOX_REQUEST_NAME_MAX + 1],
                             struct api_error *error);
/* POST …/restore {"snapshot": "…"} */
int sandbox_request_restore(const char *json, size_t len, char ref[SANDBOX_REQUEST_REF_MAX + 1],
                            struct api_error *error);
