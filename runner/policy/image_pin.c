#include "image_pin.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "image_ref.h"
#include "str.h"

#define IMAGE_PIN_MAX 65536u

static bool image_pin_ours(const struct stat *st) {
    return (st->st_uid == 0 || st->st_uid == geteuid()) && (st->st_mode & 022) == 0;
}

static bool image_pin_take(const struct buf *text, uint8_t sha256[32]) {
    json_t *root =
        json_loadb(text->data ? text->data : "", text->len, JSON_REJECT_DUPLICATES, NULL);
    const char *hex = json_string_value(json_object_get(root, "sha256"));
    bool ok = hex && image_ref_hex(hex, sha256);
    json_decref(root);
    return ok;
}

int image_pin_read(int images, const char *name, uint8_t sha256[32], struct err *err) {
    fd_cleanup int dir = -1;
    struct stat st;
    struct buf text;
    if (!str_is_name(name))
        return err_set(err, ERR_INVALID, EINVAL, "that is not the name of an image");
    dir = openat(images, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_set(err, ERR_INVALID, ENOENT, "there is no image %s", name);
    if (fstat(dir, &st) < 0 || !image_pin_ours(&st) ||
        fstatat(dir, "manifest.json", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        !image_pin_ours(&st))
        return err_set(err, ERR_INVALID, EPERM,
                       "image %s has no manifest, or others than root may change it", name);
    buf_init(&text, IMAGE_PIN_MAX);
    bool ok = fd_read_file(dir, "manifest.json", &text, err) == 0;
    if (ok && !image_pin_take(&text, sha256)) {
        ok = false;
        (void)err_set(err, ERR_INVALID, EINVAL, "the manifest of image %s names no digest", name);
    }
    buf_done(&text);
    return ok ? 0 : -1;
}
