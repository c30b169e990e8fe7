#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

void fd_close(int *fd) {
    if (*fd < 0)
        return;
    int saved = errno;
    /* Linux frees the number whatever close() answers, so a retry could close a stranger's. */
    close(*fd);
    *fd = -1;
    errno = saved;
}

void fd_close_cleanup(int *fd) {
    fd_close(fd);
}

int fd_steal(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

static int fd_open(int dirfd, const char *path, int flags, mode_t mode) {
    int fd;
    do
        fd = openat(dirfd, path, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static ssize_t fd_read_once(int fd, void *data, size_t size) {
    ssize_t n;
    do
        n = read(fd, data, size);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Reads to the end of file; leaves `out` longer also when it fails. */
static int fd_read_rest(int fd, const char *path, struct buf *out, struct err *err) {
    for (;;) {
        size_t room = out->max - out->len;
        if (room > 65536)
            room = 65536;
        char probe;
        char *to = room ? buf_reserve(out, room, err) : &probe;
        if (!to)
            return -1;
        ssize_t n = fd_read_once(fd, to, room ? room : 1);
        if (n < 0)
            return err_sys(err, "cannot read %s", path);
        if (n == 0)
            return 0;
        if (!room)
            return err_set(err, ERR_LIMIT, 0, "%s is larger than %zu bytes", path, out->max);
        out->len += (size_t)n;
    }
}

int fd_read_file(int dirfd, const char *path, struct buf *out, struct err *err) {
    /* O_NONBLOCK: a FIFO must not hold up whoever reads a directory of files. */
    fd_cleanup int fd = fd_open(dirfd, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, "cannot open %s", path);
    size_t before = out->len;
    if (fd_read_rest(fd, path, out, err) < 0) {
        out->len = before;
        if (out->data)
            out->data[before] = '\0';
        return -1;
    }
    return 0;
}

int fd_write_kernel(int dirfd, const char *path, const void *data, size_t len, struct err *err) {
    fd_cleanup int fd = fd_open(dirfd, path, O_WRONLY, 0);
    if (fd < 0)
        return err_sys(err, "cannot open %s for writing", path);
    ssize_t n;
    do
        n = write(fd, data, len);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, "cannot write to %s", path);
    if ((size_t)n != len)
        return err_set(err, ERR_SYSTEM, EIO, "%s took %zd of %zu bytes", path, n, len);
    return 0;
}

int fd_write_all(int fd, const void *data, size_t len, struct err *err) {
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot write %zu bytes", len);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int fd_sync(int fd) {
    int rc;
    do
        rc = fsync(fd);
    while (rc < 0 && errno == EINTR);
    return rc;
}

/* Makes the rename itself durable: fsync of the directory that holds `path`. */
static int fd_sync_parent(int dirfd, const char *path, struct err *err) {
    char parent[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) {
        size_t len = slash == path ? 1 : (size_t)(slash - path);
        if (len >= sizeof(parent))
            return err_set(err, ERR_SYSTEM, ENAMETOOLONG, "cannot open the directory of %s", path);
        memcpy(parent, path, len);
        parent[len] = '\0';
    }
    fd_cleanup int fd = openat(dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open the directory of %s", path);
    if (fd_sync(fd) < 0)
        return err_sys(err, "cannot sync the directory of %s", path);
    return 0;
}

int fd_write_atomic(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                    struct err *err) {
    uint64_t salt;
    if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
        return err_sys(err, "cannot get random bytes");
    char temp[PATH_MAX];
    int n = snprintf(temp, sizeof(temp), "%s.%016" PRIx64 ".tmp", path, salt);
    if (n < 0 || (size_t)n >= sizeof(temp))
        return err_set(err, ERR_SYSTEM, ENAMETOOLONG, "cannot create %s", path);
    fd_cleanup int fd = fd_open(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return err_sys(err, "cannot create %s", temp);
    if (fd_write_all(fd, data, len, err) < 0) {
        err_wrap(err, "%s", path);
        goto undo;
    }
    /* fchmod, because the umask took its part of the mode at open. */
    if (fchmod(fd, mode) < 0 || fd_sync(fd) < 0 || renameat(dirfd, temp, dirfd, path) < 0) {
        err_sys(err, "cannot put %s in place", path);
        goto undo;
    }
    return fd_sync_parent(dirfd, path, err);
undo:
    unlinkat(dirfd, temp, 0);
    return -1;
}

/* Fills text[size] with what pread from 0 gives, NUL-terminated. */
static int fd_pread_text(int fd, char *text, size_t size, struct err *err) {
    ssize_t n;
    /* One read: the kernel makes such a file whole, unless it is longer than a page or the buffer.
     */
    do
        n = pread(fd, text, size - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, "cannot read a kernel counter");
    text[n] = '\0';
    return 0;
}

/* The decimal at `text`, which a newline or the end must follow. */
static int fd_parse_u64(const char *text, uint64_t *value, struct err *err) {
    uint64_t v = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return err_set(err, ERR_INVALID, 0, "a kernel counter is larger than 64 bits");
    }
    if (p == text || (*p != '\0' && *p != '\n'))
        return err_set(err, ERR_INVALID, 0, "a kernel counter is not a number");
    *value = v;
    return 0;
}

int fd_read_u64(int fd, uint64_t *value, struct err *err) {
    char text[64];
    if (fd_pread_text(fd, text, sizeof(text), err) < 0)
        return -1;
    return fd_parse_u64(text, value, err);
}

int fd_read_keyed_u64(int fd, const char *key, uint64_t *value, struct err *err) {
    char text[16384]; /* memory.stat, the longest of them, has about 2 KiB */
    if (fd_pread_text(fd, text, sizeof(text), err) < 0)
        return -1;
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return fd_parse_u64(line + len + 1, value, err);
    }
    return err_set(err, ERR_INVALID, 0, "a kernel file has no key \"%s\"", key);
}

/* pwrite, so that the position stays 0. */
static int fd_memfd_fill(int fd, const char *data, size_t len) {
    size_t done = 0;
    while (done < len) {
        ssize_t n = pwrite(fd, data + done, len - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

int fd_memfd(const char *name, const void *data, size_t len, bool seal, struct err *err) {
    fd_cleanup int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(err, "cannot create the memory file %s", name);
    if (fd_memfd_fill(fd, data, len) < 0)
        return err_sys(err, "cannot fill the memory file %s", name);
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    if (seal && fcntl(fd, F_ADD_SEALS, seals) < 0)
        return err_sys(err, "cannot seal the memory file %s", name);
    return fd_steal(&fd);
}
