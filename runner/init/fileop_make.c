#include "fileop_make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILEOP_MAKE_TRIES 16
#define FILEOP_MAKE_NS 1000000000

static void fileop_make_close(int fd) {
    int code = errno;
    (void)close(fd);
    errno = code;
}

static void fileop_make_unlink(int dir, const char *name) {
    int code = errno;
    (void)unlinkat(dir, name, 0);
    errno = code;
}

int fileop_make_temp(struct fileop_temp *t, int dir) {
    t->dir = dir;
    t->name[0] = '\0';
    t->fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (t->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return t->fd < 0 ? -1 : 0;
    }
    for (int i = 0; i < FILEOP_MAKE_TRIES && t->fd < 0; i++) {
        fileop_path_secret(t->name);
        t->fd = openat(dir, t->name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (t->fd < 0 && errno != EEXIST) {
            break;
        }
    }
    if (t->fd < 0) {
        t->name[0] = '\0';
        return -1;
    }
    return 0;
}

/* Links a file without a name. Since 6.10 the descriptor alone is enough for who opened it. */
static int fileop_make_link(const struct fileop_temp *t, const char *name) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", t->fd);
    int rc = linkat(AT_FDCWD, path, t->dir, name, AT_SYMLINK_FOLLOW);
    if (rc == 0 || errno != ENOENT) {
        return rc;
    }
    return linkat(t->fd, "", t->dir, name, AT_EMPTY_PATH);
}

int fileop_make_rename(int from, const char *from_name, int to, const char *to_name,
                       enum fileop_make_how how) {
    return (int)syscall(SYS_renameat2, from, from_name, to, to_name, (unsigned)how);
}

int fileop_make_settle(int dir, const char *secret, const char *name) {
    int rc = renameat(dir, secret, dir, name);
    if (rc != 0 && errno == EISDIR) {
        rc = unlinkat(dir, name, AT_REMOVEDIR) == 0 ? renameat(dir, secret, dir, name) : -1;
        if (rc != 0 && (errno == ENOTEMPTY || errno == EEXIST)) {
            errno = EISDIR;
        }
    }
    /* Two names of one file: the kernel leaves both as they are. */
    fileop_make_unlink(dir, secret);
    return rc;
}

int fileop_make_place(struct fileop_temp *t, const char *name, bool replace) {
    char secret[FILEOP_PATH_SECRET];
    if (t->name[0] != '\0') {
        if (!replace) {
            return linkat(t->dir, t->name, t->dir, name, 0);
        }
        int rc = fileop_make_settle(t->dir, t->name, name);
        t->name[0] = '\0';
        return rc;
    }
    if (fileop_make_link(t, name) == 0) {
        return 0;
    }
    if (errno != EEXIST || !replace) {
        return -1;
    }
    for (int i = 0; i < FILEOP_MAKE_TRIES; i++) {
        fileop_path_secret(secret);
        if (fileop_make_link(t, secret) == 0) {
            return fileop_make_settle(t->dir, secret, name);
        }
        if (errno != EEXIST) {
            return -1;
        }
    }
    return -1;
}

void fileop_make_done(struct fileop_temp *t) {
    if (t->name[0] != '\0') {
        fileop_make_unlink(t->dir, t->name);
    }
    if (t->fd >= 0) {
        fileop_make_close(t->fd);
    }
    t->fd = -1;
}

void fileop_make_times(const struct fileop_record *rec, struct timespec times[2]) {
    times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    times[1] = times[0];
    if (rec->mtime_ns == FILEOP_MTIME_NONE) {
        return;
    }
    int64_t s = rec->mtime_ns / FILEOP_MAKE_NS;
    int64_t ns = rec->mtime_ns % FILEOP_MAKE_NS;
    if (ns < 0) {
        ns += FILEOP_MAKE_NS;
        s--;
    }
    times[1] = (struct timespec){.tv_sec = s, .tv_nsec = ns};
}

int fileop_make_attributes(int fd, const struct fileop_record *rec) {
    struct timespec times[2];
    fileop_make_times(rec, times);
    if (rec->mtime_ns != FILEOP_MTIME_NONE && futimens(fd, times) != 0) {
        return -1;
    }
    return fchmod(fd, (mode_t)rec->mode);
}

static int fileop_make_node(int dir, const char *name, const struct fileop_record *rec,
                            const char *target) {
    struct timespec times[2];
    int rc = rec->kind == FILEOP_SYMLINK ? symlinkat(target, dir, name)
                                         : mkfifoat(dir, name, (mode_t)rec->mode & 0777);
    if (rc != 0) {
        return -1;
    }
    fileop_make_times(rec, times);
    if (rec->mtime_ns != FILEOP_MTIME_NONE &&
        utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) != 0) {
        fileop_make_unlink(dir, name);
        return -1;
    }
    return 0;
}

int fileop_make_special(int dir, const char *name, const struct fileop_record *rec,
                        const char *target) {
    char secret[FILEOP_PATH_SECRET];
    if (rec->kind != FILEOP_SYMLINK && rec->kind != FILEOP_FIFO) {
        errno = EOPNOTSUPP;
        return -1;
    }
    int rc = fileop_make_node(dir, name, rec, target);
    for (int i = 0; i < FILEOP_MAKE_TRIES && rc != 0 && errno == EEXIST; i++) {
        fileop_path_secret(secret);
        rc = fileop_make_node(dir, secret, rec, target);
        if (rc == 0) {
            return fileop_make_settle(dir, secret, name);
        }
    }
    return rc;
}
