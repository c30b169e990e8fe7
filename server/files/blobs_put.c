#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blobs_internal.h"
#include "clock.h"
#include "fd.h"

/* How often what is too old is looked for. */
#define BLOBS_EXPIRE_MS ((uint64_t)10 * 60 * 1000)

struct blobs_put {
    struct blobs *blobs;
    struct blobs_user *user;
    uint64_t length, written, reserved;
    int fd;
    char name[32]; /* in tmp/ */
    crypto_hash_sha256_state hash;
};

static int blobs_put_reserve(struct blobs_put *p, uint64_t size, struct err *err) {
    uint64_t charge = blobs_charge(size);
    if (charge <= p->reserved)
        return 0;
    if (blobs_make_room(p->blobs, p->user, charge - p->reserved, err) < 0)
        return -1;
    p->user->reserved += charge - p->reserved;
    p->reserved = charge;
    return 0;
}

struct blobs_put *blobs_put_start(struct blobs *b, const char *user, uint64_t length,
                                  struct err *err) {
    struct blobs_put *p = calloc(1, sizeof(*p));
    struct blobs_user *u = blobs_user(b, user, true);
    if (p == NULL || u == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "taking in a blob: out of memory");
        free(p);
        return NULL;
    }
    if (clock_real_ms() > b->expired_ms + BLOBS_EXPIRE_MS)
        blobs_expire(b);
    p->blobs = b;
    p->user = u;
    p->fd = -1;
    p->length = length;
    if (length != UINT64_MAX && length > b->options.user_bytes) {
        err_set(err, ERR_LIMIT, EFBIG,
                "a blob of %" PRIu64 " bytes is larger than your quota of %" PRIu64
                " bytes for all of them",
                length, b->options.user_bytes);
        blobs_put_abort(p);
        return NULL;
    }
    if (blobs_put_reserve(p, length == UINT64_MAX ? 0 : length, err) < 0) {
        blobs_put_abort(p);
        return NULL;
    }
    snprintf(p->name, sizeof(p->name), "%" PRIu64, b->serial++);
    p->fd = openat(b->tmp, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fd < 0) {
        err_sys(err, "making a file for a blob");
        blobs_put_abort(p);
        return NULL;
    }
    crypto_hash_sha256_init(&p->hash);
    return p;
}

int blobs_put_write(struct blobs_put *p, const void *data, size_t len, struct err *err) {
    if (p->length != UINT64_MAX && len > p->length - p->written)
        return err_set(err, ERR_INVALID, 0, "a blob has more bytes than were announced");
    if (blobs_put_reserve(p, p->written + len, err) < 0 || fd_write_all(p->fd, data, len, err) < 0)
        return -1;
    p->written += len;
    crypto_hash_sha256_update(&p->hash, data, len);
    return 0;
}

/* The file becomes the blob, or, where others have the same one, goes: theirs is as good. */
static int blobs_put_keep(struct blobs_put *p, const unsigned char *sha256, struct err *err) {
    struct blobs *b = p->blobs;
    char name[BLOBS_NAME_SIZE], owned[BLOBS_NAME_SIZE];
    blobs_name(name, NULL, sha256);
    blobs_name(owned, p->user->name, sha256);
    if (blobs_parents(b, name, err) < 0 || blobs_parents(b, owned, err) < 0)
        return -1;
    if (linkat(b->tmp, p->name, b->dir, name, 0) < 0 && errno != EEXIST)
        return err_sys(err, "keeping a blob");
    unlinkat(b->dir, owned, 0); /* what a crash may have left */
    if (linkat(b->dir, name, b->dir, owned, 0) < 0)
        return err_sys(err, "keeping a blob");
    return 0;
}

int blobs_put_finish(struct blobs_put *p, const unsigned char *expected,
                     unsigned char sha256[BLOBS_SHA256_SIZE], bool *had, struct err *err) {
    unsigned char hash[BLOBS_SHA256_SIZE];
    struct blobs_link *l = NULL;
    int rc = -1;
    crypto_hash_sha256_final(&p->hash, hash);
    struct blobs_link *there = blobs_find(p->blobs, p->user, hash);
    bool present = there != NULL && there->present;
    if (expected != NULL && memcmp(expected, hash, sizeof(hash)) != 0)
        err_set(err, ERR_INVALID, 0, "the bytes that came have another SHA-256");
    else if (!present && blobs_put_keep(p, hash, err) < 0)
        (void)0;
    else if ((l = blobs_link(p->blobs, p->user, hash)) == NULL)
        err_set(err, ERR_SYSTEM, ENOMEM, "keeping a blob: out of memory");
    else
        rc = 0;
    if (rc == 0) {
        blobs_present(l, p->written, clock_real_ms());
        if (sha256 != NULL)
            memcpy(sha256, hash, sizeof(hash));
        if (had != NULL)
            *had = present;
    }
    blobs_put_abort(p);
    return rc;
}

void blobs_put_abort(struct blobs_put *p) {
    if (p == NULL)
        return;
    p->user->reserved -= p->reserved;
    if (p->fd >= 0)
        unlinkat(p->blobs->tmp, p->name, 0);
    fd_close(&p->fd);
    free(p);
}
