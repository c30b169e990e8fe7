/* watch: changes of a directory or of all below it, as inotify tells them. Nothing here grows
 * without a bound: when the reader is slow, or there are more directories than may be watched, an
 * OVERFLOW says that events were lost. */
#include "fileop_op.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "clock.h"
#include "fileop_path.h"
#include "fileop_walk.h"

#define FILEOP_WATCH_MAX 65536u /* directories */
#define FILEOP_WATCH_TEXT_MAX (64u << 20)
#define FILEOP_WATCH_CHECK_MS 1000
#define FILEOP_WATCH_ROOM 16384u /* what one event may need in the buffer, twice over */
#define FILEOP_WATCH_MASK                                                                          \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_EXCL_UNLINK)

struct fileop_watched {
    int wd; /* -1 = free */
    char *path;
};

struct fileop_watching {
    struct fileop_op *o;
    int inotify;
    dev_t dev; /* of the directory; no descriptor of it is held, so that another file system */
    ino_t ino; /* may take its place */
    bool recursive;
    bool lost;                   /* an OVERFLOW is due */
    struct fileop_watched *list; /* ordered by wd, which only grows */
    size_t count, room, text;
    char path[2 * FILEOP_PATH_MAX];
    _Alignas(struct inotify_event) char events[65536];
};

static struct fileop_watched *fileop_watch_find(struct fileop_watching *w, int wd) {
    size_t from = 0;
    size_t to = w->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (w->list[middle].wd < wd) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < w->count && w->list[from].wd == wd ? &w->list[from] : NULL;
}

static void fileop_watch_forget(struct fileop_watching *w, struct fileop_watched *it) {
    size_t i = (size_t)(it - w->list);
    w->text -= strlen(it->path) + 1;
    free(it->path);
    memmove(it, it + 1, (w->count - i - 1) * sizeof *it);
    w->count--;
}

static int fileop_watch_room(struct fileop_watching *w, size_t len) {
    if (w->count >= FILEOP_WATCH_MAX || w->text + len > FILEOP_WATCH_TEXT_MAX) {
        errno = ENOSPC;
        return -1;
    }
    if (w->count < w->room) {
        return 0;
    }
    size_t room = w->room ? w->room * 2 : 64;
    struct fileop_watched *list = reallocarray(w->list, room, sizeof *list);
    if (list == NULL) {
        return -1;
    }
    w->list = list;
    w->room = room;
    return 0;
}

