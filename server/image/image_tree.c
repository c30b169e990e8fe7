#include "image_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "image_record.h"

void image_tree_init(struct image_tree *t, int root) {
    *t = (struct image_tree){.root = root, .parent = -1};
}

void image_tree_done(struct image_tree *t) {
    fd_close(&t->parent);
}

/* Paths. */

/* Appends one component. */
static int image_tree_add_part(char out[4096], size_t *used, const char *part, size_t len,
                               struct err *err) {
    if (len == 2 && part[0] == '.' && part[1] == '.')
        return err_set(err, ERR_INVALID, 0, "its path has a \"..\"");
    if (len > IMAGE_NAME_MAX)
        return err_set(err, ERR_INVALID, 0, "its path has a name of more than 255 bytes");
    if (*used + len + 2 > 4096)
        return err_set(err, ERR_INVALID, 0, "its path is too long");
    if (*used > 0)
        out[(*used)++] = '/';
    memcpy(out + *used, part, len);
    *used += len;
    out[*used] = '\0';
    return 0;
}

int image_tree_normalise(const char *path, size_t len, char out[4096], struct err *err) {
    size_t used = 0, depth = 0;

    if (len > 0 && path[0] == '/')
        return err_set(err, ERR_INVALID, 0, "its path is absolute");
    if (memchr(path, '\0', len) != NULL)
        return err_set(err, ERR_INVALID, 0, "its path has a NUL");
    for (size_t pos = 0; pos < len;) {
        const char *slash = memchr(path + pos, '/', len - pos);
        size_t part = slash != NULL ? (size_t)(slash - (path + pos)) : len - pos;

        if (part > 0 && !(part == 1 && path[pos] == '.')) {
            if (image_tree_add_part(out, &used, path + pos, part, err) < 0)
                return -1;
            if (++depth > IMAGE_TREE_DEPTH_MAX)
                return err_set(err, ERR_INVALID, 0, "it lies more than %u directories deep",
                               IMAGE_TREE_DEPTH_MAX);
        }
        pos += part + 1;
    }
    return used > 0 ? 1 : 0;
}

static int image_tree_openat2(int root, const char *path, uint64_t flags) {
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd;

    do
        fd = syscall(SYS_openat2, root, path, &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return (int)fd;
}

int image_tree_open_dir(int root, const char *path, struct err *err) {
    int fd = image_tree_openat2(root, *path != '\0' ? path : ".", O_RDONLY | O_DIRECTORY);

    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_SYSTEM, ELOOP, "its path leads through a symbolic link");
    if (fd < 0 && errno == ENOTDIR)
        return err_set(err, ERR_SYSTEM, ENOTDIR, "its path leads through a file");
    if (fd < 0)
        return err_sys(err, "cannot open the directory %s", path);
    return fd;
}

/* Makes each missing directory of `path`, from the top. */
static int image_tree_make_parents(struct image_tree *t, const char *path, struct err *err) {
    char part[4096];
    size_t len = strlen(path);

    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        fd_cleanup int above = -1;
        char *name;
        char kept = part[i];

        if (kept != '/' && kept != '\0')
            continue;
        part[i] = '\0';
        name = strrchr(part, '/');
        if (name != NULL)
            *name = '\0';
        above = image_tree_open_dir(t->root, name != NULL ? part : "", err);
        if (above < 0)
            return -1;
        if (mkdirat(above, name != NULL ? name + 1 : part, 0700) == 0) {
            /* Not umask's business. */
            if (fchmodat(above, name != NULL ? name + 1 : part, 0755, 0) < 0)
                return err_sys(err, "cannot change the mode of a directory");
        } else if (errno != EEXIST) {
            return err_sys(err, "cannot make a directory");
        }
        if (name != NULL)
            *name = '/';
        part[i] = kept;
    }
    return 0;
}

