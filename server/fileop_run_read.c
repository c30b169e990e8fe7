/* Contents of a file by hand: into memory, or straight into a socket. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "fileop_run_internal.h"

/* Where they go: `size` bytes at most. */
struct fileop_run_sink {
    char *data; /* NULL: into `socket` */
    int socket;
    size_t size;
};

/* The head of the next record, and contents before it when `data` is not NULL: how many of these.
 */
static size_t fileop_run_read_through(struct fileop_run *r, char *data, size_t size) {
    size_t room = 0, left = r->parse.data_left < size ? r->parse.data_left : size;
    char *space = fileop_parse_space(&r->parse, &room);
    if (space == NULL)
        return 0;
    if (room > sizeof(struct fileop_record))
        room = sizeof(struct fileop_record);
    struct iovec parts[2] = {{.iov_base = data, .iov_len = left},
                             {.iov_base = space, .iov_len = room}};
    int count = left == r->parse.data_left ? 2 : 1;
    size_t n = left > 0 ? fileop_run_fill(r, parts, count) : fileop_run_fill(r, parts + 1, 1);
    size_t through = n < left ? n : left;
    fileop_parse_skip(&r->parse, through);
    fileop_parse_add(&r->parse, n - through);
    return through;
}

/* What was read already. */
static ssize_t fileop_run_read_send(struct fileop_run *r, const char *there, size_t len,
                                    int socket) {
    ssize_t n;
    do
        n = send(socket, there, len, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        fileop_parse_took(&r->parse, (size_t)n);
    return n < 0 && errno == EAGAIN ? FILEOP_RUN_FULL : n < 0 ? -2 : n;
}

/* What is in the pipe: its pages become the socket's, nothing is copied. */
static ssize_t fileop_run_read_splice(struct fileop_run *r, size_t len, int socket) {
    int waiting = 0;
    ssize_t n;
    if (r->eof || r->fd < 0)
        return 0;
    do
        n = splice(r->fd, NULL, socket, NULL, len, SPLICE_F_NONBLOCK | SPLICE_F_MORE);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        fileop_parse_skip(&r->parse, (size_t)n);
        fileop_run_widen(r, (size_t)n);
        return n;
    }
    if (n == 0) {
        fileop_run_end_of_file(r);
        return 0;
    }
    /* The kernel does not tell which of the two would block. */
    if (errno != EAGAIN || ioctl(r->fd, FIONREAD, &waiting) < 0)
        return -2;
    return waiting > 0 ? FILEOP_RUN_FULL : 0;
}

/* Bytes of the current record, 0 = none are there. */
static ssize_t fileop_run_read_piece(struct fileop_run *r, const struct fileop_run_sink *sink,
                                     bool through) {
    size_t len = 0;
    if (sink->data != NULL) {
        len = fileop_parse_contents(&r->parse, sink->data, sink->size);
        if (len == 0 && through)
            len = fileop_run_read_through(r, sink->data, sink->size);
        return (ssize_t)len;
    }
    const char *there = fileop_parse_there(&r->parse, &len);
    if (len > 0)
        return fileop_run_read_send(r, there, len < sink->size ? len : sink->size, sink->socket);
    len = r->parse.data_left < sink->size ? r->parse.data_left : sink->size;
    if (len > 0 && through)
        return fileop_run_read_splice(r, len, sink->socket);
    if (through)
        (void)fileop_run_read_through(r, NULL, 0);
    return 0;
}

static ssize_t fileop_run_read_into(struct fileop_run *r, const struct fileop_run_sink *sink) {
    enum fileop_parse_head head = FILEOP_PARSE_DATA;
    if (r->phase == FILEOP_RUN_OVER || r->cancelled)
        return -2;
    for (int i = 0; i < FILEOP_RUN_READS && !r->skips; i++) {
        if (r->parse.data_left == 0)
            head = fileop_parse_head(&r->parse);
        if (head == FILEOP_PARSE_END) {
            fileop_run_soon(r);
            return -1;
        }
        ssize_t n = fileop_run_read_piece(r, sink, head != FILEOP_PARSE_OTHER);
        if (n != 0)
            return n;
        /* Why it was cut short is found out by the ordinary way. */
        r->skips = r->eof || head == FILEOP_PARSE_OTHER;
    }
    if (!r->skips && fileop_run_watch(r) == 0)
        return 0;
    r->skips = true;
    fileop_run_soon(r);
    return -2;
}

ssize_t fileop_run_read(struct fileop_run *r, char *data, size_t size) {
    const struct fileop_run_sink sink = {.data = data, .socket = -1, .size = size};
    return fileop_run_read_into(r, &sink);
}

ssize_t fileop_run_read_to(struct fileop_run *r, int socket, size_t size) {
    const struct fileop_run_sink sink = {.socket = socket, .size = size};
    return fileop_run_read_into(r, &sink);
}
