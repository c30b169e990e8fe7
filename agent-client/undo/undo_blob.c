/* Contents by their hash. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"
#include "fd.h"
#include "undo_internal.h"

static void undo_blob_name(const uint8_t sha256[UNDO_HASH_SIZE], char name[UNDO_HEX_SIZE]) {
    sodium_bin2hex(name, UNDO_HEX_SIZE, sha256, UNDO_HASH_SIZE);
}

/* A file with the blocks of `fd`, where the file system can share them. -> descriptor, -1 = none.
 */
static int undo_blob_clone(struct undo *u, int fd) {
    fd_cleanup int temp = -1;

    if (u->no_clones)
        return -1;
    temp = openat(u->blobs, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (temp >= 0 && ioctl(temp, FICLONE, fd) == 0)
        return fd_steal(&temp);
    u->no_clones = temp >= 0 && (errno == EOPNOTSUPP || errno == EXDEV);
    return -1;
}

int undo_blob_put(struct undo *u, int fd, uint64_t size, struct undo_state *s, struct err *err) {
    fd_cleanup int temp = -1;
    char name[UNDO_HEX_SIZE];
    bool cloned;

    /* The clone is what is hashed, so that it cannot change between the two. */
    if (size > UNDO_CLONE_LEAST)
        temp = undo_blob_clone(u, fd);
    cloned = temp >= 0;
    if (!cloned && size <= UNDO_PACK_EACH) {
        int rc = undo_pack_put(u, fd, s, err);

        if (rc <= 0)
            return rc;
    }
    if (!cloned)
        temp = openat(u->blobs, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (temp < 0)
        return err_sys(err, "cannot make a file in the journal");
    if (digest_file(cloned ? temp : fd, 0, UINT64_MAX, cloned ? -1 : temp, s->sha256, &s->size,
                    err) < 0)
        return -1;
    undo_blob_name(s->sha256, name);
    if (undo_blob_has(u, s->sha256))
        return 0;
    return undo_batch_add(u, &temp, NULL, "", name, err);
}

bool undo_blob_has(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE]) {
    char name[UNDO_HEX_SIZE];

    undo_blob_name(sha256, name);
    return faccessat(u->blobs, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || undo_pack_has(u, sha256);
}

int undo_blob_open(struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], uint64_t *offset,
                   struct err *err) {
    char name[UNDO_HEX_SIZE];
    int fd;

    *offset = 0;
    undo_blob_name(sha256, name);
    fd = openat(u->blobs, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) {
        fd = undo_pack_open(u, sha256, offset);
        if (fd < 0)
            errno = ENOENT;
    }
    if (fd < 0)
        err_sys(err, "the contents %.16s… are not in the journal any more", name);
    return fd;
}

int undo_blob_copy(int in, uint64_t offset, int out, const struct undo_state *s, struct err *err) {
    struct undo_state got = {.size = 0};

    if (digest_file(in, offset, s->size, out, got.sha256, &got.size, err) < 0)
        return -1;
    if (got.size != s->size || memcmp(got.sha256, s->sha256, UNDO_HASH_SIZE) != 0)
        return err_set(err, ERR_INVALID, 0, "the contents are not what their hash says");
    return 0;
}
