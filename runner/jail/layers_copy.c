/* Theory of operation. The walk (layers_walk.h) goes through the source; other directories go along
 * with it, that of the copy and those that a file may be linked from. The copy is private: nobody
 * else knows a path to it.
 *
 * A copied file has an attribute that says which inode it is a copy of and when that was changed
 * last. The next copy finds a file of the same name with the same values in the earlier one, and
 * links it. The kernel sets the change time of a file on every write, but in steps: a file that was
 * changed just now is not marked, since it could be changed again in the same step. Nor is one that
 * is mapped for writing, because such writes set no time. */
#include "layers_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "layers_walk.h"

#define LAYERS_COPY_BUFFER (256u * 1024)
#define LAYERS_COPY_XATTRS 65536 /* the kernel's own bounds */
#define LAYERS_COPY_SOURCE "trusted.pinfold.source"
#define LAYERS_COPY_SETTLED_NS (50 * CLOCK_NS_PER_MS)

struct layers_copy_source {
    uint64_t ino;
    int64_t sec, nsec;
};

/* Where the walk is in another tree. */
struct layers_copy_beside {
    int dir;
    size_t missed; /* levels below the last directory that it has */
};

struct layers_copy_walk {
    struct layers_copy *copy;
    int to; /* where the walk is, in the copy */
    struct layers_copy_beside before[LAYERS_DEPTH_MAX];
    size_t count;
    int64_t now_ns;
    char *buffer; /* LAYERS_COPY_BUFFER and twice LAYERS_COPY_XATTRS */
};

/* ---- attributes ---- */

static bool layers_copy_wants(const struct layers_copy *copy, const char *name) {
    if (strncmp(name, "user.", 5) == 0 || strncmp(name, "system.posix_acl_", 17) == 0) {
        return true;
    }
    return copy->live && (strcmp(name, "trusted.overlay.opaque") == 0 ||
                          strcmp(name, "trusted.overlay.redirect") == 0);
}

static int layers_copy_xattrs(const struct layers_copy *copy, int from, int to, char *buffer,
                              struct err *err) {
    char *names = buffer;
    char *value = buffer + LAYERS_COPY_XATTRS;
    ssize_t len = flistxattr(from, names, LAYERS_COPY_XATTRS);
    if (len < 0) {
        return errno == ENOTSUP ? 0 : err_sys(err, "list the attributes of a file");
    }
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        if (!layers_copy_wants(copy, names + at)) {
            continue;
        }
        ssize_t n = fgetxattr(from, names + at, value, LAYERS_COPY_XATTRS);
        if (n < 0 && errno == ENODATA) {
            continue;
        }
        if (n < 0 || fsetxattr(to, names + at, value, (size_t)n, 0) != 0) {
            return err_sys(err, "copy an attribute of a file");
        }
    }
    return 0;
}

/* The owner first, since that takes the set-id bits away; times last. */
static int layers_copy_status(const struct layers_copy *copy, int from, int to,
                              const struct stat *st, char *buffer, struct err *err) {
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fchown(to, st->st_uid, st->st_gid) != 0 || fchmod(to, st->st_mode & 07777) != 0) {
        return err_sys(err, "set the owner and mode of a copy");
    }
    if (layers_copy_xattrs(copy, from, to, buffer, err) != 0) {
        return -1;
    }
    return futimens(to, times) == 0 ? 0 : err_sys(err, "set the times of a copy");
}

/* ---- regular files ---- */

static int layers_copy_piece(int from, int to, off_t at, off_t end, char *buffer, struct err *err) {
    while (at < end) {
        size_t want =
            end - at < (off_t)LAYERS_COPY_BUFFER ? (size_t)(end - at) : (size_t)LAYERS_COPY_BUFFER;
        ssize_t n = pread(from, buffer, want, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_sys(err, "read a file");
        }
        if (n == 0) {
            return 0; /* it became shorter */
        }
        for (ssize_t done = 0; done < n;) {
            ssize_t m = pwrite(to, buffer + done, (size_t)(n - done), at + done);
            if (m < 0 && errno != EINTR) {
                return err_sys(err, "write a copy");
            }
            done += m > 0 ? m : 0;
        }
        at += n;
    }
    return 0;
}

