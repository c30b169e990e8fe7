/* Bringing the blob store in order when the server starts: the directory is the truth. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blobs_internal.h"
#include "fd.h"
#include "str.h"
#include "sync_request.h"

/* Says which boot of the machine the files are from. */
#define BLOBS_BOOT "boot"
#define BLOBS_BOOT_ID "/proc/sys/kernel/random/boot_id"

typedef int blobs_visit(struct blobs *b, int dir, const char *name, void *arg, struct err *err);

/* Calls fn for what is in a directory (relative to `dir`), dot-names excepted. A directory that is
 * not there is empty. */
static int blobs_each(struct blobs *b, int dir, const char *name, blobs_visit *fn, void *arg,
                      struct err *err) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        err_sys(err, "listing %s of the blob store", name);
        fd_close(&fd);
        return -1;
    }
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.')
            rc = fn(b, fd, entry->d_name, arg, err);
    closedir(list);
    return rc;
}

static int blobs_remove(struct blobs *b, int dir, const char *name, void *arg, struct err *err) {
    (void)b;
    (void)arg;
    (void)err;
    unlinkat(dir, name, 0);
    return 0;
}

static bool blobs_is_top(const char *name) {
    return strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2;
}

/* The hash that two parts of a name are. */
static int blobs_hash_of(const char *top, const char *rest, unsigned char *sha256) {
    char hex[2 * BLOBS_SHA256_SIZE + 1];
    if (strlen(rest) != sizeof(hex) - 3)
        return -1;
    snprintf(hex, sizeof(hex), "%.2s%s", top, rest);
    return sync_sha256_parse(hex, sizeof(hex) - 1, sha256);
}

struct blobs_found {
    struct blobs_user *user;
    const char *top;
    struct blobs_seen {
        struct blobs_link *link;
        uint64_t size, used_ms;
    } * items;
    size_t count, alloc;
};

static int blobs_owned(struct blobs *b, int dir, const char *name, void *arg, struct err *err) {
    struct blobs_found *f = arg;
    unsigned char sha256[BLOBS_SHA256_SIZE];
    struct stat st;
    if (blobs_hash_of(f->top, name, sha256) < 0 ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        st.st_nlink < 2) {
        unlinkat(dir, name, 0); /* not ours, or its bytes were removed under it */
        return 0;
    }
    if (f->count == f->alloc) {
        size_t more = f->alloc == 0 ? 1024 : f->alloc * 2;
        struct blobs_seen *grown = realloc(f->items, more * sizeof(*grown));
        if (grown == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "reading the blob store: out of memory");
        f->items = grown;
        f->alloc = more;
    }
    struct blobs_link *l = blobs_link(b, f->user, sha256);
    if (l == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading the blob store: out of memory");
    f->items[f->count++] = (struct blobs_seen){.link = l,
                                               .size = (uint64_t)st.st_size,
                                               .used_ms = (uint64_t)st.st_mtim.tv_sec * 1000 +
                                                          (uint64_t)st.st_mtim.tv_nsec / 1000000};
    return 0;
}

static int blobs_owned_top(struct blobs *b, int dir, const char *name, void *arg, struct err *err) {
    struct blobs_found *f = arg;
    if (!blobs_is_top(name))
        return 0;
    f->top = name;
    return blobs_each(b, dir, name, blobs_owned, f, err);
}

static int blobs_by_use(const void *a, const void *b) {
    const struct blobs_seen *x = a, *y = b;
    return (x->used_ms > y->used_ms) - (x->used_ms < y->used_ms);
}

static int blobs_owner(struct blobs *b, int dir, const char *name, void *arg, struct err *err) {
    struct blobs_found f = {.user = blobs_user(b, name, true)};
    (void)arg;
    if (f.user == NULL)
        return 0;
    int rc = blobs_each(b, dir, name, blobs_owned_top, &f, err);
    if (f.count > 0)
        qsort(f.items, f.count, sizeof(*f.items), blobs_by_use);
    for (size_t i = 0; i < f.count; i++)
        blobs_present(f.items[i].link, f.items[i].size, f.items[i].used_ms);
    free(f.items);
    return rc;
}

/* Bytes that nobody owns: the server ended between two links. */
static int blobs_orphan(struct blobs *b, int dir, const char *name, void *arg, struct err *err) {
    struct stat st;
    (void)b;
    (void)arg;
    (void)err;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
        unlinkat(dir, name, 0);
    return 0;
}

static int blobs_top(struct blobs *b, int dir, const char *name, void *fn, struct err *err) {
    blobs_visit *const *visit = fn;
    return blobs_is_top(name) ? blobs_each(b, dir, name, *visit, NULL, err) : 0;
}

static int blobs_drop_owner(struct blobs *b, int dir, const char *name, void *arg,
                            struct err *err) {
    return blobs_each(b, dir, name, blobs_top, arg, err);
}

static bool blobs_same_boot(struct blobs *b, const struct buf *boot) {
    struct buf before;
    buf_init(&before, 128);
    bool same = fd_read_file(b->dir, BLOBS_BOOT, &before, NULL) == 0 && before.len == boot->len &&
                memcmp(before.data, boot->data, boot->len) == 0;
    buf_done(&before);
    return same;
}

static int blobs_check_boot(struct blobs *b, struct err *err) {
    blobs_visit *remove = blobs_remove;
    struct buf boot;
    buf_init(&boot, 128);
    int rc = fd_read_file(AT_FDCWD, BLOBS_BOOT_ID, &boot, err);
    if (rc == 0 && !blobs_same_boot(b, &boot)) {
        rc = blobs_each(b, b->dir, BLOBS_OWNERS, blobs_drop_owner, &remove, err);
        if (rc == 0)
            rc = blobs_each(b, b->dir, ".", blobs_top, &remove, err);
    }
    if (rc == 0)
        rc = fd_write_atomic(b->dir, BLOBS_BOOT, boot.data, boot.len, 0600, err);
    buf_done(&boot);
    return rc;
}

int blobs_start(struct blobs *b, struct err *err) {
    blobs_visit *orphan = blobs_orphan;
    if ((mkdirat(b->dir, BLOBS_TMP, 0700) < 0 && errno != EEXIST) ||
        (mkdirat(b->dir, BLOBS_OWNERS, 0700) < 0 && errno != EEXIST))
        return err_sys(err, "making the blob store");
    b->tmp = openat(b->dir, BLOBS_TMP, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (b->tmp < 0)
        return err_sys(err, "opening the blob store");
    if (blobs_each(b, b->dir, BLOBS_TMP, blobs_remove, NULL, err) < 0 ||
        blobs_check_boot(b, err) < 0 ||
        blobs_each(b, b->dir, BLOBS_OWNERS, blobs_owner, NULL, err) < 0 ||
        blobs_each(b, b->dir, ".", blobs_top, &orphan, err) < 0)
        return -1;
    blobs_expire(b);
    for (struct blobs_user *u = b->users; u != NULL; u = u->next)
        (void)blobs_make_room(b, u, 0, NULL); /* the quota may be smaller than it was */
    return 0;
}
