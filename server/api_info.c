#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "fd.h"
#include "image.h"
#include "image_ref.h"
#include "json_out.h"
#include "ready.h"

#define API_INFO_MAX ((size_t)4 * 1024 * 1024)
#define API_INFO_JSON "application/json"

static void api_info_begin(struct json_out *j, struct buf *out) {
    buf_init(out, API_INFO_MAX);
    json_out_init(j, out);
    json_out_open(j, NULL, '{');
}

static void api_info_end(struct http_req *req, struct json_out *j) {
    json_out_close(j, '}');
    api_reply_buf(req, 200, API_INFO_JSON, j->buf, json_out_end(j, NULL));
}

void api_info_healthz(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)s;
    (void)args;
    struct buf out;
    struct json_out j;
    api_info_begin(&j, &out);
    json_out_str(&j, "status", "ok");
    api_info_end(req, &j);
}

/* What the operator of the runner gave up: ready, but without these. */
static void api_info_not_enforced(const struct server *s, struct json_out *j) {
    const struct link *shard = links_first_ready(&s->links);
    json_out_open(j, "not_enforced", '[');
    for (size_t i = 0; shard != NULL && i < shard->capability_count; i++) {
        if (shard->capabilities[i].status == WIRE_CAP_GIVEN_UP)
            json_out_str(j, NULL, shard->capabilities[i].name);
    }
    json_out_close(j, ']');
}

/* Red: the error that every client understands, and all reasons by layer. */
void api_info_readyz(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct buf out;
    struct json_out j;
    struct ready_reason reasons[READY_MAX];
    char message[400];
    size_t n = ready_reasons(s, reasons);
    seen_ready(s, reasons, n);
    api_info_begin(&j, &out);
    if (n == 0) {
        json_out_str(&j, "status", "ready");
    } else {
        snprintf(message, sizeof(message), "Not ready: %s.", reasons[0].message);
        json_out_open(&j, "error", '{');
        json_out_str(&j, "code", "not_ready");
        json_out_str(&j, "message", message);
        json_out_close(&j, '}');
        http_add_header(req, "Retry-After", "1");
    }
    json_out_bool(&j, "ready", n == 0);
    json_out_open(&j, "reasons", '[');
    for (size_t i = 0; i < n; i++) {
        json_out_open(&j, NULL, '{');
        json_out_str(&j, "layer", reasons[i].layer);
        json_out_str(&j, "message", reasons[i].message);
        json_out_close(&j, '}');
    }
    json_out_close(&j, ']');
    api_info_not_enforced(s, &j);
    json_out_close(&j, '}');
    api_reply_buf(req, n == 0 ? 200 : 503, API_INFO_JSON, &out, json_out_end(&j, NULL));
}

static void api_info_capability(struct json_out *j, const struct wire_capability *c) {
    json_out_open(j, NULL, '{');
    json_out_str(j, "name", c->name);
    json_out_str(j, "status", c->status == WIRE_CAP_ENFORCED ? "enforced" : "unavailable");
    json_out_bool(j, "required", c->required != 0);
    if (c->status == WIRE_CAP_GIVEN_UP)
        json_out_bool(j, "accepted", true); /* by whoever started the runner */
    json_out_str(j, "how", c->how);
    json_out_str(j, "proof", c->proof);
    if (c->remedy[0] != '\0')
        json_out_str(j, "remedy", c->remedy);
    json_out_close(j, '}');
}

/* The one limit that the server keeps and no runner. */
static void api_info_output(struct json_out *j) {
    char proof[160];
    snprintf(
        proof, sizeof(proof),
        "at start, %u bytes went through a cap of %u: as many were kept, half from the beginning "
        "and half from the end, and the rest was counted",
        CAPTURE_PROBE_BYTES, CAPTURE_PROBE_CAP);
    json_out_open(j, NULL, '{');
    json_out_str(j, "name", limit_info(LIMIT_OUTPUT_BYTES)->name);
    json_out_str(j, "status", "enforced");
    json_out_bool(j, "required", true);
    json_out_str(j, "how",
                 "the server keeps the first and the last half and counts what is between");
    json_out_str(j, "proof", proof);
    json_out_close(j, '}');
}

