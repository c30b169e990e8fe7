#include "fileop_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fd.h"

/* A record that found the pipe full is kept whole, and one END behind it. */
#define FILEOP_FEED_MAX                                                                            \
    (FILEOP_DATA_MAX + FILEOP_PATH_MAX + FILEOP_TARGET_MAX + 8 * sizeof(struct fileop_record))
/* Fewer wake-ups per byte for an upload that fills its pipe. */
#define FILEOP_FEED_PIPE (1024 * 1024)

void fileop_feed_init(struct fileop_feed *f, struct loop *loop, void (*writable)(void *arg),
                      void *arg) {
    memset(f, 0, sizeof(*f));
    f->loop = loop;
    f->fd = -1;
    f->source.fd = -1;
    f->writable = writable;
    f->arg = arg;
    buf_init(&f->pending, FILEOP_FEED_MAX);
}

static void fileop_feed_close(struct fileop_feed *f) {
    loop_del(f->loop, &f->source);
    fd_close(&f->fd);
    buf_done(&f->pending);
}

void fileop_feed_done(struct fileop_feed *f) {
    fileop_feed_close(f);
}

static void fileop_feed_break(struct fileop_feed *f) {
    f->broken = true;
    fileop_feed_close(f);
}

/* Bytes that went, 0 = the pipe is full, -1 = nobody reads it. */
static ssize_t fileop_feed_write(struct fileop_feed *f, const struct iovec *parts, int count) {
    ssize_t n;
    do
        n = writev(f->fd, parts, count);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    return n;
}

/* Only while something waits: a pipe is writable nearly always. */
static void fileop_feed_watch(struct fileop_feed *f, bool wait) {
    (void)loop_mod(f->loop, &f->source, wait ? EPOLLOUT : 0u, NULL);
    if (wait && !f->widened) {
        f->widened = true;
        (void)fcntl(f->fd, F_SETPIPE_SZ, FILEOP_FEED_PIPE); /* only a matter of speed */
    }
}

static void fileop_feed_flush(struct fileop_feed *f) {
    while (f->pending.len > 0) {
        struct iovec part = {.iov_base = f->pending.data, .iov_len = f->pending.len};
        ssize_t n = fileop_feed_write(f, &part, 1);
        if (n < 0) {
            fileop_feed_break(f);
            return;
        }
        if (n == 0) {
            fileop_feed_watch(f, true);
            return;
        }
        buf_consume(&f->pending, (size_t)n);
    }
    if (f->finished)
        fileop_feed_close(f);
    else
        fileop_feed_watch(f, false);
}

static void fileop_feed_event(void *arg, uint32_t events) {
    struct fileop_feed *f = arg;
    if ((events & EPOLLERR) != 0)
        fileop_feed_break(f);
    else
        fileop_feed_flush(f);
    if (f->broken || (f->pending.len == 0 && !f->finished))
        f->writable(f->arg);
}

int fileop_feed_open(struct fileop_feed *f, int fd, struct err *err) {
    f->fd = fd;
    /* EPOLLERR, which says that nobody reads any more, is always told. */
    if (loop_add(f->loop, &f->source, fd, f->pending.len > 0 ? EPOLLOUT : 0u, fileop_feed_event, f,
                 err) < 0) {
        fileop_feed_break(f);
        return -1;
    }
    /* A writer that waited for the start is told by the first event. */
    if (f->pending.len == 0)
        (void)loop_mod(f->loop, &f->source, EPOLLOUT, NULL);
    return 0;
}

/* Keeps what of the parts follows the first `gone` bytes. */
static int fileop_feed_keep(struct fileop_feed *f, const struct iovec *parts, int count,
                            size_t gone) {
    for (int i = 0; i < count; i++) {
        size_t skip = gone < parts[i].iov_len ? gone : parts[i].iov_len;
        gone -= skip;
        if (skip == parts[i].iov_len)
            continue;
        if (buf_append(&f->pending, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip,
                       NULL) < 0) {
            fileop_feed_break(f);
            return -1;
        }
    }
    return 0;
}

int fileop_feed_put(struct fileop_feed *f, const struct fileop_record *rec, const char *path,
                    const char *target, const void *data) {
    struct fileop_record head = *rec;
    ssize_t gone = 0;
    size_t data_len = data != NULL ? rec->data_len : 0, all = fileop_size(rec) + data_len;
    if (f->broken || f->finished)
        return -1;
    head.magic = FILEOP_MAGIC;
    struct iovec parts[4] = {{.iov_base = &head, .iov_len = sizeof(head)},
                             {.iov_base = (void *)(uintptr_t)path, .iov_len = rec->path_len},
                             {.iov_base = (void *)(uintptr_t)target, .iov_len = rec->target_len},
                             {.iov_base = (void *)(uintptr_t)data, .iov_len = data_len}};
    if (f->fd >= 0 && f->pending.len == 0) {
        gone = fileop_feed_write(f, parts, 4);
        if (gone < 0) {
            fileop_feed_break(f);
            return -1;
        }
        if ((size_t)gone == all)
            return 1;
        fileop_feed_watch(f, true);
    }
    return fileop_feed_keep(f, parts, 4, (size_t)gone);
}

ssize_t fileop_feed_bytes(struct fileop_feed *f, const void *data, size_t len) {
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    if (f->broken || f->finished)
        return -1;
    if (f->fd < 0 || f->pending.len > 0)
        return 0;
    ssize_t n = fileop_feed_write(f, &part, 1);
    if (n < 0)
        fileop_feed_break(f);
    else if ((size_t)n < len)
        fileop_feed_watch(f, true);
    return n;
}

void fileop_feed_finish(struct fileop_feed *f) {
    struct fileop_record end = {.type = FILEOP_END};
    if (fileop_feed_put(f, &end, NULL, NULL, NULL) < 0)
        return;
    f->finished = true;
    if (f->fd >= 0)
        fileop_feed_flush(f);
}

int fileop_feed_take(struct fileop_feed *f) {
    int fd = f->fd;
    if (fd < 0 || f->pending.len > 0)
        return -1;
    loop_del(f->loop, &f->source);
    f->fd = -1;
    f->broken = true;
    (void)fcntl(fd, F_SETFL, 0);
    return fd;
}