static int layers_copy_data(int from, int to, off_t size, char *buffer, struct err *err) {
    off_t at = 0;
    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) {
            break; /* nothing but a hole */
        }
        off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (hole < 0) {
            return err_sys(err, "find the data of a file");
        }
        if (layers_copy_piece(from, to, data, hole, buffer, err) != 0) {
            return -1;
        }
        at = hole;
    }
    return ftruncate(to, size) == 0 ? 0 : err_sys(err, "set the size of a copy");
}

static bool layers_copy_is_mapped(const struct layers_mapped *mapped, ino_t ino) {
    if (mapped == NULL) {
        return false;
    }
    bool found = mapped->all;
    for (size_t i = 0; i < mapped->count && !found; i++) {
        found = mapped->ino[i] == ino;
    }
    return found;
}

static void layers_copy_mark(const struct layers_copy_walk *w, int to, const struct stat *st) {
    const struct layers_copy_source source = {st->st_ino, st->st_ctim.tv_sec, st->st_ctim.tv_nsec};
    int64_t changed = (int64_t)st->st_ctim.tv_sec * (int64_t)CLOCK_NS_PER_S + st->st_ctim.tv_nsec;
    if (w->copy->live && changed < w->now_ns - (int64_t)LAYERS_COPY_SETTLED_NS &&
        !layers_copy_is_mapped(w->copy->mapped, st->st_ino)) {
        /* Without it the next copy copies the file again, and no harm is done. */
        (void)fsetxattr(to, LAYERS_COPY_SOURCE, &source, sizeof source, 0);
    }
}

/* -> 1 when the earlier copy has it, unchanged, and it is linked now. */
static int layers_copy_again(const struct layers_copy_walk *w, const char *name,
                             const struct stat *st) {
    struct layers_copy_source source;
    struct stat old;
    if (!w->copy->live || w->count == 0 || w->before[0].missed > 0 ||
        layers_copy_is_mapped(w->copy->mapped, st->st_ino)) {
        return 0;
    }
    int before = w->before[0].dir;
    fd_cleanup int fd =
        openat(before, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &old) != 0 || !S_ISREG(old.st_mode) || old.st_size != st->st_size ||
        old.st_mtim.tv_sec != st->st_mtim.tv_sec || old.st_mtim.tv_nsec != st->st_mtim.tv_nsec ||
        old.st_mode != st->st_mode || old.st_uid != st->st_uid || old.st_gid != st->st_gid) {
        return 0;
    }
    if (fgetxattr(fd, LAYERS_COPY_SOURCE, &source, sizeof source) != (ssize_t)sizeof source ||
        source.ino != st->st_ino || source.sec != st->st_ctim.tv_sec ||
        source.nsec != st->st_ctim.tv_nsec) {
        return 0;
    }
    if (linkat(before, name, w->to, name, 0) != 0) {
        return 0;
    }
    w->copy->linked_bytes += (uint64_t)old.st_blocks * 512;
    return 1;
}

static int layers_copy_file(const struct layers_copy_walk *w, int dir, const char *name,
                            struct err *err) {
    struct stat st;
    fd_cleanup int from =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) {
        return 0; /* it became something else meanwhile */
    }
    if (from < 0 || fstat(from, &st) != 0) {
        return err_sys(err, "open a file");
    }
    if (!S_ISREG(st.st_mode) || layers_copy_again(w, name, &st) == 1) {
        return 0;
    }
    fd_cleanup int to =
        openat(w->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0) {
        return err_sys(err, "make a copy");
    }
    if (layers_copy_data(from, to, st.st_size, w->buffer, err) != 0 ||
        layers_copy_status(w->copy, from, to, &st, w->buffer, err) != 0) {
        return -1;
    }
    layers_copy_mark(w, to, &st);
    return 0;
}

/* ---- everything else ---- */