/* The directory that holds `path` (borrowed until the next call), and the last name. */
static int image_tree_parent(struct image_tree *t, const char *path, const char **name,
                             struct err *err) {
    const char *slash = strrchr(path, '/');
    size_t len = slash != NULL ? (size_t)(slash - path) : 0;
    char above[4096];

    *name = slash != NULL ? slash + 1 : path;
    memcpy(above, path, len);
    above[len] = '\0';
    if (t->parent >= 0 && strcmp(above, t->parent_path) == 0)
        return t->parent;
    fd_close(&t->parent);
    t->parent = image_tree_open_dir(t->root, above, err);
    if (t->parent < 0 && errno == ENOENT) {
        if (err != NULL)
            err_clear(err);
        if (image_tree_make_parents(t, above, err) < 0)
            return -1;
        t->parent = image_tree_open_dir(t->root, above, err);
    }
    if (t->parent >= 0)
        memcpy(t->parent_path, above, len + 1);
    return t->parent;
}

/* Entries. */

/* Makes room for a new entry of type `type` (S_IFMT bits): removes one of the same type, refuses
 * another. */
static int image_tree_clear(int parent, const char *name, mode_t type, struct err *err) {
    struct stat st;

    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        return err_sys(err, "cannot inspect what is there");
    }
    if ((st.st_mode & S_IFMT) != type)
        return err_set(err, ERR_INVALID, 0, "an earlier entry of another type has the same path");
    if (unlinkat(parent, name, 0) < 0)
        return err_sys(err, "cannot replace what is there");
    return 0;
}

int image_tree_dir(struct image_tree *t, const char *path, mode_t mode, struct err *err) {
    const char *name;
    int parent = image_tree_parent(t, path, &name, err);
    fd_cleanup int fd = -1;

    if (parent < 0)
        return -1;
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot make the directory");
    fd = image_tree_openat2(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(err, ERR_INVALID, 0, "an earlier entry of another type has the same path");
    /* Its owner, who unpacks and removes it, may always enter. */
    if (fd < 0 || fchmod(fd, (mode & 0777) | 0700) < 0)
        return err_sys(err, "cannot make the directory");
    return 0;
}

int image_tree_file(struct image_tree *t, const char *path, struct err *err) {
    const char *name;
    int parent = image_tree_parent(t, path, &name, err);
    int fd;

    if (parent < 0 || image_tree_clear(parent, name, S_IFREG, err) < 0)
        return -1;
    fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot create the file");
    return fd;
}

int image_tree_file_end(int fd, uint64_t size, mode_t mode, int64_t mtime, struct err *err) {
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = mtime}};

    if (ftruncate(fd, (off_t)size) < 0 || fchmod(fd, mode & 0777) < 0)
        return err_sys(err, "cannot finish the file");
    /* Compiled Python files name the time of their source. A time that cannot be stored is no loss.
     */
    (void)futimens(fd, times);
    return 0;
}

int image_tree_symlink(struct image_tree *t, const char *path, const char *text, struct err *err) {
    const char *name;
    int parent = image_tree_parent(t, path, &name, err);

    if (parent < 0 || image_tree_clear(parent, name, S_IFLNK, err) < 0)
        return -1;
    if (symlinkat(text, parent, name) < 0)
        return err_sys(err, "cannot make the symbolic link");
    return 0;
}

