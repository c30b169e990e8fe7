#include "image_blob.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "image_tree.h"

#define IMAGE_BLOB_BLOCK 65536u

/* Hashes `from` to its end, and copies it when `to` is one. */
static int image_blob_hash(int from, int to, uint64_t max, char hex[65], uint64_t *size,
                           struct err *err) {
    unsigned char block[IMAGE_BLOB_BLOCK], hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    uint64_t done = 0;

    crypto_hash_sha256_init(&state);
    for (;;) {
        ssize_t got = read(from, block, sizeof(block));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read it");
        if (got == 0)
            break;
        if ((uint64_t)got > max - done)
            return err_set(err, ERR_INVALID, 0, "it has more than the %llu bytes that it should",
                           (unsigned long long)max);
        done += (uint64_t)got;
        crypto_hash_sha256_update(&state, block, (unsigned long long)got);
        if (to >= 0 && fd_write_all(to, block, (size_t)got, err) < 0)
            return -1;
    }
    crypto_hash_sha256_final(&state, hash);
    sodium_bin2hex(hex, 65, hash, sizeof(hash));
    *size = done;
    return 0;
}

static int image_blob_check(const struct image_blob_wish *wish, int from, int to, struct err *err) {
    uint64_t size = 0;
    char hex[65];

    if (image_blob_hash(from, to, wish->max, hex, &size, err) < 0)
        return -1;
    if (wish->exact && size != wish->max)
        return err_set(err, ERR_INVALID, 0, "it has %llu bytes, not the %llu that it should",
                       (unsigned long long)size, (unsigned long long)wish->max);
    if (wish->hex != NULL && strcmp(hex, wish->hex) != 0)
        return err_set(err, ERR_INVALID, 0, "its digest is sha256:%s, not sha256:%s", hex,
                       wish->hex);
    return 0;
}

int image_blob_open(const struct image_blobs *b, const struct image_blob_wish *wish,
                    struct err *err) {
    fd_cleanup int from = image_tree_open_file(b->dir, wish->path, b->ours, err);
    fd_cleanup int copy = -1;
    struct stat st;

    if (from < 0)
        return -1;
    /* Before a byte of it is copied. */
    if (fstat(from, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size > wish->max)
        return err_set(err, ERR_INVALID, 0, "%s has more than the %llu bytes that it should",
                       wish->path, (unsigned long long)wish->max);
    if (!b->ours && (copy = image_stage_file(b->stage, err)) < 0)
        return -1;
    if (image_blob_check(wish, from, copy, err) < 0)
        return err_wrap(err, "%s is refused", wish->path);
    if (lseek(b->ours ? from : copy, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot read %s", wish->path);
    return fd_steal(b->ours ? &from : &copy);
}

int image_blob_get(const struct image_blobs *b, const struct image_oci_blob *blob,
                   struct err *err) {
    char path[96];
    const struct image_blob_wish wish = {
        .path = path, .hex = blob->hex, .max = blob->size, .exact = true};

    snprintf(path, sizeof(path), "blobs/sha256/%s", blob->hex);
    return image_blob_open(b, &wish, err);
}

int image_blob_text(int fd, struct buf *out, struct err *err) {
    char block[4096];

    for (;;) {
        ssize_t got = read(fd, block, sizeof(block));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read a document of the image");
        if (got == 0)
            return 0;
        if (buf_append(out, block, (size_t)got, err) < 0)
            return -1;
    }
}