/* Watches what is open as `fd`, known as `path`. */
static int fileop_watch_add(struct fileop_watching *w, int fd, const char *path) {
    char proc[32];
    if (fileop_watch_room(w, strlen(path) + 1) != 0) {
        return -1;
    }
    (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    int wd = inotify_add_watch(w->inotify, proc, FILEOP_WATCH_MASK);
    if (wd < 0) {
        return -1;
    }
    struct fileop_watched *it = fileop_watch_find(w, wd);
    if (it) { /* a directory that was moved: under its new name from now on */
        fileop_watch_forget(w, it);
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        return -1;
    }
    size_t i = w->count;
    while (i > 0 && w->list[i - 1].wd > wd) {
        i--;
    }
    memmove(&w->list[i + 1], &w->list[i], (w->count - i) * sizeof *w->list);
    w->list[i] = (struct fileop_watched){.wd = wd, .path = copy};
    w->count++;
    w->text += strlen(path) + 1;
    return 0;
}

/* Is the directory w->path watched? */
static bool fileop_watch_has(const struct fileop_watching *w) {
    for (size_t i = w->count; i-- > 0;) {
        if (strcmp(w->list[i].path, w->path) == 0) {
            return true;
        }
    }
    return false;
}

/* A directory and all in it are somewhere else. */
static void fileop_watch_drop(struct fileop_watching *w, const char *path) {
    size_t n = strlen(path);
    for (size_t i = w->count; i-- > 0;) {
        const char *p = w->list[i].path;
        if (strncmp(p, path, n) == 0 && (p[n] == '\0' || p[n] == '/')) {
            (void)inotify_rm_watch(w->inotify, w->list[i].wd);
            fileop_watch_forget(w, &w->list[i]);
        }
    }
}

static int fileop_watch_put(struct fileop_watching *w, uint32_t kind, uint32_t flags,
                            const char *path) {
    struct fileop_io *io = &w->o->io;
    if (sizeof io->out_buf - io->out_len < FILEOP_WATCH_ROOM) {
        w->lost = true; /* the reader is behind by all of the buffer and of the pipe */
        return 0;
    }
    struct fileop_record rec = {.type = FILEOP_EVENT, .kind = kind, .flags = flags};
    return fileop_io_put(io, &rec, path, strlen(path), NULL);
}

struct fileop_watch_tree {
    struct fileop_watching *w;
    size_t base; /* length of the path that the tree hangs on, in w->path */
    bool tell;
    int code; /* why not all is watched */
};

static int fileop_watch_visit(void *arg, const struct fileop_node *node, bool *enter) {
    struct fileop_watch_tree *t = arg;
    struct fileop_watching *w = t->w;
    if (t->base + 1 + node->path_len > FILEOP_PATH_MAX) {
        t->code = ENAMETOOLONG;
        *enter = false;
        return 0;
    }
    char *rest = w->path + t->base;
    if (t->base > 0) {
        *rest++ = '/';
    }
    memcpy(rest, node->path, node->path_len);
    rest[node->path_len] = '\0';
    if (node->is_dir) {
        int fd = openat(node->dir, node->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fileop_watch_add(w, fd, w->path) != 0) {
            t->code = errno;
        }
        fileop_op_close(fd);
    }
    int rc = 0;
    if (t->tell) {
        struct fileop_record rec;
        fileop_io_entry(&rec, &node->st);
        rc = fileop_watch_put(w, rec.kind, FILEOP_CREATED, w->path);
    }
    w->path[t->base] = '\0';
    return rc;
}

static int fileop_watch_fault(void *arg, const char *path, size_t len, int code) {
    struct fileop_watch_tree *t = arg;
    (void)path;
    (void)len;
    if (code != EACCES) { /* what may not be looked into is not watched */
        t->code = code;
    }
    return 0;
}

/* All directories of the tree at w->path, open as `fd`. `tell`: they are new, and so is what is in
 * them. Watched before it is read, so that nothing is missed; some may be told twice. */
static int fileop_watch_tree(struct fileop_watching *w, int fd, bool tell, int *code) {
    struct fileop_watch_tree t = {.w = w, .base = strlen(w->path), .tell = tell};
    const struct fileop_walk walk = {
        .arg = &t,
        .visit = fileop_watch_visit,
        .fault = fileop_watch_fault,
        .stats = true,
        .paths = true,
    };
    int rc = fileop_walk(fd, &walk);
    *code = t.code;
    return rc;
}

/* Opens what is watched; ESTALE when its path leads to something else by now. */
static int fileop_watch_root(const struct fileop_watching *w) {
    struct stat st;
    int fd = fileop_path_open(w->o->argv[1], O_PATH);
    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_dev != w->dev || st.st_ino != w->ino)) {
        fileop_op_close(fd);
        errno = ESTALE;
        return -1;
    }
    return fd;
}

/* A directory came: made, or moved here. */
static int fileop_watch_enter(struct fileop_watching *w) {
    int code = 0;
    int root = fileop_watch_root(w);
    int fd = root < 0 ? -1 : fileop_path_below(root, w->path, O_RDONLY | O_DIRECTORY);
    fileop_op_close(root);
    if (fd < 0) {
        return 0; /* and went, or may not be looked into */
    }
    int rc = 0;
    if (fileop_watch_add(w, fd, w->path) != 0) {
        w->lost = true;
    } else {
        rc = fileop_watch_tree(w, fd, true, &code);
        w->lost = w->lost || code != 0;
    }
    fileop_op_close(fd);
    return rc;
}

