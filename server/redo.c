#include "redo.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

#define REDO_OLD_MAGIC 0x314f4452u /* "RDO1", little endian */
#define REDO_MAGIC 0x324f4452u     /* "RDO2" */
#define REDO_FILE_MAX ((size_t)1024 * 1024 * 1024)

/* In front of the file. */
struct redo_file {
    uint32_t magic, zero;
    uint8_t key[REDO_KEY_SIZE];
};

struct redo_head {
    uint32_t magic, len;
    uint8_t hash[16]; /* of the entry */
};

/* Without it there is just no room on a full disk. */
static void redo_make_room(const struct redo *r) {
    (void)!fallocate(r->fd, 0, 0, (off_t)REDO_ROOM);
}

/* Begins it anew: what is in it is nobody's any more. */
static int redo_begin(struct redo *r, struct err *err) {
    struct redo_file file = {.magic = REDO_MAGIC};
    randombytes_buf(file.key, sizeof(file.key));
    if (pwrite(r->fd, &file, sizeof(file), 0) != (ssize_t)sizeof(file))
        return err_sys(err, "beginning a redo log");
    memcpy(r->key, file.key, sizeof(r->key));
    r->len = sizeof(file);
    r->entries = 0;
    r->old = false;
    return 0;
}

int redo_open(struct redo *r, int dir, const char *name, struct err *err) {
    struct stat st;
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, "opening %s", name);
    if (fstat(fd, &st) < 0) {
        close(fd);
        return err_sys(err, "looking at %s", name);
    }
    *r = (struct redo){.fd = fd, .len = (uint64_t)st.st_size};
    return 0;
}

void redo_close(struct redo *r) {
    fd_close(&r->fd);
}

static void redo_hash(const struct redo *r, const struct iovec *parts, size_t count,
                      uint8_t hash[16]) {
    crypto_generichash_state h;
    crypto_generichash_init(&h, r->old ? NULL : r->key, r->old ? 0 : sizeof(r->key), 16);
    for (size_t i = 0; i < count; i++)
        crypto_generichash_update(&h, parts[i].iov_base, parts[i].iov_len);
    crypto_generichash_final(&h, hash, 16);
}

static int redo_load(const struct redo *r, struct buf *out, struct err *err) {
    char *to = buf_reserve(out, (size_t)r->len, err);
    if (to == NULL)
        return -1;
    while (out->len < r->len) {
        ssize_t n = pread(r->fd, to + out->len, (size_t)r->len - out->len, (off_t)out->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "reading the redo log");
        if (n == 0)
            break;
        out->len += (size_t)n;
    }
    return 0;
}

struct redo_each {
    int (*fn)(void *arg, const char *data, size_t len, struct err *err);
    void *arg;
};

/* Where the first entry is, should there be one. */
static size_t redo_first(struct redo *r, const struct buf *all) {
    struct redo_file file;
    uint32_t magic;
    r->old = false;
    if (all->len < sizeof(file))
        return all->len;
    memcpy(&magic, all->data, sizeof(magic));
    r->old = magic == REDO_OLD_MAGIC;
    if (r->old)
        return 0;
    if (magic != REDO_MAGIC)
        return all->len;
    memcpy(&file, all->data, sizeof(file));
    memcpy(r->key, file.key, sizeof(r->key));
    return sizeof(file);
}

static int redo_entries(struct redo *r, const struct buf *all, struct redo_each each,
                        struct err *err) {
    size_t at = redo_first(r, all);
    int rc = 0;
    r->len = 0;
    while (rc == 0 && all->len - at > sizeof(struct redo_head)) {
        struct redo_head head;
        uint8_t hash[16];
        memcpy(&head, all->data + at, sizeof(head));
        at += sizeof(head);
        if (head.magic != (r->old ? REDO_OLD_MAGIC : REDO_MAGIC) || head.len > all->len - at ||
            head.len > REDO_ENTRY_MAX)
            break;
        const struct iovec part = {.iov_base = all->data + at, .iov_len = head.len};
        redo_hash(r, &part, 1, hash);
        if (memcmp(hash, head.hash, sizeof(hash)) != 0)
            break;
        rc = each.fn(each.arg, all->data + at, head.len, err);
        at += head.len;
        r->len = at;
        r->entries++;
    }
    return rc;
}

int redo_read(struct redo *r, int (*fn)(void *arg, const char *data, size_t len, struct err *err),
              void *arg, struct err *err) {
    struct redo_each each = {.fn = fn, .arg = arg};
    struct buf all;
    buf_init(&all, REDO_FILE_MAX);
    int rc = r->len > 0 ? redo_load(r, &all, err) : 0;
    r->entries = 0;
    if (rc == 0)
        rc = redo_entries(r, &all, each, err);
    buf_done(&all);
    if (rc < 0)
        return -1;
    if (r->entries == 0 && redo_begin(r, err) < 0)
        return -1;
    /* What follows is added behind the last whole entry: behind half of one nobody would find it.
     */
    if (ftruncate(r->fd, (off_t)r->len) < 0)
        return err_sys(err, "mending the redo log");
    redo_make_room(r);
    return 0;
}

int redo_add(struct redo *r, const struct iovec *parts, size_t count, struct err *err) {
    struct iovec out[REDO_PARTS_MAX + 1];
    struct redo_head head = {.magic = REDO_MAGIC};
    size_t len = 0;
    if (r->old || r->len == 0)
        return err_set(err, ERR_STATE, 0, "the redo log is not ready to be added to");
    if (count > REDO_PARTS_MAX)
        return err_set(err, ERR_LIMIT, 0, "an entry of the redo log has too many parts");
    for (size_t i = 0; i < count; i++) {
        out[i + 1] = parts[i];
        len += parts[i].iov_len;
    }
    if (len > REDO_ENTRY_MAX)
        return err_set(err, ERR_LIMIT, 0, "an entry of the redo log is too long");
    head.len = (uint32_t)len;
    redo_hash(r, parts, count, head.hash);
    out[0] = (struct iovec){.iov_base = &head, .iov_len = sizeof(head)};
    ssize_t n = pwritev(r->fd, out, (int)count + 1, (off_t)r->len);
    if (n == (ssize_t)(len + sizeof(head))) {
        r->len += (uint64_t)n;
        r->entries++;
        return 0;
    }
    /* Half an entry is none, and the next one comes in its place. */
    if (n >= 0)
        errno = ENOSPC;
    return err_sys(err, "writing the redo log");
}

void redo_reset(struct redo *r) {
    bool large = r->len > REDO_ROOM;
    if (r->fd < 0 || r->entries == 0 || redo_begin(r, NULL) < 0)
        return;
    if (large)
        (void)!ftruncate(r->fd, (off_t)REDO_ROOM);
}
