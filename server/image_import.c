#include "image_import.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "image_prepare.h"
#include "image_reader.h"
#include "image_tree.h"
#include "str.h"

#define IMAGE_IMPORT_HASH_BLOCK 65536u

static int image_import_hash(int tar, char hex[IMAGE_SHA256_SIZE], struct err *err) {
    unsigned char block[IMAGE_IMPORT_HASH_BLOCK], hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    off_t pos = 0;

    crypto_hash_sha256_init(&state);
    for (;;) {
        ssize_t got = pread(tar, block, sizeof(block), pos);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read the archive");
        if (got == 0)
            break;
        crypto_hash_sha256_update(&state, block, (unsigned long long)got);
        pos += got;
    }
    crypto_hash_sha256_final(&state, hash);
    sodium_bin2hex(hex, IMAGE_SHA256_SIZE, hash, sizeof(hash));
    return 0;
}

/* The process that reads the archive. Never returns. */
static void image_import_child(int tar, int out, const struct image_bounds *bounds) {
    if (image_reader_drop(tar, out) < 0)
        _exit(2);
    _exit(image_reader_run(tar, out, bounds->max_bytes, bounds->max_files) < 0 ? 1 : 0);
}

/* Waits for the reader, which ends by itself once its pipe is closed. */
static int image_import_reap(pid_t child, struct err *err) {
    int status = 0;

    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for the reader of the archive");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        return err_set(err, ERR_SYSTEM, EPERM, "the reader of the archive could not give up root");
    return 0;
}

/* Unpacks below `root`: a child reads, we write. */
static int image_import_unpack(int tar, int root, const struct image_bounds *bounds,
                               struct image_count *count, struct err *err) {
    int ends[2];
    pid_t child;
    int rc;
    struct err why = {0};

    if (lseek(tar, 0, SEEK_SET) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot start to read the archive");
    child = fork();
    if (child == 0) {
        /* A message of libarchive's must not be mixed with ours, nor our buffers written twice. */
        image_import_child(tar, ends[1], bounds);
    }
    fd_close(&ends[1]);
    if (child < 0) {
        fd_close(&ends[0]);
        return err_sys(err, "cannot start the reader of the archive");
    }
    rc = image_extract(ends[0], root, bounds, count, err);
    fd_close(&ends[0]);
    if (image_import_reap(child, &why) < 0 && rc < 0 && err != NULL)
        *err = why;
    return rc;
}

static int image_import_write_manifest(int dir, const struct image *image, struct err *err) {
    char *text = image_manifest(image);
    int rc;

    if (text == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the manifest");
    rc = fd_write_atomic(dir, "manifest.json", text, strlen(text), 0644, err);
    free(text);
    return rc;
}

/* Fills the directory `dir`. */
static int image_import_fill(int dir, int tar, const struct image_bounds *bounds,
                             struct image *image, struct image_count *count, struct err *err) {
    fd_cleanup int root = -1;

    if (mkdirat(dir, "rootfs", 0700) < 0 || fchmodat(dir, "rootfs", 0755, 0) < 0)
        return err_sys(err, "cannot make the directory of the image");
    root = image_tree_open_dir(dir, "rootfs", err);
    if (root < 0 || image_import_hash(tar, image->sha256, err) < 0 ||
        image_import_unpack(tar, root, bounds, count, err) < 0 || image_prepare(root, err) < 0)
        return -1;
    image->files = count->files;
    image->bytes = count->bytes;
    image->imported_at = clock_real_ms();
    if (image_import_write_manifest(dir, image, err) < 0)
        return -1;
    /* All of it, before the name that promises it. */
    if (syncfs(root) < 0)
        return err_sys(err, "cannot write the image to disk");
    return 0;
}

static int image_import_check(int images, const char *name, int tar, struct err *err) {
    struct stat st;

    if (image_check_name(name, err) < 0)
        return -1;
    if (fstat(tar, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "the archive is not a regular file");
    if (fstatat(images, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, ERR_INVALID, EEXIST, "there is an image %s already; remove it first",
                       name);
    return 0;
}

int image_import(int images, const char *name, int tar, const struct image_bounds *bounds,
                 struct image *out, struct image_count *count, struct err *err) {
    struct image image = {0};
    fd_cleanup int dir = -1;
    unsigned long long salt;
    char temp[48];
    int rc = -1;

    if (image_import_check(images, name, tar, err) < 0 || image_sweep(images, err) < 0)
        return -1;
    if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
        return err_sys(err, "cannot get random bytes");
    snprintf(temp, sizeof(temp), ".import-%016llx", salt);
    (void)str_copy(image.name, sizeof(image.name), name);
    if (mkdirat(images, temp, 0700) < 0)
        return err_sys(err, "cannot make the directory of the image");
    dir = image_tree_open_dir(images, temp, err);
    if (dir >= 0)
        rc = image_import_fill(dir, tar, bounds, &image, count, err);
    if (rc == 0 &&
        (fchmod(dir, 0755) < 0 || renameat2(images, temp, images, name, RENAME_NOREPLACE) < 0 ||
         fsync(images) < 0))
        rc = err_sys(err, "cannot put the image in place");
    if (rc < 0) {
        (void)image_tree_remove(images, temp, NULL);
        return -1;
    }
    *out = image;
    return 0;
}
