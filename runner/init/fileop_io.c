#include "fileop_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define FILEOP_IO_NS 1000000000

static int64_t fileop_io_ns(const struct timespec *t) {
    int64_t ns = 0;
    if (__builtin_mul_overflow((int64_t)t->tv_sec, (int64_t)FILEOP_IO_NS, &ns) ||
        __builtin_add_overflow(ns, (int64_t)t->tv_nsec, &ns)) {
        return t->tv_sec < 0 ? INT64_MIN + 1 : INT64_MAX;
    }
    return ns;
}

static uint32_t fileop_io_kind(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return FILEOP_FILE;
    case S_IFDIR:
        return FILEOP_DIRECTORY;
    case S_IFLNK:
        return FILEOP_SYMLINK;
    case S_IFIFO:
        return FILEOP_FIFO;
    case S_IFSOCK:
        return FILEOP_SOCKET;
    default:
        return FILEOP_DEVICE;
    }
}

void fileop_io_entry(struct fileop_record *rec, const struct stat *st) {
    *rec = (struct fileop_record){
        .type = FILEOP_ENTRY,
        .kind = fileop_io_kind(st->st_mode),
        .mode = st->st_mode & 07777,
        .nlink = (uint32_t)st->st_nlink,
        .size = (uint64_t)st->st_size,
        .inode = st->st_ino,
        .mtime_ns = fileop_io_ns(&st->st_mtim),
        .ctime_ns = fileop_io_ns(&st->st_ctim),
    };
}

/* After a call that failed: may it be tried again? Waits where a descriptor does not block. */
static bool fileop_io_again(int fd, short events) {
    if (errno == EINTR) {
        return true;
    }
    if (errno != EAGAIN) {
        return false;
    }
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, -1) >= 0 || errno == EINTR;
}

static int fileop_io_dead(struct fileop_io *io) {
    io->dead = true;
    io->out_len = 0;
    errno = EPIPE;
    return -1;
}

