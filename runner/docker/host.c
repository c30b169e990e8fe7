#include "host.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "image_ref.h"
#include "str.h"

#define HOST_NAME_MAX 512
#define HOST_NAME_CHARS                                                                            \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-/@" /* as in paths */

struct host_ask {
    const char *name;
    bool answered;
    int rc;
    struct host_image image;
    struct err *err;
};

/* Docker says "sha256:HEX"; some versions of Podman leave the first part out. */
static bool host_take(const char *id, struct host_image *out) {
    const char *hex = strncmp(id, "sha256:", 7) == 0 ? id + 7 : id;
    if (strlen(hex) != 64 || !image_ref_hex(hex, out->sha256)) {
        return false;
    }
    (void)snprintf(out->id, sizeof out->id, "sha256:%.64s", hex);
    return true;
}

static void host_answered(void *arg, const struct engine_reply *reply) {
    struct host_ask *ask = arg;
    json_t *root = NULL;
    ask->answered = true;
    if (reply->status == 404) {
        ask->rc = err_set(ask->err, ERR_INVALID, ENOENT,
                          "the engine has no image %s, which --host-image names: pull it (docker "
                          "pull %s), or name another",
                          ask->name, ask->name);
        return;
    }
    if (reply->status != 200) {
        ask->rc = engine_error(reply, "looking for the image that --host-image names", ask->err);
        return;
    }
    root = json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(root, "Id"));
    if (id == NULL || !host_take(id, &ask->image)) {
        ask->rc = err_set(ask->err, ERR_PROTOCOL, 0,
                          "the engine does not say which image %s is: it has no sha256 as its Id",
                          ask->name);
    }
    json_decref(root);
}

int host_pin(struct engine *engine, struct loop *loop, const char *name, struct host_image *out,
             struct err *err) {
    char path[HOST_NAME_MAX + 32];
    struct host_ask ask = {.name = name, .err = err};
    size_t len = strlen(name);
    if (len == 0 || len > HOST_NAME_MAX || strspn(name, HOST_NAME_CHARS) != len) {
        return err_set(err, ERR_INVALID, EINVAL,
                       "--host-image must name an image of the engine: NAME, NAME:TAG, "
                       "NAME@sha256:HEX or sha256:HEX");
    }
    (void)snprintf(path, sizeof path, "/images/%s/json", name);
    const struct engine_request q = {.method = "GET", .path = path};
    if (engine_ask(engine, &q, host_answered, &ask, err) != 0) {
        return -1;
    }
    while (!ask.answered) {
        if (loop_once(loop, 100 * CLOCK_NS_PER_MS, err) != 0) {
            return -1;
        }
    }
    if (ask.rc == 0) {
        *out = ask.image;
    }
    return ask.rc;
}
