#include "image_check.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"
#include "image.h"
#include "image_ref.h"
#include "json_memory.h"
#include "json_out.h"
#include "state.h"

static int image_check_read(const char *name, uint8_t sha256[32], struct api_error *error) {
    struct image image;
    fd_cleanup int dir = open(STATE_IMAGES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && image_read(dir, name, &image, NULL) == 0 && image_ref_hex(image.sha256, sha256))
        return 0;
    return api_error_set(error, 400, "unknown_image", "/image",
                         "There is no image named %s; GET /v1/images lists them.", name);
}

/* The runner's own: nothing of it lies in the state directory. */
static int image_check_host(const struct link_policy *policy, const char *digest,
                            uint8_t sha256[32], struct api_error *error) {
    if (policy->backend != BACKEND_DOCKER) {
        memset(sha256, 0, 32);
        return digest == NULL
                   ? 0
                   : api_error_set(error, 400, "conflict", "/image_digest",
                                   "The image host has no digest: it is the runner's own /usr.");
    }
    if (sodium_is_zero(policy->host_sha256, sizeof(policy->host_sha256)))
        return api_error_set(error, 400, "unknown_image", "/image",
                             "The back end docker has no image named host: its runner was started "
                             "without --host-image.");
    memcpy(sha256, policy->host_sha256, 32);
    return 0;
}

int image_check(const struct link_policy *policy, const char *name, const char *digest,
                uint8_t sha256[32], struct api_error *error) {
    uint8_t have[32] = {0};
    char hex[65];
    bool host = strcmp(name, IMAGE_HOST) == 0;
    if ((host ? image_check_host(policy, digest, have, error)
              : image_check_read(name, have, error)) < 0)
        return -1;
    bool none = sodium_is_zero(have, sizeof(have));
    image_ref_to_hex(have, hex);
    if (!policy->any_image && !image_ref_allows(policy->images, policy->image_count, name, have))
        return api_error_set(error, 403, "policy_image", "/image",
                             "The policy %s does not allow the image %s%s%s.", policy->head.name,
                             name, none ? "" : " with the digest sha256:", none ? "" : hex);
    if (digest != NULL && strcmp(strchr(digest, ':') + 1, hex) != 0)
        return api_error_set(error, 409, "image_digest", "/image_digest",
                             "The image %s is sha256:%s, not the one that was asked for.", name,
                             hex);
    memcpy(sha256, have, sizeof(have));
    return 0;
}

void image_check_write(struct json_out *j, const uint8_t sha256[32]) {
    char text[7 + 65] = "sha256:";
    if (sodium_is_zero(sha256, 32))
        return;
    image_ref_to_hex(sha256, text + 7);
    json_out_str(j, "image_digest", text);
}

int image_check_policy(struct link_policy *policy, struct err *err) {
    json_t *root = json_memory_load(policy->text, strlen(policy->text), 0, NULL);
    const json_t *images = json_object_get(root, "images");
    const json_t *allow = json_object_get(images, "allow");
    size_t count = json_array_size(allow);
    int rc = 0;
    policy->any_image = root != NULL && images == NULL;
    policy->images = calloc(count + 1, sizeof(*policy->images));
    if (policy->images == NULL)
        rc = err_set(err, ERR_SYSTEM, ENOMEM, "keeping a policy: out of memory");
    for (size_t i = 0; rc == 0 && i < count && i < IMAGE_REF_LIST_MAX; i++) {
        const char *text = json_string_value(json_array_get(allow, i));
        if (text != NULL && image_ref_parse(text, &policy->images[policy->image_count], NULL) == 0)
            policy->image_count++;
    }
    json_decref(root);
    return rc;
}