static int fileop_io_write(struct fileop_io *io, const char *p, size_t len) {
    while (len > 0) {
        ssize_t n = write(io->out, p, len);
        if (n < 0) {
            if (fileop_io_again(io->out, POLLOUT)) {
                continue;
            }
            return fileop_io_dead(io);
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int fileop_io_flush(struct fileop_io *io) {
    if (io->dead) {
        return fileop_io_dead(io);
    }
    size_t len = io->out_len;
    io->out_len = 0;
    return fileop_io_write(io, io->out_buf, len);
}

/* Room for `len` bytes, which is far less than the buffer. */
static char *fileop_io_room(struct fileop_io *io, size_t len) {
    if ((io->dead || sizeof io->out_buf - io->out_len < len) && fileop_io_flush(io) != 0) {
        return NULL;
    }
    return io->out_buf + io->out_len;
}

int fileop_io_put(struct fileop_io *io, struct fileop_record *rec, const char *path, size_t len,
                  const char *target) {
    rec->magic = FILEOP_MAGIC;
    rec->path_len = (uint32_t)len;
    rec->target_len = target ? (uint32_t)strlen(target) : 0;
    size_t size = fileop_size(rec);
    char *p = fileop_io_room(io, size);
    if (p == NULL) {
        return -1;
    }
    memcpy(p, rec, sizeof *rec);
    memcpy(p + sizeof *rec, path, len);
    if (target) {
        memcpy(p + sizeof *rec + len, target, rec->target_len);
    }
    io->out_len += size;
    return 0;
}

int fileop_io_error(struct fileop_io *io, const char *path, size_t len, int code) {
    struct fileop_record rec = {
        .type = FILEOP_ERROR,
        .code = (uint32_t)fileop_code_of_errno(code),
        .sys = code,
    };
    if (rec.code == FILEOP_OK) {
        rec.code = FILEOP_IO;
    }
    return fileop_io_put(io, &rec, path, len, NULL);
}

static int fileop_io_data(struct fileop_io *io, uint32_t len) {
    struct fileop_record rec = {.type = FILEOP_DATA, .data_len = len};
    return fileop_io_put(io, &rec, "", 0, NULL);
}

/* Up to `len` bytes from the file to the pipe: how many, 0 at the end of the file. */
static ssize_t fileop_io_move(struct fileop_io *io, int fd, off_t *at, size_t len) {
    while (!io->copy_out) {
        ssize_t n = splice(fd, at, io->out, NULL, len, SPLICE_F_MOVE);
        if (n >= 0) {
            return n;
        }
        if (errno == EPIPE) {
            return fileop_io_dead(io);
        }
        if (errno == EINVAL) {
            io->copy_out = true; /* no pipe, or a file that has no pages to give */
        } else if (!fileop_io_again(io->out, POLLOUT)) {
            return -1;
        }
    }
    ssize_t n = 0;
    do {
        n = pread(fd, io->data, len < sizeof io->data ? len : sizeof io->data, *at);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        *at += n;
        if (fileop_io_write(io, io->data, (size_t)n) != 0) {
            return -1;
        }
    }
    return n;
}

/* The record was announced with this length: what the file has no more is zeros. */
static int fileop_io_zeros(struct fileop_io *io, size_t len) {
    memset(io->data, 0, sizeof io->data);
    while (len > 0) {
        size_t n = len < sizeof io->data ? len : sizeof io->data;
        if (fileop_io_write(io, io->data, n) != 0) {
            return -1;
        }
        len -= n;
    }
    return 0;
}

int fileop_io_contents(struct fileop_io *io, int fd, uint64_t offset, uint64_t size, bool *shrunk) {
    off_t at = (off_t)offset;
    *shrunk = false;
    while (size > 0 && !*shrunk) {
        uint32_t left = size < FILEOP_DATA_MAX ? (uint32_t)size : FILEOP_DATA_MAX;
        size -= left;
        if (fileop_io_data(io, left) != 0 || fileop_io_flush(io) != 0) {
            return -1;
        }
        while (left > 0) {
            ssize_t n = fileop_io_move(io, fd, &at, left);
            if (io->dead) {
                return -1;
            }
            if (n <= 0) { /* an error of reading is told like a file that shrank */
                *shrunk = true;
                if (fileop_io_zeros(io, left) != 0) {
                    return -1;
                }
                break;
            }
            left -= (uint32_t)n;
        }
    }
    return fileop_io_data(io, 0);
}

/* Contents that fit into the buffer are read first, and their size is what was read. */
static int fileop_io_small(struct fileop_io *io, int fd, struct fileop_record *rec,
                           const char *path, size_t len) {
    size_t head = sizeof *rec + len + sizeof *rec;
    char *p = fileop_io_room(io, head + FILEOP_IO_SMALL + sizeof *rec);
    if (p == NULL) {
        return -1;
    }
    size_t got = 0;
    while (got < rec->size) {
        ssize_t n = read(fd, p + head + got, (size_t)rec->size - got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fileop_io_error(io, path, len, errno);
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    rec->size = got;
    if (fileop_io_put(io, rec, path, len, NULL) != 0) {
        return -1;
    }
    if (got > 0) {
        if (fileop_io_data(io, (uint32_t)got) != 0) {
            return -1;
        }
        io->out_len += got;
    }
    return fileop_io_data(io, 0);
}

int fileop_io_file(struct fileop_io *io, int fd, const struct stat *st, const char *path,
                   size_t len) {
    struct fileop_record rec;
    bool shrunk = false;
    fileop_io_entry(&rec, st);
    rec.flags = FILEOP_CONTENT;
    if (rec.size <= FILEOP_IO_SMALL) {
        return fileop_io_small(io, fd, &rec, path, len);
    }
    if (fileop_io_put(io, &rec, path, len, NULL) != 0 ||
        fileop_io_contents(io, fd, 0, rec.size, &shrunk) != 0) {
        return -1;
    }
    return shrunk ? fileop_io_error(io, path, len, ESTALE) : 0;
}

/* One read. What is there already of the answer goes out first: whoever writes may wait for it.
 * > 0, 0 at the end, -1. */
static ssize_t fileop_io_read(struct fileop_io *io, char *p, size_t size) {
    if (io->out_len > 0 && fileop_io_flush(io) != 0) {
        return -1;
    }
    for (;;) {
        ssize_t n = read(io->in, p, size);
        if (n >= 0 || !fileop_io_again(io->in, POLLIN)) {
            return n;
        }
    }
}

static int fileop_io_fill(struct fileop_io *io) {
    memmove(io->in_buf, io->in_buf + io->in_pos, io->in_len - io->in_pos);
    io->in_len -= io->in_pos;
    io->in_pos = 0;
    ssize_t n = fileop_io_read(io, io->in_buf + io->in_len, sizeof io->in_buf - io->in_len);
    if (n > 0) {
        io->in_len += (size_t)n;
    }
    return n < 0 ? -1 : n > 0 ? 1 : 0;
}

int fileop_io_next(struct fileop_io *io, struct fileop_in *item) {
    if (io->data_left > 0 && fileop_io_take(io, -1) != 0) {
        return -1;
    }
    const char *path = NULL;
    const char *target = NULL;
    for (;;) {
        int rc = fileop_take(io->in_buf + io->in_pos, io->in_len - io->in_pos, &item->rec, &path,
                             &target, NULL);
        if (rc > 0) {
            break;
        }
        if (rc < 0) {
            errno = EPROTO;
            return -1;
        }
        rc = fileop_io_fill(io);
        if (rc <= 0) {
            return rc;
        }
    }
    memcpy(item->path, path, item->rec.path_len);
    item->path[item->rec.path_len] = '\0';
    memcpy(item->target, target, item->rec.target_len);
    item->target[item->rec.target_len] = '\0';
    io->in_pos += fileop_size(&item->rec);
    io->data_left = item->rec.data_len;
    return 1;
}

static int fileop_io_store(int fd, const char *p, size_t len) {
    while (fd >= 0 && len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* From the pipe to the file: 1, 0 = the kernel cannot, -1. */
static int fileop_io_direct(struct fileop_io *io, int fd) {
    ssize_t n = splice(io->in, NULL, fd, NULL, io->data_left, SPLICE_F_MOVE);
    if (n > 0) {
        io->data_left -= (uint32_t)n;
        return 1;
    }
    if (n == 0) {
        errno = EPROTO;
        return -1;
    }
    if (errno == EINVAL) {
        return 0;
    }
    return fileop_io_again(io->in, POLLIN) ? 1 : -1;
}

int fileop_io_take(struct fileop_io *io, int fd) {
    size_t n = io->in_len - io->in_pos < io->data_left ? io->in_len - io->in_pos : io->data_left;
    if (fileop_io_store(fd, io->in_buf + io->in_pos, n) != 0) {
        return -1;
    }
    io->in_pos += n;
    io->data_left -= (uint32_t)n;
    while (io->data_left > 0 && fd >= 0 && !io->copy_in) {
        int rc = fileop_io_direct(io, fd);
        if (rc < 0) {
            return -1;
        }
        io->copy_in = rc == 0;
    }
    while (io->data_left > 0) {
        n = io->data_left < sizeof io->data ? io->data_left : sizeof io->data;
        ssize_t got = fileop_io_read(io, io->data, n);
        if (got <= 0) {
            errno = got == 0 ? EPROTO : errno;
            return -1;
        }
        io->data_left -= (uint32_t)got;
        if (fileop_io_store(fd, io->data, (size_t)got) != 0) {
            return -1;
        }
    }
    return 0;
}

int fileop_io_take_all(struct fileop_io *io, struct fileop_in *item, int fd) {
    for (;;) {
        int rc = fileop_io_next(io, item);
        if (rc <= 0 || item->rec.type != FILEOP_DATA) {
            errno = rc < 0 ? errno : EPROTO;
            return -1;
        }
        if (item->rec.data_len == 0) {
            return 0;
        }
        if (fileop_io_take(io, fd) != 0) {
            return -1;
        }
    }
}