static void api_info_proofs(struct json_out *j, const struct link *shard) {
    json_out_open(j, "capabilities", '[');
    for (size_t i = 0; i < shard->capability_count; i++)
        api_info_capability(j, &shard->capabilities[i]);
    api_info_output(j);
    json_out_close(j, ']');
}

/* A back end that is there: its shards, and what they proved. */
static void api_info_backend(struct json_out *j, struct server *s, enum backend backend) {
    struct links_totals t;
    const struct link *shard = links_first_ready_of(&s->links, backend);
    if (shard == NULL)
        return;
    links_sum(&s->links, backend, &t);
    json_out_open(j, NULL, '{');
    json_out_str(j, "name", backend_name(backend));
    json_out_u64(j, "shards", t.ready);
    json_out_u64(j, "slots", t.slots);
    json_out_u64(j, "warm", t.warm);
    json_out_str(j, "health", t.health);
    api_info_proofs(j, shard);
    json_out_close(j, '}');
}

void api_info_capabilities(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct buf out;
    struct json_out j;
    struct api_error error = {0};
    struct links_totals t;
    const struct link *shard = links_first_ready(&s->links);
    if (shard == NULL) {
        api_error_set(&error, 503, "no_runner", NULL, "No runner is connected: %s.",
                      s->links.last_error);
        http_reply_error(req, &error);
        return;
    }
    links_sum(&s->links, BACKEND_NONE, &t);
    api_info_begin(&j, &out);
    json_out_u64(&j, "shards", t.ready);
    json_out_u64(&j, "slots", t.slots);
    json_out_u64(&j, "warm", t.warm);
    json_out_str(&j, "health", t.health);
    api_info_proofs(&j, shard);
    json_out_open(&j, "backends", '[');
    for (uint32_t b = BACKEND_NATIVE; b < BACKEND_COUNT; b++)
        api_info_backend(&j, s, (enum backend)b);
    json_out_close(&j, ']');
    api_info_end(req, &j);
}

/* In containers it is an image of the engine, of which the runner says which. */
static void api_info_host(struct json_out *j, const struct server *s) {
    const struct link *docker = links_first_ready_of(&s->links, BACKEND_DOCKER);
    char hex[65];
    json_out_open(j, NULL, '{');
    json_out_str(j, "name", IMAGE_HOST);
    json_out_str(j, "about",
                 "the programs of the machine that the runner is on, read-only; in containers, the "
                 "engine's image that its runner was started with");
    if (docker != NULL &&
        !sodium_is_zero(docker->welcome.host_sha256, sizeof(docker->welcome.host_sha256))) {
        image_ref_to_hex(docker->welcome.host_sha256, hex);
        json_out_str(j, "docker_sha256", hex);
    }
    json_out_close(j, '}');
}

static void api_info_image(struct json_out *j, const struct image *image) {
    json_out_open(j, NULL, '{');
    json_out_str(j, "name", image->name);
    json_out_str(j, "sha256", image->sha256);
    json_out_u64(j, "files", image->files);
    json_out_u64(j, "bytes", image->bytes);
    json_out_u64(j, "imported_at", image->imported_at);
    json_out_close(j, '}');
}

void api_info_images(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct buf out;
    struct json_out j;
    struct err err;
    struct api_error error = {0};
    struct image_list list = {0};
    err_clear(&err);
    fd_cleanup int dir = state_open_dir(&s->state, STATE_IMAGES, &err);
    if (dir < 0 || image_list_read(dir, &list, NULL, &err) < 0) {
        log_err(&s->log, LOG_ERROR, "images_unreadable", &err);
        api_error_set(&error, 500, "internal", NULL, "The images could not be listed.");
        http_reply_error(req, &error);
        return;
    }
    api_info_begin(&j, &out);
    json_out_open(&j, "images", '[');
    api_info_host(&j, s);
    for (size_t i = 0; i < list.count; i++)
        api_info_image(&j, &list.items[i]);
    json_out_close(&j, ']');
    image_list_done(&list);
    api_info_end(req, &j);
}
