#include "image_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "image_prepare.h"
#include "image_tree.h"
#include "str.h"

static int image_stage_check(int images, const char *name, struct err *err) {
    struct stat st;

    if (image_check_name(name, err) < 0)
        return -1;
    if (fstatat(images, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, ERR_INVALID, EEXIST, "there is an image %s already; remove it first",
                       name);
    return 0;
}

static int image_stage_make(struct image_stage *s, struct err *err) {
    s->dir = image_tree_open_dir(s->images, s->temp, err);
    if (s->dir < 0)
        return -1;
    if (mkdirat(s->dir, "rootfs", 0700) < 0 || fchmodat(s->dir, "rootfs", 0755, 0) < 0)
        return err_sys(err, "cannot make the directory of the image");
    s->root = image_tree_open_dir(s->dir, "rootfs", err);
    return s->root < 0 ? -1 : 0;
}

int image_stage_begin(int images, const char *name, struct image_stage *stage, struct err *err) {
    struct image_stage s = {.images = images, .dir = -1, .root = -1};
    unsigned long long salt;

    if (image_stage_check(images, name, err) < 0 || image_sweep(images, err) < 0)
        return -1;
    if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
        return err_sys(err, "cannot get random bytes");
    snprintf(s.temp, sizeof(s.temp), ".import-%016llx", salt);
    (void)str_copy(s.image.name, sizeof(s.image.name), name);
    if (mkdirat(images, s.temp, 0700) < 0)
        return err_sys(err, "cannot make the directory of the image");
    if (image_stage_make(&s, err) < 0) {
        image_stage_done(&s);
        return -1;
    }
    *stage = s;
    return 0;
}

static int image_stage_write_manifest(int dir, const struct image *image, struct err *err) {
    char *text = image_manifest(image);
    int rc;

    if (text == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the manifest");
    rc = fd_write_atomic(dir, "manifest.json", text, strlen(text), 0644, err);
    free(text);
    return rc;
}

int image_stage_finish(struct image_stage *s, const struct image_count *count, struct err *err) {
    if (image_prepare(s->root, err) < 0)
        return -1;
    s->image.files = count->files;
    s->image.bytes = count->bytes;
    s->image.imported_at = clock_real_ms();
    if (image_stage_write_manifest(s->dir, &s->image, err) < 0)
        return -1;
    /* All of it, before the name that promises it. */
    if (syncfs(s->root) < 0)
        return err_sys(err, "cannot write the image to disk");
    if (fchmod(s->dir, 0755) < 0 ||
        renameat2(s->images, s->temp, s->images, s->image.name, RENAME_NOREPLACE) < 0 ||
        fsync(s->images) < 0)
        return err_sys(err, "cannot put the image in place");
    s->temp[0] = '\0';
    return 0;
}

void image_stage_done(struct image_stage *s) {
    fd_close(&s->root);
    fd_close(&s->dir);
    if (s->temp[0] != '\0')
        (void)image_tree_remove(s->images, s->temp, NULL);
    s->temp[0] = '\0';
}

int image_stage_file(const struct image_stage *s, struct err *err) {
    fd_cleanup int fd =
        openat(s->dir, ".file", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || unlinkat(s->dir, ".file", 0) < 0)
        return err_sys(err, "cannot make a file beside the image");
    return fd_steal(&fd);
}