static uint32_t fileop_watch_flags(uint32_t mask) {
    uint32_t flags = 0;
    flags |= mask & (IN_CREATE | IN_MOVED_TO) ? FILEOP_CREATED : 0;
    flags |= mask & IN_MODIFY ? FILEOP_MODIFIED : 0;
    flags |= mask & (IN_DELETE | IN_MOVED_FROM) ? FILEOP_DELETED : 0;
    flags |= mask & IN_ATTRIB ? FILEOP_ATTRIBUTES : 0;
    return flags;
}

/* A file that has no name yet (O_TMPFILE) tells its attributes under "#" and its number. */
static bool fileop_watch_nameless(const struct fileop_watching *w, const char *name) {
    struct stat st;
    if (name[0] != '#' || name[1] == '\0' || name[1 + strspn(name + 1, "0123456789")] != '\0') {
        return false;
    }
    int root = fileop_watch_root(w);
    bool there = root >= 0 && fstatat(root, w->path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    fileop_op_close(root);
    return !there;
}

static int fileop_watch_event(struct fileop_watching *w, const struct inotify_event *e) {
    if (e->mask & IN_Q_OVERFLOW) {
        w->lost = true;
        return 0;
    }
    struct fileop_watched *it = fileop_watch_find(w, e->wd);
    if (it == NULL) {
        return 0;
    }
    bool root = it->path[0] == '\0';
    if (e->mask & IN_IGNORED) {
        fileop_watch_forget(w, it);
        return 0;
    }
    /* A directory tells its attributes twice: itself, and as one of its parent's entries. */
    if (e->len == 0 && !root) {
        return 0;
    }
    const char *name = e->len > 0 ? e->name : "";
    if (fileop_path_hidden(name) || strlen(it->path) + 1 + strlen(name) > FILEOP_PATH_MAX) {
        return 0;
    }
    (void)snprintf(w->path, sizeof w->path, "%s%s%s", it->path, root || *name == '\0' ? "" : "/",
                   name);
    bool dir = (e->mask & IN_ISDIR) != 0;
    uint32_t flags = fileop_watch_flags(e->mask);
    if (flags == 0 || (flags == FILEOP_ATTRIBUTES && fileop_watch_nameless(w, name))) {
        return 0;
    }
    if (fileop_watch_put(w, dir ? FILEOP_DIRECTORY : FILEOP_NONE, flags, w->path) != 0) {
        return -1;
    }
    if (!dir || !w->recursive || *name == '\0') {
        return 0;
    }
    if (flags & FILEOP_DELETED) {
        fileop_watch_drop(w, w->path);
    }
    /* One that could not be looked into when it came may have been opened up. */
    bool enter = flags & FILEOP_CREATED || (flags & FILEOP_ATTRIBUTES && !fileop_watch_has(w));
    return enter ? fileop_watch_enter(w) : 0;
}

static int fileop_watch_read(struct fileop_watching *w) {
    ssize_t n = read(w->inotify, w->events, sizeof w->events);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *e = (const void *)(w->events + at);
        if (fileop_watch_event(w, e) != 0) {
            return -1;
        }
        at += (ssize_t)(sizeof *e + e->len);
    }
    return 0;
}

/* Writes what the pipe takes. */
static int fileop_watch_write(struct fileop_watching *w) {
    struct fileop_io *io = &w->o->io;
    if (w->lost && sizeof io->out_buf - io->out_len > FILEOP_WATCH_ROOM * 2) {
        w->lost = false;
        if (fileop_watch_put(w, FILEOP_NONE, FILEOP_OVERFLOW, "") != 0) {
            return -1;
        }
    }
    if (io->out_len == 0) {
        return 0;
    }
    ssize_t n = write(io->out, io->out_buf, io->out_len);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    io->out_len -= (size_t)n;
    memmove(io->out_buf, io->out_buf + n, io->out_len);
    return 0;
}

