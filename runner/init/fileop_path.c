#include "fileop_path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static int fileop_path_openat2(int dir, const char *path, uint64_t flags, uint64_t resolve) {
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static void fileop_path_close(int fd) {
    int code = errno;
    (void)close(fd);
    errno = code;
}

int fileop_path_check(const char *path) {
    if (path[0] != '/') {
        errno = EINVAL;
        return -1;
    }
    if (strlen(path) > FILEOP_PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return 0;
}

int fileop_path_open(const char *path, uint64_t flags) {
    return fileop_path_openat2(AT_FDCWD, path, flags, 0);
}

int fileop_path_dir(const char *path) {
    return fileop_path_open(path, O_RDONLY | O_DIRECTORY);
}

/* Cuts slashes off the end, and finds the last name: a part of `text`, which is "/" or longer. */
static char *fileop_path_last(char *text) {
    size_t len = strlen(text);
    while (len > 1 && text[len - 1] == '/') {
        text[--len] = '\0';
    }
    return strrchr(text, '/') + 1;
}

/* mkdir -p. Whether it worked is told by opening it; errno is the first reason why not. */
static void fileop_path_mkdirs(int base, char *text) {
    int code = ENOENT;
    for (char *p = text; *p != '\0';) {
        p += strspn(p, "/");
        p += strcspn(p, "/");
        char end = *p;
        *p = '\0';
        if (mkdirat(base, text, 0755) != 0 && errno != EEXIST && code == ENOENT) {
            code = errno;
        }
        *p = end;
    }
    errno = code;
}

/* Opens what may have to be made first. `text` is overwritten and restored. */
static int fileop_path_make_open(int base, char *text, uint64_t flags) {
    int fd = fileop_path_openat2(base, text, flags, 0);
    if (fd >= 0 || errno != ENOENT) {
        return fd;
    }
    fileop_path_mkdirs(base, text);
    int code = errno;
    fd = fileop_path_openat2(base, text, flags, 0);
    if (fd < 0 && errno == ENOENT) {
        errno = code;
    }
    return fd;
}

int fileop_path_parent_at(int base, const char *path, bool make, char name[FILEOP_PATH_NAME]) {
    char text[FILEOP_PATH_MAX + 3] = "./"; /* of a relative path without a slash */
    size_t len = strlen(path);
    if (len == 0 || len > FILEOP_PATH_MAX) {
        errno = len ? ENAMETOOLONG : EINVAL;
        return -1;
    }
    memcpy(path[0] == '/' ? text : text + 2, path, len + 1);
    char *last = fileop_path_last(text);
    if (strlen(last) >= FILEOP_PATH_NAME) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        errno = EISDIR;
        return -1;
    }
    memcpy(name, last, strlen(last) + 1);
    *last = '\0';
    return make ? fileop_path_make_open(base, text, O_PATH | O_DIRECTORY)
                : fileop_path_openat2(base, text, O_PATH | O_DIRECTORY, 0);
}

int fileop_path_parent(const char *path, bool make, char name[FILEOP_PATH_NAME]) {
    return fileop_path_check(path) != 0 ? -1 : fileop_path_parent_at(AT_FDCWD, path, make, name);
}

int fileop_path_make(const char *path) {
    char text[FILEOP_PATH_MAX + 1];
    if (fileop_path_check(path) != 0) {
        return -1;
    }
    memcpy(text, path, strlen(path) + 1);
    return fileop_path_make_open(AT_FDCWD, text, O_RDONLY | O_DIRECTORY);
}

int fileop_path_below(int dir, const char *path, uint64_t flags) {
    /* With O_NOFOLLOW, a last component that is a link would be ENOTDIR and not ELOOP. */
    return fileop_path_openat2(dir, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

int fileop_path_above(int dir) {
    return fileop_path_openat2(dir, "..", O_PATH | O_DIRECTORY, RESOLVE_NO_XDEV);
}

bool fileop_path_mounted(int dir, const char *name) {
    int fd = fileop_path_openat2(dir, name, O_PATH | O_NOFOLLOW, RESOLVE_NO_XDEV);
    if (fd < 0) {
        return errno == EXDEV;
    }
    fileop_path_close(fd);
    return false;
}

bool fileop_path_is_proc(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) != 0 || fs.f_type == PROC_SUPER_MAGIC;
}

int fileop_path_regular(int dir, const char *name, struct stat *st) {
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, st) != 0) {
        fileop_path_close(fd);
        return -1;
    }
    if (!S_ISREG(st->st_mode)) {
        fileop_path_close(fd);
        errno = S_ISDIR(st->st_mode) ? EISDIR : ENXIO;
        return -1;
    }
    return fd;
}

void fileop_below_init(struct fileop_below *b, int root) {
    *b = (struct fileop_below){.root = root, .dir = -1};
}

void fileop_below_forget(struct fileop_below *b) {
    if (b->dir >= 0) {
        fileop_path_close(b->dir);
    }
    b->dir = -1;
    b->dir_path[0] = '\0';
}

void fileop_below_done(struct fileop_below *b) {
    fileop_below_forget(b);
}

static int fileop_below_open(const struct fileop_below *b, const char *path) {
    return fileop_path_below(b->root, path, O_PATH | O_DIRECTORY);
}

/* mkdir -p of `path`, one component after the other, without following one. */
static int fileop_below_make(struct fileop_below *b, char *path) {
    int dir = -1;
    for (char *p = path;;) {
        char *slash = strchr(p, '/');
        if (slash) {
            *slash = '\0';
        }
        int next = fileop_below_open(b, path);
        if (next < 0 && errno == ENOENT && mkdirat(dir >= 0 ? dir : b->root, p, 0755) == 0 &&
            (b->made == NULL || b->made(b->arg, path) == 0)) {
            next = fileop_below_open(b, path);
        }
        if (slash) {
            *slash = '/';
        }
        if (dir >= 0) {
            fileop_path_close(dir);
        }
        if (next < 0 || slash == NULL) {
            return next;
        }
        dir = next;
        p = slash + 1;
    }
}

int fileop_below_parent(struct fileop_below *b, const char *path, bool make, const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    size_t len = slash ? (size_t)(slash - path) : 0;
    if (len == 0) {
        return b->root;
    }
    if (b->dir >= 0 && strlen(b->dir_path) == len && memcmp(b->dir_path, path, len) == 0) {
        return b->dir;
    }
    fileop_below_forget(b);
    memcpy(b->dir_path, path, len);
    b->dir_path[len] = '\0';
    b->dir = fileop_below_open(b, b->dir_path);
    if (b->dir < 0 && errno == ENOENT && make) {
        b->dir = fileop_below_make(b, b->dir_path);
    }
    return b->dir;
}

void fileop_path_secret(char name[FILEOP_PATH_SECRET]) {
    uint64_t bits[2] = {0, 0};
    if (getrandom(bits, sizeof bits, 0) < 0) {
        bits[0] = (uint64_t)getpid(); /* a name that is taken is tried again by the caller */
    }
    (void)snprintf(name, FILEOP_PATH_SECRET, FILEOP_HIDDEN "%016llx%08llx",
                   (unsigned long long)bits[0], (unsigned long long)(bits[1] & 0xffffffffu));
}

bool fileop_path_hidden(const char *name) {
    return strncmp(name, FILEOP_HIDDEN, sizeof FILEOP_HIDDEN - 1) == 0;
}

bool fileop_path_hides(const char *path) {
    for (const char *name = path; name != NULL; name = strchr(name, '/')) {
        name += *name == '/';
        if (fileop_path_hidden(name)) {
            return true;
        }
    }
    return false;
}
