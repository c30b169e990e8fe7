/* Paths of the workspace: looked at, placed, removed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fd.h"
#include "undo_internal.h"

static int undo_tree_open(int root, const char *path, int flags) {
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

int undo_tree_parent(int root, const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    char dir[UNDO_PATH_MAX];

    *name = slash != NULL ? slash + 1 : path;
    if (slash == NULL)
        return undo_tree_open(root, ".", O_RDONLY | O_DIRECTORY);
    if ((size_t)(slash - path) >= sizeof(dir)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = '\0';
    return undo_tree_open(root, dir, O_RDONLY | O_DIRECTORY);
}

void undo_image_done(struct undo_image *image) {
    free((char *)(uintptr_t)image->s.target);
    free(image->xattrs);
    *image = (struct undo_image){.mtime_ns = 0};
}

int undo_image_copy(struct undo_image *to, const struct undo_image *from, struct err *err) {
    *to = *from;
    to->s.target = NULL;
    to->xattrs = NULL;
    if (from->s.target != NULL)
        to->s.target = strdup(from->s.target);
    if (from->xattrs != NULL)
        to->xattrs = strdup(from->xattrs);
    if ((from->s.target != NULL && to->s.target == NULL) ||
        (from->xattrs != NULL && to->xattrs == NULL))
        return err_set(err, ERR_LIMIT, 0, "no memory");
    return 0;
}

bool undo_tree_same(const struct undo_state *a, const struct undo_state *b) {
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case UNDO_ABSENT:
        return true;
    case UNDO_DIR:
        return a->mode == b->mode;
    case UNDO_LINK:
        return a->target != NULL && b->target != NULL && strcmp(a->target, b->target) == 0;
    case UNDO_FILE:
        break;
    }
    return a->mode == b->mode && a->size == b->size &&
           memcmp(a->sha256, b->sha256, UNDO_HASH_SIZE) == 0;
}

/* The user's own attributes; those of the system are not ours to set. */
static int undo_tree_xattrs(int fd, struct undo_image *image, struct err *err) {
    char names[4096], value[8192], hex[2 * 8192 + 1];
    ssize_t n = flistxattr(fd, names, sizeof(names));
    struct buf text;
    int rc = 0;

    if (n <= 0)
        return n == 0 || errno == ENOTSUP ? 0 : err_sys(err, "cannot read attributes");
    buf_init(&text, UNDO_XATTR_MAX);
    for (const char *p = names; p < names + n && rc == 0; p += strlen(p) + 1) {
        ssize_t len;

        if (strncmp(p, "user.", 5) != 0 || strpbrk(p, " =\n") != NULL)
            continue;
        len = fgetxattr(fd, p, value, sizeof(value));
        if (len < 0)
            rc = err_sys(err, "cannot read the attribute %s", p);
        else
            rc = buf_printf(&text, err, "%s%s=%s", text.len > 0 ? " " : "", p,
                            sodium_bin2hex(hex, sizeof(hex), (unsigned char *)value, (size_t)len));
    }
    if (rc == 0 && text.len > 0)
        image->xattrs = buf_take(&text);
    buf_done(&text);
    return rc;
}

static int undo_tree_set_xattrs(int fd, const char *text, struct err *err) {
    char *copy = text != NULL ? strdup(text) : NULL, *save = NULL;
    unsigned char value[8192];
    int rc = 0;

    for (char *p = copy != NULL ? strtok_r(copy, " ", &save) : NULL; p != NULL && rc == 0;
         p = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(p, '=');
        size_t len = 0;

        if (eq == NULL)
            continue;
        *eq = '\0';
        if (sodium_hex2bin(value, sizeof(value), eq + 1, strlen(eq + 1), NULL, &len, NULL) != 0 ||
            (fsetxattr(fd, p, value, len, 0) < 0 && errno != ENOTSUP))
            rc = err_sys(err, "cannot set the attribute %s", p);
    }
    free(copy);
    return rc;
}

