#include "pool_kind.h"

#include <errno.h>
#include <string.h>

#include "str.h"

void pool_kind_discard(struct pool_kind *k) {
    while (k->count > 0) {
        jail_kill(k->jail[--k->count]);
    }
}

/* Contained: what the engine has under the image's name may change as well. */
static int pool_kind_reference(struct pool_kind *k, const struct jail_maker *maker,
                               struct err *err) {
    char ref[JAIL_IMAGE_MAX];
    uint8_t sha256[32] = {0};
    if (maker->image(maker->arg, k->image, ref, sha256, err) != 0) {
        return -1;
    }
    if (strcmp(ref, k->ref) != 0) {
        pool_kind_discard(k);
        (void)str_copy(k->ref, sizeof k->ref, ref);
        memcpy(k->made_of.sha256, sha256, sizeof k->made_of.sha256);
    }
    return 0;
}

int pool_kind_template(struct pool_kind *k, const struct jail_host *host, int images,
                       struct err *err) {
    struct pool_image now;
    if (host->maker->contained) {
        return pool_kind_reference(k, host->maker, err);
    }
    if (pool_image_look(images, k->image, &now, err) != 0) {
        return -1;
    }
    if (k->root.mnt_ns >= 0 && pool_image_same(&k->made_of, &now)) {
        return 0;
    }
    struct rootfs fresh = {.mnt_ns = -1};
    const struct rootfs_config cfg = {.image = k->image,
                                      .images_dirfd = images,
                                      .writable = k->policy->writable,
                                      .rootless = host->rootless};
    if (pool_image_pin(images, k->image, &now, err) != 0 || rootfs_build(&cfg, &fresh, err) != 0) {
        return -1;
    }
    pool_kind_discard(k);
    rootfs_done(&k->root);
    k->root = fresh;
    k->made_of = now;
    return pool_image_still(images, k->image, &now, err);
}

int pool_kind_check_image(const struct pool_kind *k, const uint8_t *wanted, struct err *err) {
    if (policy_check_image(k->policy, k->image, k->made_of.sha256, err) != 0) {
        return -1;
    }
    if (memcmp(wanted, k->made_of.sha256, sizeof k->made_of.sha256) != 0) {
        return err_set(err, ERR_INVALID, ESTALE,
                       "image %s is not the one that was asked for: it has been replaced",
                       k->image);
    }
    return 0;
}
