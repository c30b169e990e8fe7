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
#include "image_apart.h"
#include "image_reader.h"
#include "image_stage.h"
#include "str.h"

#define IMAGE_IMPORT_HASH_BLOCK 65536u

/* Copies the archive's `size` bytes to a file of ours: whoever owns the archive could change it
 * between the look at its digest and that at what is in it. */
static int image_import_copy(int tar, uint64_t size, int to, char hex[IMAGE_SHA256_SIZE],
                             struct err *err) {
    unsigned char block[IMAGE_IMPORT_HASH_BLOCK], hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    off_t pos = 0;

    crypto_hash_sha256_init(&state);
    while ((uint64_t)pos < size) {
        uint64_t left = size - (uint64_t)pos;
        ssize_t got = pread(tar, block, left < sizeof(block) ? left : sizeof(block), pos);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read the archive");
        if (got == 0)
            break;
        crypto_hash_sha256_update(&state, block, (unsigned long long)got);
        if (fd_write_all(to, block, (size_t)got, err) < 0)
            return -1;
        pos += got;
    }
    crypto_hash_sha256_final(&state, hash);
    sodium_bin2hex(hex, IMAGE_SHA256_SIZE, hash, sizeof(hash));
    return 0;
}

static int image_import_read(int tar, int out, const void *arg) {
    const struct image_bounds *bounds = arg;

    return image_reader_run(tar, out, bounds->max_bytes, bounds->max_files, IMAGE_READER_ALL);
}

int image_import_unpack(int tar, int root, const struct image_bounds *bounds,
                        struct image_count *count, struct err *err) {
    struct err why = {0};
    pid_t child = -1;
    fd_cleanup int in = -1;
    int rc;

    if (lseek(tar, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot start to read the archive");
    in = image_apart_start(image_import_read, tar, bounds, &child, err);
    if (in < 0)
        return -1;
    rc = image_extract(in, root, bounds, count, err);
    fd_close(&in);
    if (image_apart_reap(child, &why) < 0 && rc < 0 && err != NULL)
        *err = why;
    return rc;
}

int image_import(int images, const char *name, int tar, const struct image_bounds *bounds,
                 struct image *out, struct image_count *count, struct err *err) {
    struct image_stage stage;
    fd_cleanup int copy = -1;
    struct stat st;
    int rc;

    if (fstat(tar, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "the archive is not a regular file");
    if (image_stage_begin(images, name, &stage, err) < 0)
        return -1;
    copy = image_stage_file(&stage, err);
    rc =
        copy < 0 ? -1 : image_import_copy(tar, (uint64_t)st.st_size, copy, stage.image.sha256, err);
    if (rc == 0)
        rc = image_import_unpack(copy, stage.root, bounds, count, err);
    fd_close(&copy);
    if (rc == 0)
        rc = image_stage_finish(&stage, count, err);
    if (rc == 0)
        *out = stage.image;
    image_stage_done(&stage);
    return rc;
}
