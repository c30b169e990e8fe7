#include "outq.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

#define OUTQ_PAGE 4096u /* a pipe that polls writable takes at least this much */
#define OUTQ_CHUNK 65536u
#define OUTQ_HOLE (16u * 1024 * 1024)

void outq_init(struct outq *q, int fd, int wake) {
    struct stat st;

    *q = (struct outq){.fd = fd, .spool = -1, .max = OUTQ_SPOOL_MAX, .wake = wake};
    q->chunked = fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

void outq_done(struct outq *q) {
    fd_close(&q->spool);
    q->head = q->tail = 0;
}

bool outq_is_empty(const struct outq *q) {
    return q->head == q->tail;
}

/* Waits until the descriptor takes bytes (`timeout` as for poll). 1 = it does, 0 = not yet. */
static int outq_wait(const struct outq *q, int timeout, struct err *err) {
    struct pollfd fds[2] = {{.fd = q->fd, .events = POLLOUT}, {.fd = q->wake, .events = POLLIN}};

    if (!q->chunked)
        return 1;
    while (poll(fds, timeout != 0 ? 2 : 1, timeout) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for the output");
    /* An error condition is for write(2) to report. */
    if (fds[0].revents != 0)
        return 1;
    if (fds[1].revents != 0)
        return err_set(err, ERR_STATE, EINTR, "interrupted");
    return 0;
}

/* One write. -> bytes taken, 0 = none now, -1. */
static ssize_t outq_write(const struct outq *q, const char *data, size_t len, int timeout,
                          struct err *err) {
    int ready = outq_wait(q, timeout, err);
    ssize_t got;

    if (ready <= 0)
        return ready;
    if (q->chunked && len > OUTQ_PAGE)
        len = OUTQ_PAGE;
    got = write(q->fd, data, len);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got < 0)
        return err_sys(err, "cannot write the output");
    return got;
}

static int outq_open_spool(struct outq *q) {
    const char *dir = getenv("TMPDIR");
    char name[64] = "/tmp/pinfold-XXXXXX";

    if (q->spool >= 0)
        return 0;
    q->spool =
        open(dir != NULL && *dir != '\0' ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (q->spool < 0) {
        /* A file system without O_TMPFILE. */
        q->spool = mkostemp(name, O_CLOEXEC);
        if (q->spool >= 0)
            unlink(name);
    }
    return q->spool < 0 ? -1 : 0;
}

/* Puts bytes behind what is pending. -> bytes taken, 0 when there is no room for them. */
static size_t outq_spool(struct outq *q, const char *data, size_t len) {
    ssize_t got;

    if (q->tail - q->head >= q->max || outq_open_spool(q) < 0)
        return 0;
    got = pwrite(q->spool, data, len, (off_t)q->tail);
    if (got <= 0)
        return 0;
    q->tail += (uint64_t)got;
    return (size_t)got;
}

/* Counts bytes as written and gives their disk space back. */
static void outq_release(struct outq *q, size_t done) {
    uint64_t before = q->head / OUTQ_HOLE;

    q->head += done;
    if (q->head == q->tail) {
        if (ftruncate(q->spool, 0) < 0)
            fd_close(&q->spool);
        q->head = q->tail = 0;
    } else if (q->head / OUTQ_HOLE > before) {
        /* Where holes cannot be made, the space comes back when all is written. */
        (void)fallocate(q->spool, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)q->head);
    }
}

/* Writes a part of what is pending. -> bytes, 0 = none now, -1. */
static ssize_t outq_shift(struct outq *q, int timeout, struct err *err) {
    char chunk[OUTQ_CHUNK];
    uint64_t left = q->tail - q->head;
    ssize_t have, got;
    size_t done = 0;

    have =
        pread(q->spool, chunk, left < sizeof(chunk) ? (size_t)left : sizeof(chunk), (off_t)q->head);
    if (have == 0)
        errno = EIO;
    if (have <= 0)
        return err_sys(err, "cannot read the temporary file of the output");
    do {
        got = outq_write(q, chunk + done, (size_t)have - done, done == 0 ? timeout : 0, err);
        if (got < 0)
            return -1;
        done += (size_t)got;
    } while (got > 0 && done < (size_t)have);
    outq_release(q, done);
    return (ssize_t)done;
}

int outq_push(struct outq *q, struct err *err) {
    while (!outq_is_empty(q)) {
        ssize_t got = outq_shift(q, 0, err);

        if (got <= 0)
            return (int)got;
    }
    return 0;
}

int outq_put(struct outq *q, const void *data, size_t len, struct err *err) {
    const char *p = data;

    while (len > 0) {
        ssize_t got = 0;

        if (outq_push(q, err) < 0)
            return -1;
        if (outq_is_empty(q))
            got = outq_write(q, p, len, 0, err);
        if (got == 0)
            got = (ssize_t)outq_spool(q, p, len);
        if (got == 0 && !outq_is_empty(q) && outq_shift(q, -1, err) < 0)
            return -1;
        if (got == 0 && outq_is_empty(q))
            got = outq_write(q, p, len, -1, err);
        if (got < 0)
            return -1;
        p += got;
        len -= (size_t)got;
    }
    return 0;
}

int outq_drain(struct outq *q, struct err *err) {
    while (!outq_is_empty(q))
        if (outq_shift(q, -1, err) < 0)
            return -1;
    return 0;
}
