#include "sandbox_request.h"

#include <inttypes.h>
#include <string.h>

#include "request_internal.h"

struct sandbox_request_body {
    json_t *network, *env, *ttl, *idle, *disk, *metadata, *from;
    json_t *count, *name, *snapshot;
    struct sandbox_request r;
};

#define SANDBOX_REQUEST_KEEP(name, member)                                                         \
    { name, request_keep, offsetof(struct sandbox_request_body, member) }
#define SANDBOX_REQUEST_READ(name, reader, member)                                                 \
    { name, reader, offsetof(struct sandbox_request_body, r.member) }

static const struct request_field sandbox_request_fields[] = {
    SANDBOX_REQUEST_READ("policy", request_name, policy),
    SANDBOX_REQUEST_READ("image", request_name, image),
    SANDBOX_REQUEST_READ("backend", request_backend, backend),
    SANDBOX_REQUEST_READ("image_digest", request_digest, image_digest),
    SANDBOX_REQUEST_READ("limits", request_run_limits, limits),
    SANDBOX_REQUEST_KEEP("env", env),
    SANDBOX_REQUEST_KEEP("network", network),
    SANDBOX_REQUEST_KEEP("ttl_ms", ttl),
    SANDBOX_REQUEST_KEEP("idle_ms", idle),
    SANDBOX_REQUEST_KEEP("from", from),
    SANDBOX_REQUEST_KEEP("disk", disk),
    SANDBOX_REQUEST_KEEP("metadata", metadata),
    {NULL, NULL, 0},
};

static const struct request_field sandbox_request_ttl_fields[] = {
    SANDBOX_REQUEST_KEEP("ttl_ms", ttl), {NULL, NULL, 0}};
static const struct request_field sandbox_request_fork_fields[] = {
    SANDBOX_REQUEST_KEEP("count", count), {NULL, NULL, 0}};
static const struct request_field sandbox_request_snapshot_fields[] = {
    SANDBOX_REQUEST_KEEP("name", name), {NULL, NULL, 0}};
static const struct request_field sandbox_request_restore_fields[] = {
    SANDBOX_REQUEST_KEEP("snapshot", snapshot), {NULL, NULL, 0}};

static int sandbox_request_number(struct request_ctx *ctx, const char *key, json_t *value,
                                  uint64_t min, uint64_t max, uint64_t *out) {
    struct request_path at = {.key = key};
    if (!json_is_integer(value))
        return request_fail(ctx, &at, 400, "wrong_type",
                            "must be a whole number from %" PRIu64 " to %" PRIu64 ".", min, max);
    json_int_t n = json_integer_value(value);
    if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
        return request_fail(ctx, &at, 400, "out_of_range",
                            "is %" JSON_INTEGER_FORMAT " but must be from %" PRIu64 " to %" PRIu64
                            ".",
                            n, min, max);
    *out = (uint64_t)n;
    return 0;
}

static int sandbox_request_time(struct request_ctx *ctx, const char *key, json_t *value,
                                uint64_t *out) {
    return sandbox_request_number(ctx, key, value, SANDBOX_REQUEST_TIME_MIN_MS,
                                  SANDBOX_REQUEST_TIME_MAX_MS, out);
}

