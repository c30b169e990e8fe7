#include "layers_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"

#define LAYERS_WALK_NAMES_MAX (256u << 20)

/* A directory that we are in. Its subdirectories that are still to be visited are the names from
 * `names` on. */
struct layers_walk_level {
    struct stat st;
    size_t names;
};

struct layers_walk {
    const struct layers_walk_ops *ops;
    void *arg;
    bool steady;
    int dir;
    struct buf names;
    struct buf levels; /* struct layers_walk_level */
};

int layers_walk_open(int dir, const char *name) {
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    return (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
}

static bool layers_walk_gone(int code) {
    return code == ENOENT || code == ENOTDIR || code == ELOOP;
}

static struct layers_walk_level *layers_walk_top(struct layers_walk *w) {
    size_t n = w->levels.len / sizeof(struct layers_walk_level);
    return n == 0 ? NULL : (struct layers_walk_level *)(void *)w->levels.data + (n - 1);
}

static int layers_walk_entry(struct layers_walk *w, const char *name, struct err *err) {
    struct stat st;
    if (fstatat(w->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return layers_walk_gone(errno) ? 0 : err_sys(err, "examine a file");
    }
    if (S_ISDIR(st.st_mode)) {
        return buf_append(&w->names, name, strlen(name) + 1, err);
    }
    return w->ops->entry != NULL ? w->ops->entry(w->arg, w->dir, name, &st, err) : 0;
}

/* Reads w->dir, which becomes the new level, to its end. */
static int layers_walk_read(struct layers_walk *w, struct err *err) {
    struct layers_walk_level level = {.names = w->names.len};
    if (fstat(w->dir, &level.st) != 0) {
        return err_sys(err, "examine a directory");
    }
    if (buf_append(&w->levels, &level, sizeof level, err) != 0) {
        return -1;
    }
    int copy = openat(w->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d == NULL) {
        fd_close(&copy);
        return err_sys(err, "read a directory");
    }
    int rc = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (e == NULL) {
            rc = errno != 0 ? err_sys(err, "read a directory") : 0;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        rc = layers_walk_entry(w, e->d_name, err);
        if (rc != 0) {
            break;
        }
    }
    (void)closedir(d);
    return rc;
}

static int layers_walk_down(struct layers_walk *w, struct err *err) {
    size_t end = w->names.len - 1;
    size_t start = end;
    while (start > layers_walk_top(w)->names && w->names.data[start - 1] != '\0') {
        start--;
    }
    const char *name = w->names.data + start;
    int child = layers_walk_open(w->dir, name);
    if (child < 0) {
        w->names.len = start;
        return layers_walk_gone(errno) ? 0 : err_sys(err, "open a directory");
    }
    int rc = w->ops->enter != NULL ? w->ops->enter(w->arg, w->dir, name, child, err) : 0;
    w->names.len = start;
    if (rc != 0) {
        fd_close(&child);
        return rc;
    }
    fd_close(&w->dir);
    w->dir = child;
    return layers_walk_read(w, err);
}

/* -> 1 at the end. */
static int layers_walk_up(struct layers_walk *w, struct err *err) {
    struct stat st = layers_walk_top(w)->st;
    w->levels.len -= sizeof(struct layers_walk_level);
    const struct layers_walk_level *up = layers_walk_top(w);
    if (up == NULL) {
        return 1;
    }
    if (w->ops->leave != NULL && w->ops->leave(w->arg, w->dir, &st, err) != 0) {
        return -1;
    }
    /* The tree may have been moved under our feet: ".." is only good when it leads back. */
    int parent = openat(w->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || fstat(parent, &st) != 0) {
        fd_close(&parent);
        return err_sys(err, "open a directory");
    }
    fd_close(&w->dir);
    w->dir = parent;
    if (w->steady && (st.st_ino != up->st.st_ino || st.st_dev != up->st.st_dev)) {
        return err_set(err, ERR_STATE, EAGAIN, "a directory was moved meanwhile");
    }
    return 0;
}

int layers_walk(int root, bool steady, const struct layers_walk_ops *ops, void *arg,
                struct err *err) {
    struct layers_walk w = {.ops = ops, .arg = arg, .steady = steady};
    buf_init(&w.names, LAYERS_WALK_NAMES_MAX);
    buf_init(&w.levels, LAYERS_WALK_NAMES_MAX);
    w.dir = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = w.dir < 0 ? err_sys(err, "open a directory") : layers_walk_read(&w, err);
    while (rc == 0) {
        rc = w.names.len > layers_walk_top(&w)->names ? layers_walk_down(&w, err)
                                                      : layers_walk_up(&w, err);
    }
    fd_close(&w.dir);
    buf_done(&w.names);
    buf_done(&w.levels);
    return rc < 0 ? -1 : 0;
}

/* ---- counting ---- */

/* Inodes with several names that were seen: an open hash of (inode, device) pairs. */
struct layers_walk_tally {
    uint64_t bytes, files;
    struct layers_walk_seen {
        ino_t ino;
        dev_t dev;
    } * seen;
    size_t used, size;
};

static bool layers_walk_put(struct layers_walk_seen *seen, size_t size, ino_t ino, dev_t dev) {
    size_t at = (size_t)((ino ^ (ino >> 17)) * 0x9E3779B97F4A7C15u) & (size - 1);
    while (seen[at].ino != 0) {
        if (seen[at].ino == ino && seen[at].dev == dev) {
            return false;
        }
        at = (at + 1) & (size - 1);
    }
    seen[at].ino = ino;
    seen[at].dev = dev;
    return true;
}

/* -> 1 the first time, 0 again, -1 no memory. */
static int layers_walk_first(struct layers_walk_tally *t, const struct stat *st, struct err *err) {
    if (t->used * 2 >= t->size) {
        size_t size = t->size == 0 ? 256 : t->size * 2;
        struct layers_walk_seen *bigger = calloc(size, sizeof *bigger);
        if (bigger == NULL) {
            return err_sys(err, "remember files with several names");
        }
        for (size_t i = 0; i < t->size; i++) {
            if (t->seen[i].ino != 0) {
                (void)layers_walk_put(bigger, size, t->seen[i].ino, t->seen[i].dev);
            }
        }
        free(t->seen);
        t->seen = bigger;
        t->size = size;
    }
    bool fresh = layers_walk_put(t->seen, t->size, st->st_ino, st->st_dev);
    t->used += fresh;
    return fresh;
}

static int layers_walk_tally_entry(void *arg, int dir, const char *name, const struct stat *st,
                                   struct err *err) {
    struct layers_walk_tally *t = arg;
    (void)dir;
    (void)name;
    if (st->st_nlink > 1) {
        int first = layers_walk_first(t, st, err);
        if (first <= 0) {
            return first;
        }
    }
    t->bytes += (uint64_t)st->st_blocks * 512;
    t->files++;
    return 0;
}

static int layers_walk_tally_enter(void *arg, int dir, const char *name, int child,
                                   struct err *err) {
    struct layers_walk_tally *t = arg;
    struct stat st;
    (void)dir;
    (void)name;
    if (fstat(child, &st) != 0) {
        return err_sys(err, "examine a directory");
    }
    t->bytes += (uint64_t)st.st_blocks * 512;
    t->files++;
    return 0;
}

int layers_walk_count(int root, uint64_t *bytes, uint64_t *files, struct err *err) {
    static const struct layers_walk_ops ops = {
        .entry = layers_walk_tally_entry,
        .enter = layers_walk_tally_enter,
    };
    struct layers_walk_tally t = {0};
    int rc = layers_walk(root, true, &ops, &t, err);
    free(t.seen);
    if (rc == 0) {
        *bytes = t.bytes;
        *files = t.files;
    }
    return rc;
}
