#include "pool_image.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "image_pin.h"
#include "rootfs.h"
#include "str.h"

int pool_image_look(int images, const char *name, struct pool_image *out, struct err *err) {
    struct stat st;
    memset(out, 0, sizeof *out);
    if (strcmp(name, ROOTFS_IMAGE_HOST) == 0) {
        return 0;
    }
    if (!str_is_name(name) || images < 0 || fstatat(images, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode)) {
        return err_set(err, ERR_INVALID, ENOENT, "there is no image %s", name);
    }
    out->ino = st.st_ino;
    out->changed = st.st_ctim;
    return 0;
}

bool pool_image_same(const struct pool_image *a, const struct pool_image *b) {
    return a->ino == b->ino && a->changed.tv_sec == b->changed.tv_sec &&
           a->changed.tv_nsec == b->changed.tv_nsec;
}

int pool_image_pin(int images, const char *name, struct pool_image *out, struct err *err) {
    if (pool_image_look(images, name, out, err) != 0) {
        return -1;
    }
    return strcmp(name, ROOTFS_IMAGE_HOST) == 0 ? 0
                                                : image_pin_read(images, name, out->sha256, err);
}

int pool_image_still(int images, const char *name, const struct pool_image *image,
                     struct err *err) {
    struct pool_image now;
    if (pool_image_look(images, name, &now, err) != 0) {
        return -1;
    }
    if (!pool_image_same(image, &now)) {
        return err_set(err, ERR_INVALID, ESTALE, "image %s is being replaced; try again", name);
    }
    return 0;
}
