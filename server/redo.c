#include "redo.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

#define REDO_MAGIC 0x314f4452u /* "RDO1", little endian */
#define REDO_FILE_MAX ((size_t)1024 * 1024 * 1024)

struct redo_head {
    uint32_t magic, len;
    uint8_t hash[16]; /* of the entry */
};

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

static void redo_hash(const struct iovec *parts, size_t count, uint8_t hash[16]) {
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, 16);
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

int redo_read(struct redo *r, int (*fn)(void *arg, const char *data, size_t len, struct err *err),
              void *arg, struct err *err) {
    struct buf all;
    size_t at = 0, whole = 0;
    if (r->len == 0)
        return 0;
    buf_init(&all, REDO_FILE_MAX);
    int rc = redo_load(r, &all, err);
    while (rc == 0 && all.len - at > sizeof(struct redo_head)) {
        struct redo_head head;
        uint8_t hash[16];
        memcpy(&head, all.data + at, sizeof(head));
        at += sizeof(head);
        if (head.magic != REDO_MAGIC || head.len > all.len - at || head.len > REDO_ENTRY_MAX)
            break;
        const struct iovec part = {.iov_base = all.data + at, .iov_len = head.len};
        redo_hash(&part, 1, hash);
        if (memcmp(hash, head.hash, sizeof(hash)) != 0)
            break;
        rc = fn(arg, all.data + at, head.len, err);
        at += head.len;
        whole = at;
    }
    buf_done(&all);
    /* What follows is added behind the last whole entry: behind half of one nobody would find it.
     */
    if (rc == 0 && whole < r->len) {
        if (ftruncate(r->fd, (off_t)whole) < 0)
            return err_sys(err, "mending the redo log");
        r->len = whole;
    }
    return rc;
}

int redo_add(struct redo *r, const struct iovec *parts, size_t count, struct err *err) {
    struct iovec out[REDO_PARTS_MAX + 1];
    struct redo_head head = {.magic = REDO_MAGIC};
    size_t len = 0;
    if (count > REDO_PARTS_MAX)
        return err_set(err, ERR_LIMIT, 0, "an entry of the redo log has too many parts");
    for (size_t i = 0; i < count; i++) {
        out[i + 1] = parts[i];
        len += parts[i].iov_len;
    }
    if (len > REDO_ENTRY_MAX)
        return err_set(err, ERR_LIMIT, 0, "an entry of the redo log is too long");
    head.len = (uint32_t)len;
    redo_hash(parts, count, head.hash);
    out[0] = (struct iovec){.iov_base = &head, .iov_len = sizeof(head)};
    ssize_t n = pwritev(r->fd, out, (int)count + 1, (off_t)r->len);
    if (n == (ssize_t)(len + sizeof(head))) {
        r->len += (uint64_t)n;
        r->entries++;
        return 0;
    }
    int code = n < 0 ? errno : ENOSPC;
    /* Half an entry is none, and the next one comes in its place. */
    (void)!ftruncate(r->fd, (off_t)r->len);
    errno = code;
    return err_sys(err, "writing the redo log");
}

void redo_reset(struct redo *r) {
    if (r->len > 0 && ftruncate(r->fd, 0) == 0)
        r->len = 0;
    r->entries = 0;
}