static int undo_tree_look_link(int dir, const char *name, struct undo_image *image,
                               struct err *err) {
    char target[UNDO_PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

    if (n < 0)
        return err_sys(err, "cannot read the link %s", name);
    target[n] = '\0';
    image->s.target = strdup(target);
    return image->s.target != NULL ? 0 : err_set(err, ERR_LIMIT, 0, "no memory");
}

static int undo_tree_look_file(int dir, const char *name, struct undo *u, struct undo_image *image,
                               struct err *err) {
    fd_cleanup int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_sys(err, "cannot open %s to keep what is in it", name);
    return undo_blob_put(u, fd, (uint64_t)st.st_size, &image->s, err) < 0 ||
                   undo_tree_xattrs(fd, image, err) < 0
               ? -1
               : 0;
}

int undo_tree_look(int root, const char *path, struct undo *u, struct undo_image *image,
                   struct err *err) {
    const char *name;
    fd_cleanup int dir = undo_tree_parent(root, path, &name);
    struct stat st;

    *image = (struct undo_image){.mtime_ns = 0};
    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (dir < 0 && (errno == ELOOP || errno == EXDEV))
        return 1;
    if (dir < 0)
        return err_sys(err, "cannot look at %s", path);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "cannot look at %s", path);
    image->s.mode = st.st_mode & 07777;
    image->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (S_ISDIR(st.st_mode)) {
        image->s.type = UNDO_DIR;
        return 0;
    }
    if (S_ISLNK(st.st_mode)) {
        image->s.type = UNDO_LINK;
        return undo_tree_look_link(dir, name, image, err);
    }
    if (!S_ISREG(st.st_mode))
        return 1;
    image->s.type = UNDO_FILE;
    image->shared = st.st_nlink > 1;
    return undo_tree_look_file(dir, name, u, image, err);
}

/* Mode last: writing clears set-user-id bits, and a file without write permission could not be
 * filled. */
static int undo_tree_finish(int fd, const struct undo_image *image, struct err *err) {
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = image->mtime_ns / 1000000000, .tv_nsec = image->mtime_ns % 1000000000}};

    if (undo_tree_set_xattrs(fd, image->xattrs, err) < 0)
        return -1;
    if (fchmod(fd, image->s.mode & 07777) < 0)
        return err_sys(err, "cannot set permissions");
    if (image->mtime_ns != 0 && futimens(fd, times) < 0)
        return err_sys(err, "cannot set the time");
    return 0;
}

/* Takes over *dir. */
static int undo_tree_place_file(struct undo *u, int *dir, const char *name,
                                const struct undo_image *image, const struct undo_source *from,
                                const char *temp, struct err *err) {
    fd_cleanup int fd = -1;

    unlinkat(*dir, temp, 0);
    fd = openat(*dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot make a file beside %s", name);
    if (undo_blob_copy(from->fd, from->offset, fd, &image->s, err) == 0 &&
        undo_tree_finish(fd, image, err) == 0)
        return undo_batch_add(u, &fd, dir, temp, name, err);
    unlinkat(*dir, temp, 0);
    return -1;
}

static int undo_tree_place_link(int dir, const char *name, const char *target, const char *temp,
                                struct err *err) {
    unlinkat(dir, temp, 0);
    if (symlinkat(target, dir, temp) < 0 || renameat(dir, temp, dir, name) < 0) {
        err_sys(err, "cannot make the link %s", name);
        unlinkat(dir, temp, 0);
        return -1;
    }
    return 0;
}

static int undo_tree_place_dir(int dir, const char *name, const struct undo_image *image,
                               struct err *err) {
    fd_cleanup int fd = -1;

    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot make the directory %s", name);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot make the directory %s", name);
    return undo_tree_finish(fd, image, err);
}

int undo_tree_place(struct undo *u, const char *path, const struct undo_image *image,
                    const struct undo_source *from, const char *temp, struct err *err) {
    const char *name;
    fd_cleanup int dir = undo_tree_parent(u->root, path, &name);

    if (dir < 0)
        return err_sys(err, "cannot open the directory of %s", path);
    switch (image->s.type) {
    case UNDO_FILE:
        return undo_tree_place_file(u, &dir, name, image, from, temp, err);
    case UNDO_LINK:
        return undo_tree_place_link(dir, name, image->s.target, temp, err);
    case UNDO_DIR:
        return undo_tree_place_dir(dir, name, image, err);
    case UNDO_ABSENT:
        break;
    }
    return 0;
}

int undo_tree_mode(int root, const char *path, const struct undo_image *image, struct err *err) {
    const char *name;
    fd_cleanup int dir = undo_tree_parent(root, path, &name);
    fd_cleanup int fd = -1;
    struct stat st;

    if (dir < 0)
        return err_sys(err, "cannot open the directory of %s", path);
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot open %s", path);
    return undo_tree_finish(fd, image, err);
}

int undo_tree_remove(int root, const char *path, enum undo_type type, struct err *err) {
    const char *name;
    fd_cleanup int dir = undo_tree_parent(root, path, &name);

    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (dir < 0)
        return err_sys(err, "cannot open the directory of %s", path);
    if (unlinkat(dir, name, type == UNDO_DIR ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
        return err_sys(err, "cannot remove %s", path);
    return 0;
}

int undo_tree_sync_parent(int root, const char *path, struct err *err) {
    const char *name;
    fd_cleanup int dir = undo_tree_parent(root, path, &name);

    if (dir < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : err_sys(err, "cannot open a directory");
    return fsync(dir) < 0 ? err_sys(err, "cannot make %s durable", path) : 0;
}