static int layers_copy_symlink(const struct layers_copy_walk *w, int dir, const char *name,
                               const struct stat *st, struct err *err) {
    char target[4096 + 1];
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < 0) {
        return errno == ENOENT || errno == EINVAL ? 0 : err_sys(err, "read a symbolic link");
    }
    target[n] = '\0';
    if (symlinkat(target, w->to, name) != 0 ||
        fchownat(w->to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) != 0 ||
        utimensat(w->to, name, times, AT_SYMLINK_NOFOLLOW) != 0) {
        return err_sys(err, "copy a symbolic link");
    }
    return 0;
}

/* FIFOs, and the device 0:0 that marks a removed file. No other device can be there. */
static int layers_copy_node(const struct layers_copy_walk *w, const char *name,
                            const struct stat *st, struct err *err) {
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    bool mark = S_ISCHR(st->st_mode) && st->st_rdev == 0;
    if (!S_ISFIFO(st->st_mode) && !mark) {
        return 0;
    }
    if (mknodat(w->to, name, st->st_mode & (S_IFMT | 07777), 0) != 0 ||
        fchownat(w->to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) != 0 ||
        utimensat(w->to, name, times, AT_SYMLINK_NOFOLLOW) != 0) {
        return err_sys(err, "copy a special file");
    }
    return 0;
}

static int layers_copy_kind(const struct layers_copy_walk *w, int dir, const char *name,
                            const struct stat *st, struct err *err) {
    switch (st->st_mode & S_IFMT) {
    case S_IFREG:
        return layers_copy_file(w, dir, name, err);
    case S_IFLNK:
        return layers_copy_symlink(w, dir, name, st, err);
    default:
        return layers_copy_node(w, name, st, err);
    }
}

static bool layers_copy_is_same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_size == b->st_size &&
           a->st_uid == b->st_uid && a->st_gid == b->st_gid &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Layers do not change: the file that the overlay shows can be had from the layer itself. Where a
 * directory was moved it is not found, and is copied. -> 1 when it is linked now. */
static int layers_copy_shared(const struct layers_copy_walk *w, const char *name,
                              const struct stat *st) {
    for (size_t i = 0; !w->copy->live && i < w->count; i++) {
        struct stat own;
        const struct layers_copy_beside *b = &w->before[i];
        if (b->missed == 0 && fstatat(b->dir, name, &own, AT_SYMLINK_NOFOLLOW) == 0 &&
            layers_copy_is_same(&own, st) && linkat(b->dir, name, w->to, name, 0) == 0) {
            return 1;
        }
    }
    return 0;
}

/* The first name of a file is linked into the directory of links, where the others find it. */
static int layers_copy_entry(void *arg, int dir, const char *name, const struct stat *st,
                             struct err *err) {
    const struct layers_copy_walk *w = arg;
    char key[64];
    if (layers_copy_shared(w, name, st) == 1) {
        return 0;
    }
    if (st->st_nlink < 2 || (S_ISCHR(st->st_mode) && st->st_rdev == 0)) {
        return layers_copy_kind(w, dir, name, st, err);
    }
    (void)snprintf(key, sizeof key, "%llx.%llx", (unsigned long long)st->st_dev,
                   (unsigned long long)st->st_ino);
    if (linkat(w->copy->links, key, w->to, name, 0) == 0) {
        return 0;
    }
    if (layers_copy_kind(w, dir, name, st, err) != 0) {
        return -1;
    }
    if (linkat(w->to, name, w->copy->links, key, 0) != 0 && errno != ENOENT && errno != EMLINK) {
        return err_sys(err, "link a copy");
    }
    return 0;
}

static int layers_copy_enter(void *arg, int dir, const char *name, int child, struct err *err) {
    struct layers_copy_walk *w = arg;
    (void)dir;
    (void)child;
    if (mkdirat(w->to, name, 0700) != 0) {
        return err_sys(err, "make a directory of a copy");
    }
    int to = layers_walk_open(w->to, name);
    if (to < 0) {
        return err_sys(err, "open a directory of a copy");
    }
    fd_close(&w->to);
    w->to = to;
    for (size_t i = 0; i < w->count; i++) {
        struct layers_copy_beside *b = &w->before[i];
        int below = b->missed == 0 ? layers_walk_open(b->dir, name) : -1;
        if (below < 0) {
            b->missed++;
            continue;
        }
        fd_close(&b->dir);
        b->dir = below;
    }
    return 0;
}

