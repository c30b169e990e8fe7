#include "unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bundle.h"
#include "scratch.h"
#include "str.h"

struct unpack {
    int bundle;
    off_t at; /* position in the bundle: pread, since the description is shared with the server */
    int root; /* /workspace */
    char path[BUNDLE_PATH_MAX + 1];
    char data[65536];
};

static int unpack_read(struct unpack *u, void *out, size_t size) {
    char *p = out;
    while (size > 0) {
        ssize_t n = pread(u->bundle, p, size, u->at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? EPROTO : errno;
            return -1;
        }
        p += n;
        size -= (size_t)n;
        u->at += n;
    }
    return 0;
}

static int unpack_open(const struct unpack *u, const char *path, uint64_t flags, uint64_t mode) {
    struct open_how how = {
        .flags = flags | O_CLOEXEC | O_NOFOLLOW,
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, u->root, path, &how, sizeof how);
}

/* mkdir -p of everything before the last '/'. */
static int unpack_parents(struct unpack *u) {
    int dir = -1;
    for (char *slash = strchr(u->path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int next = unpack_open(u, u->path, O_PATH | O_DIRECTORY, 0);
        if (next < 0 && errno == ENOENT) {
            const char *name = strrchr(u->path, '/');
            if (mkdirat(dir >= 0 ? dir : u->root, name ? name + 1 : u->path, 0755) == 0) {
                next = unpack_open(u, u->path, O_PATH | O_DIRECTORY, 0);
            }
        }
        int code = errno;
        *slash = '/';
        if (dir >= 0) {
            (void)close(dir);
        }
        if (next < 0) {
            errno = code;
            return -1;
        }
        dir = next;
    }
    if (dir >= 0) {
        (void)close(dir);
    }
    return 0;
}

static int unpack_contents(struct unpack *u, int fd, uint64_t size) {
    while (size > 0) {
        size_t n = size < sizeof u->data ? (size_t)size : sizeof u->data;
        if (unpack_read(u, u->data, n) != 0) {
            return -1;
        }
        for (size_t done = 0; done < n;) {
            ssize_t w = write(fd, u->data + done, n - done);
            if (w < 0) {
                return -1;
            }
            done += (size_t)w;
        }
        size -= n;
    }
    return 0;
}

static int unpack_file(struct unpack *u, const struct bundle_record *rec) {
    if (unpack_parents(u) != 0) {
        return -1;
    }
    int fd = unpack_open(u, u->path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 && errno == EEXIST && unlinkat(u->root, u->path, 0) == 0) {
        fd = unpack_open(u, u->path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    }
    if (fd < 0) {
        return -1;
    }
    int rc = unpack_contents(u, fd, rec->size);
    if (rc == 0) {
        rc = fchmod(fd, (mode_t)(rec->mode & 0777));
    }
    int code = errno;
    (void)close(fd);
    errno = code;
    return rc;
}

/* 1 = a file was written, 0 = the end, -1 = errno. */
static int unpack_next(struct unpack *u) {
    struct bundle_record rec;
    u->path[0] = '\0';
    if (unpack_read(u, &rec, sizeof rec) != 0) {
        return -1;
    }
    if (bundle_check(&rec, NULL) != 0) {
        errno = EPROTO;
        return -1;
    }
    if (rec.type == BUNDLE_END) {
        return 0;
    }
    if (unpack_read(u, u->path, rec.path_len) != 0) {
        return -1;
    }
    u->path[rec.path_len] = '\0';
    if (rec.type != BUNDLE_FILE || !bundle_path_ok(u->path, rec.path_len)) {
        errno = EPROTO;
        return -1;
    }
    return unpack_file(u, &rec) == 0 ? 1 : -1;
}

int unpack_bundle(int fd, char *path, size_t size) {
    struct unpack *u = scratch_new(sizeof *u);
    u->bundle = fd;
    u->root = open("/workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = u->root < 0 ? -1 : 1;
    while (rc > 0) {
        rc = unpack_next(u);
    }
    int code = errno;
    if (rc < 0 && !str_copy(path, size, u->path)) {
        (void)str_copy(path, size, "(a very long path)");
    }
    (void)close(fd);
    if (u->root >= 0) {
        (void)close(u->root);
    }
    errno = code;
    return rc;
}
