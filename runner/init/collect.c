#include "collect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bundle.h"
#include "scratch.h"

#define COLLECT_DEPTH_MAX 64      /* open directories on the way down */
#define COLLECT_VISIT_MAX 1000000 /* entries looked at, for all patterns together */

struct collect {
    int out;
    int root;
    uint64_t bytes_left;
    uint32_t files_left;
    bool over; /* there was one more, and it is told */
    uint64_t visits_left;
    bool cut; /* there was more to look at for this pattern */
    const char *pattern;
    uint32_t matches; /* of this pattern */
    char path[BUNDLE_PATH_MAX + 1];
    char data[65536];
};

static int collect_write(struct collect *c, const void *data, size_t len) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(c->out, p, len);
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

static int collect_record(struct collect *c, uint32_t type, uint32_t code, const char *path,
                          const struct stat *st) {
    struct bundle_record rec = {
        .magic = BUNDLE_MAGIC,
        .type = type,
        .code = code,
        .mode = st ? st->st_mode & 0777 : 0,
        .size = st ? (uint64_t)st->st_size : 0,
        .path_len = (uint32_t)strlen(path),
    };
    if (collect_write(c, &rec, sizeof rec) != 0) {
        return -1;
    }
    return collect_write(c, path, rec.path_len);
}

static int collect_error(struct collect *c, enum bundle_code code, const char *path) {
    if (c->over) {
        return 0;
    }
    if (c->files_left == 0) {
        c->over = true;
        return collect_record(c, BUNDLE_ERROR, BUNDLE_TOO_MANY, path, NULL);
    }
    c->files_left--;
    return collect_record(c, BUNDLE_ERROR, code, path, NULL);
}

/* The announced size is kept, whatever happens to the file meanwhile: what it lost is zeros, and a
 * second record says that it changed. */
static int collect_contents(struct collect *c, int fd, uint64_t size, const char *path) {
    bool changed = false;
    while (size > 0) {
        size_t want = size < sizeof c->data ? (size_t)size : sizeof c->data;
        ssize_t n = changed ? 0 : read(fd, c->data, want);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            changed = true;
            memset(c->data, 0, want);
            n = (ssize_t)want;
        }
        if (collect_write(c, c->data, (size_t)n) != 0) {
            return -1;
        }
        size -= (uint64_t)n;
    }
    /* Not one of the files that may be collected: it belongs to the one before. */
    return changed ? collect_record(c, BUNDLE_ERROR, BUNDLE_CHANGED, path, NULL) : 0;
}

static enum bundle_code collect_why(int code) {
    switch (code) {
    case ENOENT:
    case ENOTDIR:
        return BUNDLE_NOT_FOUND;
    case ELOOP:
    case EXDEV:
    case ENXIO:
        return BUNDLE_NOT_REGULAR;
    case EACCES:
    case EPERM:
        return BUNDLE_DENIED;
    default:
        return BUNDLE_IO;
    }
}

static int collect_open(const struct collect *c, const char *path) {
    struct open_how how = {
        .flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, c->root, path, &how, sizeof how);
}