static int layers_copy_leave(void *arg, int dir, const struct stat *st, struct err *err) {
    struct layers_copy_walk *w = arg;
    if (layers_copy_status(w->copy, dir, w->to, st, w->buffer, err) != 0) {
        return -1;
    }
    int up = openat(w->to, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (up < 0) {
        return err_sys(err, "open a directory of a copy");
    }
    fd_close(&w->to);
    w->to = up;
    for (size_t i = 0; i < w->count; i++) {
        struct layers_copy_beside *b = &w->before[i];
        if (b->missed > 0) {
            b->missed--;
            continue;
        }
        up = openat(b->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (up < 0) {
            return err_sys(err, "open a directory of a layer");
        }
        fd_close(&b->dir);
        b->dir = up;
    }
    return 0;
}

static int layers_copy_run(struct layers_copy_walk *w, int from, struct err *err) {
    static const struct layers_walk_ops ops = {layers_copy_entry, layers_copy_enter,
                                               layers_copy_leave};
    struct stat st;
    int top = w->to;
    w->to = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->to < 0 || fstat(from, &st) != 0) {
        return err_sys(err, "open the copy");
    }
    if (layers_walk(from, w->copy->steady, &ops, w, err) != 0) {
        return -1;
    }
    return layers_copy_status(w->copy, from, top, &st, w->buffer, err);
}

static int64_t layers_copy_now(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * (int64_t)CLOCK_NS_PER_S + now.tv_nsec;
}

static int layers_copy_beside(struct layers_copy_walk *w, const int *before, size_t count,
                              struct err *err) {
    for (size_t i = 0; i < count && w->count < LAYERS_DEPTH_MAX; i++) {
        int dir = before[i] < 0 ? -1 : openat(before[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0) {
            w->before[w->count++].dir = dir;
        } else if (before[i] >= 0) {
            return err_sys(err, "open a layer");
        }
    }
    return 0;
}

int layers_copy_tree(struct layers_copy *copy, int from, const int *before, size_t count, int to,
                     const char *name, struct err *err) {
    struct layers_copy_walk w = {.copy = copy, .to = -1};
    if (mkdirat(to, name, 0700) != 0) {
        return err_sys(err, "make a copy");
    }
    fd_cleanup int top = layers_walk_open(to, name);
    if (top < 0) {
        return err_sys(err, "open the copy");
    }
    w.buffer = malloc(LAYERS_COPY_BUFFER + 2 * LAYERS_COPY_XATTRS);
    if (w.buffer == NULL) {
        return err_sys(err, "make room for copying");
    }
    w.now_ns = layers_copy_now();
    w.to = top;
    int rc = layers_copy_beside(&w, before, count, err);
    if (rc == 0) {
        rc = layers_copy_run(&w, from, err);
    }
    if (w.to != top) {
        fd_close(&w.to);
    }
    while (w.count > 0) {
        fd_close(&w.before[--w.count].dir);
    }
    free(w.buffer);
    return rc;
}

int layers_copy_dir(int from, int to, const char *name, struct err *err) {
    const struct layers_copy copy = {.links = -1};
    struct stat st;
    if (fstat(from, &st) != 0) {
        return err_sys(err, "examine a directory");
    }
    if (mkdirat(to, name, 0700) != 0) {
        return err_sys(err, "make a directory");
    }
    fd_cleanup int made = layers_walk_open(to, name);
    if (made < 0) {
        return err_sys(err, "open a directory");
    }
    char *buffer = malloc(2 * LAYERS_COPY_XATTRS);
    if (buffer == NULL) {
        return err_sys(err, "make room for attributes");
    }
    int rc = layers_copy_status(&copy, from, made, &st, buffer, err);
    free(buffer);
    return rc;
}