int image_tree_hardlink(struct image_tree *t, const char *path, const char *target,
                        struct err *err) {
    const char *name, *slash = strrchr(target, '/');
    const char *target_name = slash != NULL ? slash + 1 : target;
    int parent = image_tree_parent(t, path, &name, err);
    fd_cleanup int from = -1;
    struct stat st;
    char above[4096];

    if (parent < 0)
        return -1;
    if (strcmp(path, target) == 0)
        return 0;
    snprintf(above, sizeof(above), "%.*s", slash != NULL ? (int)(slash - target) : 0, target);
    from = image_tree_open_dir(t->root, above, err);
    if (from < 0)
        return err_wrap(err, "the target of the link");
    if (fstatat(from, target_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(err, ERR_INVALID, ENOENT, "the target of the link is not in the archive");
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "the target of the link is not a file");
    if (image_tree_clear(parent, name, st.st_mode & S_IFMT, err) < 0)
        return -1;
    if (linkat(from, target_name, parent, name, 0) < 0)
        return err_sys(err, "cannot make the link");
    return 0;
}

/* Removal. */

static int image_tree_empty(int dir, unsigned depth, struct err *err);

static int image_tree_remove_at(int dir, const char *name, unsigned depth, struct err *err) {
    fd_cleanup int below = -1;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_sys(err, "cannot remove %s", name);
    below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return err_sys(err, "cannot open %s to remove it", name);
    if (image_tree_empty(below, depth + 1, err) < 0)
        return -1;
    if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
        return err_sys(err, "cannot remove the directory %s", name);
    return 0;
}

static int image_tree_empty(int dir, unsigned depth, struct err *err) {
    int copy = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int rc = 0;

    if (list == NULL) {
        fd_close(&copy);
        return err_sys(err, "cannot list a directory to remove it");
    }
    /* One descriptor per level; no tree of ours is deeper (rootfs and the image's own directory).
     */
    if (depth > IMAGE_TREE_DEPTH_MAX + 4)
        rc = err_set(err, ERR_LIMIT, 0, "a directory tree is too deep to remove");
    while (rc == 0 && (entry = readdir(list)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = image_tree_remove_at(dir, entry->d_name, depth, err);
    closedir(list);
    return rc;
}

int image_tree_remove(int dir, const char *name, struct err *err) {
    return image_tree_remove_at(dir, name, 0, err);
}

/* Layers. */

/* The directory that holds `path`, without making it. -1 and ENOENT in err->code when it, or the
 * way to it, is not there. */
static int image_tree_look(const struct image_tree *t, const char *path, const char **name,
                           struct err *err) {
    const char *slash = strrchr(path, '/');
    char above[4096];

    *name = slash != NULL ? slash + 1 : path;
    snprintf(above, sizeof(above), "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    return image_tree_open_dir(t->root, above, err);
}

/* Is there no such directory? */
static bool image_tree_is_missing(const struct err *err) {
    return err->kind == ERR_SYSTEM && err->code == ENOENT;
}

/* Below a file, or a link, which is not followed, there is nothing that a whiteout could mean: the
 * layer that has it puts a directory in that place. */
static bool image_tree_is_nothing(const struct err *err) {
    return err->kind == ERR_SYSTEM &&
           (err->code == ENOENT || err->code == ENOTDIR || err->code == ELOOP);
}

int image_tree_take_away(struct image_tree *t, const char *path, struct err *err) {
    struct err why = {0};
    const char *name;
    fd_cleanup int above = image_tree_look(t, path, &name, &why);

    if (above < 0 && image_tree_is_nothing(&why))
        return 0;
    if (above < 0) {
        if (err != NULL)
            *err = why;
        return -1;
    }
    /* The directory that is kept open may be one of those that go. */
    image_tree_done(t);
    return image_tree_remove(above, name, err);
}

int image_tree_displace(struct image_tree *t, const char *path, bool dir, struct err *err) {
    struct err why = {0};
    const char *name;
    fd_cleanup int above = image_tree_look(t, path, &name, &why);
    struct stat st;

    if (above < 0 && image_tree_is_missing(&why))
        return 0;
    if (above < 0) {
        if (err != NULL)
            *err = why;
        return -1;
    }
    if (fstatat(above, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "cannot inspect what is there");
    if (dir && S_ISDIR(st.st_mode))
        return 0;
    image_tree_done(t);
    return image_tree_remove(above, name, err);
}

int image_tree_clear_dir(struct image_tree *t, const char *path, struct err *err) {
    struct err why = {0};
    fd_cleanup int dir = image_tree_open_dir(t->root, path, &why);

    if (dir < 0 && image_tree_is_nothing(&why))
        return 0;
    if (dir < 0) {
        if (err != NULL)
            *err = why;
        return -1;
    }
    image_tree_done(t);
    return image_tree_empty(dir, 0, err);
}

int image_tree_open_file(int root, const char *path, bool links, struct err *err) {
    struct open_how how = {
        .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
                   (links ? 0ull : (unsigned long long)RESOLVE_NO_SYMLINKS),
    };
    fd_cleanup int fd = -1;
    struct stat st;

    do
        fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_INVALID, ENOENT, "%s is missing", path);
    if (fd < 0)
        return err_sys(err, "cannot open %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s is not a regular file", path);
    return fd_steal(&fd);
}
