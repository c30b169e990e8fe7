#include "spool_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

#define SPOOL_LOG_NAME "exec.log"
#define SPOOL_LOG_NEXT "exec.log.new"
#define SPOOL_LOG_MAGIC 0x314c4650u /* "PFL1" */
/* Room is taken in pieces of this size, so that few records have to ask for it. */
#define SPOOL_LOG_PIECE ((uint64_t)16 * 1024)

struct spool_log_head {
    uint32_t magic;
    uint32_t type;
    uint32_t number;
    uint32_t len;
};

void spool_log_init(struct spool_log *l, int dir) {
    *l = (struct spool_log){.dir = dir, .fd = -1};
}

bool spool_log_exists(const struct spool_log *l) {
    return faccessat(l->dir, SPOOL_LOG_NAME, F_OK, 0) == 0;
}

void spool_log_close(struct spool_log *l) {
    fd_close(&l->fd);
}

int spool_log_open(struct spool_log *l, struct err *err) {
    struct stat st;
    if (l->fd >= 0)
        return 0;
    int fd = openat(l->dir, SPOOL_LOG_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "opening the journal of executions");
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        fd_close(&fd);
        return err_set(err, ERR_STATE, 0, "the journal of executions is not a file");
    }
    l->fd = fd;
    l->size = (uint64_t)st.st_size;
    l->room = 0;
    return 0;
}

int spool_log_room(struct spool_log *l, uint64_t bytes, struct err *err) {
    uint64_t end = l->size + bytes, piece = (end / SPOOL_LOG_PIECE + 1) * SPOOL_LOG_PIECE;
    if (end <= l->room)
        return 0;
    int rc = fallocate(l->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)piece);
    if (rc < 0 && errno == ENOSPC) {
        piece = end;
        rc = fallocate(l->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)piece);
    }
    if (rc < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return err_sys(err, "taking room for the journal of executions");
    l->room = piece;
    return 0;
}

/* A write that did not come to its end is taken back, so that the next record is found. */
static int spool_log_write(struct spool_log *l, const struct iovec *parts, int count, size_t len,
                           struct err *err) {
    ssize_t n;
    /* Taking back what did not fit would give the room away, too. */
    if (spool_log_room(l, len, err) < 0)
        return -1;
    do
        n = pwritev(l->fd, parts, count, (off_t)l->size);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return 0;
    int code = n < 0 ? errno : ENOSPC;
    (void)!ftruncate(l->fd, (off_t)l->size);
    l->room = 0;
    errno = code;
    return err_sys(err, "writing to the journal of executions");
}

int spool_log_append(struct spool_log *l, enum spool_log_type type, uint32_t number,
                     const struct iovec *parts, size_t count, struct spool_log_place *place,
                     struct err *err) {
    static const char zeros[8];
    struct iovec all[SPOOL_LOG_PARTS + 2];
    size_t len = 0;
    if (spool_log_open(l, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        all[i + 1] = parts[i];
        len += parts[i].iov_len;
    }
    if (count > SPOOL_LOG_PARTS || len > SPOOL_LOG_RECORD_MAX)
        return err_set(err, ERR_LIMIT, 0, "a record of the journal would have %zu bytes", len);
    struct spool_log_head head = {
        .magic = SPOOL_LOG_MAGIC, .type = type, .number = number, .len = (uint32_t)len};
    size_t pad = (8 - len % 8) % 8;
    all[0] = (struct iovec){.iov_base = &head, .iov_len = sizeof(head)};
    all[count + 1] = (struct iovec){.iov_base = (void *)(uintptr_t)zeros, .iov_len = pad};
    if (spool_log_write(l, all, (int)count + 2, sizeof(head) + len + pad, err) < 0)
        return -1;
    if (place != NULL)
        *place = (struct spool_log_place){.at = l->size + sizeof(head), .len = (uint32_t)len};
    l->size += sizeof(head) + len + pad;
    return 0;
}

/* Loading. */

static bool spool_log_read(int fd, uint64_t at, void *data, size_t len) {
    char *to = data;
    while (len > 0) {
        ssize_t n = pread(fd, to, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

static bool spool_log_head_ok(const struct spool_log_head *h, uint64_t left) {
    return h->magic == SPOOL_LOG_MAGIC && h->type >= SPOOL_LOG_START && h->type < SPOOL_LOG_TYPES &&
           h->len <= SPOOL_LOG_RECORD_MAX && ((uint64_t)h->len + 7) / 8 * 8 <= left;
}

int spool_log_load(struct spool_log *l, void (*each)(void *arg, const struct spool_log_record *r),
                   void *arg, struct err *err) {
    struct spool_log_head head;
    uint64_t at = 0;
    (void)unlinkat(l->dir, SPOOL_LOG_NEXT, 0);
    if (spool_log_open(l, err) < 0)
        return -1;
    char *payload = malloc(SPOOL_LOG_RECORD_MAX + 8);
    if (payload == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading a journal: out of memory");
    while (l->size - at >= sizeof(head)) {
        if (!spool_log_read(l->fd, at, &head, sizeof(head)) ||
            !spool_log_head_ok(&head, l->size - at - sizeof(head)) ||
            !spool_log_read(l->fd, at + sizeof(head), payload, head.len))
            break;
        struct spool_log_record r = {.type = head.type,
                                     .number = head.number,
                                     .place = {.at = at + sizeof(head), .len = head.len},
                                     .payload = payload};
        each(arg, &r);
        at += sizeof(head) + (head.len + 7u) / 8 * 8;
    }
    free(payload);
    if (at < l->size && ftruncate(l->fd, (off_t)at) < 0)
        return err_sys(err, "cutting a journal");
    l->room = 0;
    l->size = at;
    return 0;
}

/* Writing it anew. */

int spool_log_anew(const struct spool_log *l, struct spool_log *next, struct err *err) {
    int fd =
        openat(l->dir, SPOOL_LOG_NEXT, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "making a new journal");
    *next = (struct spool_log){.dir = l->dir, .fd = fd};
    return 0;
}

int spool_log_copy(const struct spool_log *l, struct spool_log *next, enum spool_log_type type,
                   uint32_t number, struct spool_log_place *place, struct err *err) {
    char *data = malloc(place->len + 1u);
    if (data == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "copying a record: out of memory");
    struct iovec part = {.iov_base = data, .iov_len = place->len};
    int rc = spool_log_read(l->fd, place->at, data, place->len)
                 ? spool_log_append(next, type, number, &part, 1, place, err)
                 : err_set(err, ERR_STATE, 0, "a record of the journal cannot be read");
    free(data);
    return rc;
}

int spool_log_commit(struct spool_log *l, struct spool_log *next, struct err *err) {
    if (renameat(l->dir, SPOOL_LOG_NEXT, l->dir, SPOOL_LOG_NAME) < 0)
        return err_sys(err, "putting a new journal in place");
    fd_close(&l->fd);
    *l = *next;
    next->fd = -1;
    return 0;
}

void spool_log_drop(struct spool_log *next) {
    fd_close(&next->fd);
    (void)unlinkat(next->dir, SPOOL_LOG_NEXT, 0);
}