/* One file, by its path below the workspace. */
static int collect_file(struct collect *c, const char *path) {
    struct stat st;
    c->matches++;
    if (c->files_left == 0) {
        return collect_error(c, BUNDLE_TOO_MANY, path);
    }
    int fd = collect_open(c, path);
    if (fd < 0) {
        return collect_error(c, collect_why(errno), path);
    }
    int rc = 0;
    if (fstat(fd, &st) != 0) {
        rc = collect_error(c, BUNDLE_IO, path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = collect_error(c, BUNDLE_NOT_REGULAR, path);
    } else if ((uint64_t)st.st_size > c->bytes_left) {
        rc = collect_error(c, BUNDLE_TOO_LARGE, path);
    } else {
        c->files_left--;
        c->bytes_left -= (uint64_t)st.st_size;
        rc = collect_record(c, BUNDLE_FILE, BUNDLE_OK, path, &st);
        if (rc == 0) {
            rc = collect_contents(c, fd, (uint64_t)st.st_size, path);
        }
    }
    (void)close(fd);
    return rc;
}

static size_t collect_component(const char *s) {
    return strcspn(s, "/");
}

/* Does the first component of `path` match that of `pattern`? */
static bool collect_match_one(const char *pattern, const char *path) {
    char one[256];
    char name[256];
    size_t n = collect_component(pattern);
    size_t m = collect_component(path);
    if (n >= sizeof one || m >= sizeof name) {
        return false;
    }
    memcpy(one, pattern, n);
    one[n] = '\0';
    memcpy(name, path, m);
    name[m] = '\0';
    return fnmatch(one, name, FNM_NOESCAPE) == 0;
}

static const char *collect_next(const char *s) {
    s += collect_component(s);
    return *s != '\0' ? s + 1 : NULL;
}

/* Does `path` match `pattern`, component by component? A "**" component matches any number of them;
 * as the last one, at least one. Only the last "**" that was met can have to take one more: what an
 * earlier one could take in its place, that one takes as well. So the work is bounded by the
 * product of both lengths, whoever wrote pattern and names. */
static bool collect_match(const char *pattern, const char *path) {
    const char *again = NULL; /* behind the last "**" … */
    const char *rest = NULL;  /* … and what it leaves to that */
    while (path != NULL) {
        if (pattern != NULL && collect_component(pattern) == 2 && memcmp(pattern, "**", 2) == 0) {
            pattern = collect_next(pattern);
            if (pattern == NULL) {
                return true;
            }
            again = pattern;
            rest = path;
        } else if (pattern != NULL && collect_match_one(pattern, path)) {
            pattern = collect_next(pattern);
            path = collect_next(path);
        } else if (rest == NULL || (rest = collect_next(rest)) == NULL) {
            return false;
        } else {
            pattern = again;
            path = rest;
        }
    }
    return pattern == NULL;
}

static int collect_walk(struct collect *c, int dirfd, size_t len, unsigned depth);

static int collect_entry(struct collect *c, DIR *dir, const struct dirent *d, size_t len,
                         unsigned depth) {
    size_t n = strlen(d->d_name);
    if (len + n + 2 > sizeof c->path) {
        return 0;
    }
    memcpy(c->path + len, d->d_name, n + 1);
    struct stat st;
    if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    if (S_ISREG(st.st_mode)) {
        return collect_match(c->pattern, c->path) ? collect_file(c, c->path) : 0;
    }
    if (!S_ISDIR(st.st_mode) || depth == 0) {
        return 0;
    }
    int sub = openat(dirfd(dir), d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) {
        return 0;
    }
    c->path[len + n] = '/';
    c->path[len + n + 1] = '\0';
    return collect_walk(c, sub, len + n + 1, depth - 1);
}

/* Takes over `fd`. c->path[0…len-1] is the directory's path with its '/'. */
static int collect_walk(struct collect *c, int fd, size_t len, unsigned depth) {
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        (void)close(fd);
        return 0;
    }
    int rc = 0;
    struct dirent *d;
    while (rc == 0 && !c->over && !c->cut && (d = readdir(dir)) != NULL) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) {
            continue;
        }
        if (c->visits_left == 0) {
            c->cut = true;
            break;
        }
        c->visits_left--;
        rc = collect_entry(c, dir, d, len, depth);
    }
    (void)closedir(dir);
    return rc;
}

static int collect_pattern(struct collect *c, const char *pattern) {
    c->pattern = pattern;
    c->matches = 0;
    c->cut = false;
    if (strpbrk(pattern, "*?[") == NULL) {
        return collect_file(c, pattern);
    }
    int dir = openat(c->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return collect_error(c, collect_why(errno), pattern);
    }
    if (collect_walk(c, dir, 0, COLLECT_DEPTH_MAX) != 0) {
        return -1;
    }
    if (c->cut) { /* what was not looked at may match */
        return collect_error(c, BUNDLE_TOO_MANY, pattern);
    }
    return c->matches == 0 ? collect_error(c, BUNDLE_NOT_FOUND, pattern) : 0;
}

int collect_run(int out, const struct spec *patterns, uint64_t max_bytes, uint32_t max_files) {
    struct collect *c = scratch_new(sizeof *c);
    c->out = out;
    c->bytes_left = max_bytes;
    c->files_left = max_files > 0 ? max_files - 1 : 0; /* the last one may have to say "more" */
    c->visits_left = COLLECT_VISIT_MAX;
    c->root = open("/workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->root < 0) {
        return 1;
    }
    for (size_t i = 0; i < patterns->argc; i++) {
        if (collect_pattern(c, patterns->argv[i]) != 0) {
            return 1;
        }
    }
    const struct bundle_record end = {.magic = BUNDLE_MAGIC, .type = BUNDLE_END};
    return collect_write(c, &end, sizeof end) == 0 ? 0 : 1;
}