/* Watches what the path leads to now, and nothing else. */
static int fileop_watch_arm(struct fileop_watching *w, int fd, const struct stat *st) {
    int code = 0;
    while (w->count > 0) {
        fileop_watch_forget(w, &w->list[w->count - 1]);
    }
    if (w->inotify >= 0) {
        (void)close(w->inotify);
    }
    w->dev = st->st_dev;
    w->ino = st->st_ino;
    w->path[0] = '\0';
    w->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->inotify < 0 || fileop_watch_add(w, fd, "") != 0) {
        return -1;
    }
    if (!w->recursive || !S_ISDIR(st->st_mode)) {
        return 0;
    }
    int dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir < 0 ? -1 : fileop_watch_tree(w, dir, false, &code);
    fileop_op_close(dir);
    if (rc == 0 && code != 0) {
        errno = code;
        rc = -1;
    }
    return rc;
}

/* Does the path still lead to what is watched? It may have been removed or moved, or another file
 * system lies there, as after a snapshot: inotify tells nothing of that. */
static int fileop_watch_check(struct fileop_watching *w) {
    struct stat st;
    int fd = fileop_path_open(w->o->argv[1], O_PATH);
    if (fd < 0) {
        return -1;
    }
    int rc = fstat(fd, &st);
    if (rc == 0 && (st.st_dev != w->dev || st.st_ino != w->ino)) {
        rc = fileop_watch_arm(w, fd, &st);
        w->lost = true;
    }
    fileop_op_close(fd);
    return rc;
}

/* Until its stdin ends, whatever may come from there. */
static int fileop_watch_loop(struct fileop_watching *w) {
    struct fileop_io *io = &w->o->io;
    uint64_t checked = clock_mono_ns();
    char drop[256];
    for (;;) {
        struct pollfd p[3] = {
            {.fd = io->in, .events = POLLIN},
            {.fd = w->inotify, .events = POLLIN},
            {.fd = io->out},
        };
        if (fileop_watch_write(w) != 0) {
            return -1;
        }
        p[2].events = io->out_len > 0 ? POLLOUT : 0;
        if (poll(p, 3, FILEOP_WATCH_CHECK_MS) < 0 && errno != EINTR) {
            return -1;
        }
        if (p[0].revents != 0) {
            ssize_t n = read(io->in, drop, sizeof drop);
            if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
                return 0;
            }
        }
        if (p[2].revents & POLLERR) {
            errno = EPIPE;
            return -1;
        }
        if (p[1].revents != 0 && fileop_watch_read(w) != 0) {
            return -1;
        }
        if (clock_mono_ns() - checked >= FILEOP_WATCH_CHECK_MS * 1000000ull) {
            if (fileop_watch_check(w) != 0) {
                return -1;
            }
            checked = clock_mono_ns();
        }
    }
}

static int fileop_watch_start(struct fileop_watching *w) {
    struct stat st;
    int fd = fileop_path_open(w->o->argv[1], O_PATH);
    if (fd < 0) {
        return -1;
    }
    int rc = fstat(fd, &st) != 0 ? -1 : fileop_watch_arm(w, fd, &st);
    if (rc == 0) {
        rc = fileop_op_entry(w->o, fd, "", &st, "", 0);
    }
    fileop_op_close(fd);
    if (rc != 0 || fileop_io_flush(&w->o->io) != 0) {
        return -1;
    }
    int flags = fcntl(w->o->io.out, F_GETFL);
    return flags < 0 ? -1 : fcntl(w->o->io.out, F_SETFL, flags | O_NONBLOCK);
}

int fileop_watch(struct fileop_op *o) {
    struct fileop_watching *w = calloc(1, sizeof *w);
    if (w == NULL || fileop_op_yes(o->argv[2], &w->recursive) != 0 ||
        fileop_path_check(o->argv[1]) != 0) {
        free(w);
        return -1;
    }
    w->o = o;
    w->inotify = -1;
    int rc = fileop_watch_start(w);
    if (rc == 0) {
        rc = fileop_watch_loop(w);
    }
    free(w); /* its tables go with the process, as its watches do */
    return rc;
}
