/* Files that verifiers read: beneath the root, regular, bounded. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "verify.h"

#define VERIFY_FILES_DEPTH_MAX 64u
#define VERIFY_FILES_PATH_MAX 4096u

/* openat2 has no wrapper in glibc. The kernel's word on "beneath": no .. and no link leads out,
 * also while somebody changes the tree. */
static int verify_files_open(int root, const char *path, uint64_t flags) {
    struct open_how how = {.flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static int verify_files_drain(int fd, const char *path, struct buf *out, struct err *err) {
    for (;;) {
        char block[65536];
        ssize_t n = read(fd, block, sizeof(block));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "reading %s", path);
        if (n == 0)
            return 0;
        if (buf_append(out, block, (size_t)n, err) < 0)
            return err_wrap(err, "reading %s", path);
    }
}

int verify_read(const struct verify_args *args, const char *path, struct buf *out,
                struct err *err) {
    struct stat st;
    buf_init(out, VERIFY_INPUT_MAX);
    if (strcmp(path, "-") == 0)
        return verify_files_drain(STDIN_FILENO, "standard input", out, err);
    fd_cleanup int fd = verify_files_open(args->root, path, O_RDONLY);
    if (fd < 0 && errno == EXDEV)
        return err_set(err, ERR_INVALID, EXDEV,
                       "%s leads out of the directory that is verified (--root)", path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "opening %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s is not a regular file", path);
    return verify_files_drain(fd, path, out, err);
}

/* Patterns. */

struct verify_files_walk {
    char **names;
    size_t count, alloc;
    const char *pattern;
    char path[VERIFY_FILES_PATH_MAX];
};

/* "**" as a whole component stands for any number of directories, none included. */
static bool verify_files_match(const char *pattern, const char *path) {
    if (strncmp(pattern, "**/", 3) == 0) {
        for (const char *rest = path; rest != NULL;) {
            if (verify_files_match(pattern + 3, rest))
                return true;
            rest = strchr(rest, '/');
            rest = rest != NULL ? rest + 1 : NULL;
        }
        return false;
    }
    if (strcmp(pattern, "**") == 0)
        return true;
    size_t p = strcspn(pattern, "/"), n = strcspn(path, "/");
    char want[256], have[256];
    if (p >= sizeof(want) || n >= sizeof(have) || (pattern[p] == '/') != (path[n] == '/'))
        return false;
    memcpy(want, pattern, p);
    want[p] = '\0';
    memcpy(have, path, n);
    have[n] = '\0';
    if (fnmatch(want, have, FNM_PERIOD) != 0)
        return false;
    return pattern[p] == '\0' || verify_files_match(pattern + p + 1, path + n + 1);
}

static int verify_files_keep(struct verify_files_walk *w, struct err *err) {
    if (w->count == VERIFY_NAMES_MAX)
        return err_set(err, ERR_LIMIT, 0, "more than %u files match %s", VERIFY_NAMES_MAX,
                       w->pattern);
    if (w->count == w->alloc) {
        size_t alloc = w->alloc == 0 ? 64 : w->alloc * 2;
        char **grown = reallocarray(w->names, alloc, sizeof(*grown));
        if (grown == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "looking for %s: out of memory", w->pattern);
        w->names = grown;
        w->alloc = alloc;
    }
    w->names[w->count] = strdup(w->path);
    if (w->names[w->count] == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "looking for %s: out of memory", w->pattern);
    w->count++;
    return 0;
}

static int verify_files_dir(struct verify_files_walk *w, int fd, size_t len, unsigned depth,
                            struct err *err);

/* One entry whose path is complete in w->path. */
static int verify_files_entry(struct verify_files_walk *w, int dir, const char *name, size_t len,
                              unsigned depth, struct err *err) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* it is gone again */
    if (S_ISREG(st.st_mode))
        return verify_files_match(w->pattern, w->path) ? verify_files_keep(w, err) : 0;
    if (!S_ISDIR(st.st_mode))
        return 0;
    if (depth == VERIFY_FILES_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, 0, "%s: directories are nested more than %u deep", w->path,
                       VERIFY_FILES_DEPTH_MAX);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP ? 0 : err_sys(err, "opening %s", w->path);
    return verify_files_dir(w, fd, len, depth + 1, err);
}

/* Takes over `fd`. */
static int verify_files_dir(struct verify_files_walk *w, int fd, size_t len, unsigned depth,
                            struct err *err) {
    DIR *d = fdopendir(fd);
    int rc = 0;
    if (d == NULL) {
        close(fd);
        return err_sys(err, "listing %s", w->path);
    }
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name), at = len == 0 ? 0 : len + 1;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (at + n >= sizeof(w->path)) {
            rc = err_set(err, ERR_LIMIT, 0, "a path below %s is too long", w->path);
            break;
        }
        if (len > 0)
            w->path[len] = '/';
        memcpy(w->path + at, e->d_name, n + 1);
        rc = verify_files_entry(w, dirfd(d), e->d_name, at + n, depth, err);
        w->path[len] = '\0';
    }
    closedir(d);
    return rc;
}

static int verify_files_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int verify_glob(const struct verify_args *args, const char *pattern, char ***names, size_t *count,
                struct err *err) {
    struct verify_files_walk *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "looking for %s: out of memory", pattern);
    w->pattern = pattern;
    int fd = openat(args->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? err_sys(err, "listing the root") : verify_files_dir(w, fd, 0, 0, err);
    if (rc < 0) {
        verify_names_done(w->names, w->count);
    } else {
        if (w->count > 0)
            qsort(w->names, w->count, sizeof(*w->names), verify_files_order);
        *names = w->names;
        *count = w->count;
    }
    free(w);
    return rc;
}

void verify_names_done(char **names, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}