static int sandbox_request_disk(struct request_ctx *ctx, json_t *value, struct sandbox_request *r) {
    struct request_path at = {.key = "disk"};
    const char *text;
    if (request_text(ctx, &at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    r->disk_set = true;
    r->disk_file = strcmp(text, "file") == 0;
    if (!r->disk_file && strcmp(text, "memory") != 0)
        return request_fail(ctx, &at, 400, "invalid_value", "must be \"memory\" or \"file\".");
    return 0;
}

static int sandbox_request_metadata(struct request_ctx *ctx, json_t *value, json_t **out) {
    struct request_path at = {.key = "metadata"};
    if (!json_is_object(value))
        return request_wrong_type(ctx, &at, "an object");
    size_t len = json_dumpb(value, NULL, 0, JSON_COMPACT);
    if (len > SANDBOX_REQUEST_METADATA_MAX)
        return request_fail(ctx, &at, 413, "too_large", "has %zu bytes; at most %u are allowed.",
                            len, SANDBOX_REQUEST_METADATA_MAX);
    *out = value;
    return 0;
}

static int sandbox_request_build(struct request_ctx *ctx, json_t *root,
                                 struct sandbox_request_body *b) {
    struct sandbox_request *r = &b->r;
    if (request_object(ctx, NULL, root, sandbox_request_fields, b) != 0)
        return -1;
    if (b->network && request_network(ctx, b->network, &r->network) != 0)
        return -1;
    if (b->env && request_env(ctx, &(struct request_path){.key = "env"}, b->env, &r->env) != 0)
        return -1;
    if (b->ttl && sandbox_request_time(ctx, "ttl_ms", b->ttl, &r->ttl_ms) != 0)
        return -1;
    if (b->idle && sandbox_request_time(ctx, "idle_ms", b->idle, &r->idle_ms) != 0)
        return -1;
    if (b->from && request_text(ctx, &(struct request_path){.key = "from"}, b->from,
                                SANDBOX_REQUEST_REF_MAX, &r->from) != 0)
        return -1;
    if (b->disk && sandbox_request_disk(ctx, b->disk, r) != 0)
        return -1;
    return b->metadata ? sandbox_request_metadata(ctx, b->metadata, &r->metadata) : 0;
}

int sandbox_request_decode(const char *json, size_t len, struct sandbox_request *out,
                           struct api_error *error) {
    json_t *root = request_parse(json, len, error);
    if (!root)
        return -1;
    struct request_ctx ctx = {.error = error};
    struct sandbox_request_body body = {0};
    if (sandbox_request_build(&ctx, root, &body) != 0) {
        request_mem_free(ctx.mem);
        json_decref(root);
        return -1;
    }
    body.r.mem = ctx.mem;
    body.r.root = root;
    *out = body.r;
    return 0;
}

void sandbox_request_done(struct sandbox_request *r) {
    if (!r)
        return;
    request_mem_free(r->mem);
    json_decref(r->root);
    memset(r, 0, sizeof(*r));
}

/* The small bodies: one field each. */

static json_t *sandbox_request_small(const char *json, size_t len,
                                     const struct request_field *table,
                                     struct sandbox_request_body *b, struct api_error *error) {
    json_t *root = request_parse(json, len, error);
    struct request_ctx ctx = {.error = error};
    if (root && request_object(&ctx, NULL, root, table, b) != 0) {
        json_decref(root);
        root = NULL;
    }
    request_mem_free(ctx.mem);
    return root;
}

static int sandbox_request_missing(const char *key, struct api_error *error) {
    struct request_ctx ctx = {.error = error};
    return request_fail(&ctx, &(struct request_path){.key = key}, 400, "missing_field",
                        "is missing.");
}

int sandbox_request_ttl(const char *json, size_t len, uint64_t *ttl_ms, struct api_error *error) {
    struct sandbox_request_body b = {0};
    struct request_ctx ctx = {.error = error};
    json_t *root = sandbox_request_small(json, len, sandbox_request_ttl_fields, &b, error);
    if (!root)
        return -1;
    int rc = b.ttl ? sandbox_request_time(&ctx, "ttl_ms", b.ttl, ttl_ms)
                   : sandbox_request_missing("ttl_ms", error);
    json_decref(root);
    return rc;
}

int sandbox_request_fork(const char *json, size_t len, uint32_t *count, struct api_error *error) {
    struct sandbox_request_body b = {0};
    struct request_ctx ctx = {.error = error};
    uint64_t n = 1;
    if (len > 0) {
        json_t *root = sandbox_request_small(json, len, sandbox_request_fork_fields, &b, error);
        if (!root)
            return -1;
        int rc = b.count ? sandbox_request_number(&ctx, "count", b.count, 1,
                                                  SANDBOX_REQUEST_FORK_MAX, &n)
                         : 0;
        json_decref(root);
        if (rc != 0)
            return -1;
    }
    *count = (uint32_t)n;
    return 0;
}

/* A text field into an array of max + 1 bytes. */
static int sandbox_request_copy(const char *key, json_t *value, char *out, size_t max,
                                struct api_error *error) {
    struct request_path at = {.key = key};
    struct request_ctx ctx = {.error = error};
    const char *text;
    if (request_text(&ctx, &at, value, max, &text) != 0)
        return -1;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return request_fail(&ctx, &at, 400, "invalid_value",
                                "must not contain control characters.");
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

int sandbox_request_snapshot(const char *json, size_t len, char name[SANDBOX_REQUEST_NAME_MAX + 1],
                             struct api_error *error) {
    struct sandbox_request_body b = {0};
    int rc = 0;
    name[0] = '\0';
    if (len == 0)
        return 0;
    json_t *root = sandbox_request_small(json, len, sandbox_request_snapshot_fields, &b, error);
    if (!root)
        return -1;
    if (b.name)
        rc = sandbox_request_copy("name", b.name, name, SANDBOX_REQUEST_NAME_MAX, error);
    json_decref(root);
    return rc;
}

int sandbox_request_restore(const char *json, size_t len, char ref[SANDBOX_REQUEST_REF_MAX + 1],
                            struct api_error *error) {
    struct sandbox_request_body b = {0};
    json_t *root = sandbox_request_small(json, len, sandbox_request_restore_fields, &b, error);
    if (!root)
        return -1;
    int rc = b.snapshot
                 ? sandbox_request_copy("snapshot", b.snapshot, ref, SANDBOX_REQUEST_REF_MAX, error)
                 : sandbox_request_missing("snapshot", error);
    json_decref(root);
    return rc;
}
