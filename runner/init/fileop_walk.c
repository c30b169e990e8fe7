#include "fileop_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fileop_names.h"
#include "fileop_path.h"

#define FILEOP_WALK_OPEN 16  /* directories that stay open on the way down, besides the root … */
#define FILEOP_WALK_OTHER 12 /* … and at most so many that this many descriptors are left */

struct fileop_frame {
    int fd; /* -1 = closed on the way down */
    dev_t dev;
    ino_t ino;
    size_t path_len; /* of its own path */
    const char *after;
    struct fileop_names names;
    size_t next;
};

struct fileop_walker {
    const struct fileop_walk *w;
    struct fileop_frame *frames;
    size_t depth, room; /* frames in use, and allocated */
    size_t open;        /* directories that stay open */
    size_t visits;
    size_t bytes; /* of names in all frames */
    char path[FILEOP_PATH_MAX + 1];
    char getdents[131072];
};

static int fileop_walk_fault(struct fileop_walker *k, size_t len, int code) {
    return k->w->fault(k->w->arg, k->path, k->w->paths ? len : 0, code);
}

static void fileop_walk_pop(struct fileop_walker *k) {
    struct fileop_frame *f = &k->frames[--k->depth];
    k->bytes -= fileop_names_bytes(&f->names);
    fileop_names_done(&f->names);
    if (f->fd >= 0 && k->depth > 0) {
        int code = errno;
        (void)close(f->fd);
        errno = code;
    }
}

/* The part of `after` that is a name in the frame's directory, or NULL. */
static const char *fileop_walk_resume(const char *after, char name[FILEOP_PATH_NAME]) {
    if (after == NULL || *after == '\0') {
        return NULL;
    }
    size_t n = strcspn(after, "/");
    memcpy(name, after, n); /* checked by the caller: at most 255 bytes */
    name[n] = '\0';
    return name;
}

/* Reads the directory of the topmost frame. */
static int fileop_walk_read(struct fileop_walker *k) {
    const struct fileop_walk *w = k->w;
    struct fileop_frame *f = &k->frames[k->depth - 1];
    char first[FILEOP_PATH_NAME];
    struct fileop_names_wish wish = {
        .first = fileop_walk_resume(f->after, first),
        .most = w->most > k->visits ? w->most - k->visits + 1
                : w->most           ? 1
                                    : 0,
        .bytes_max = FILEOP_WALK_NAMES_MAX - k->bytes,
        .sorted = w->sorted,
        .hidden = w->hidden,
    };
    int rc = fileop_names_read(&f->names, f->fd, &wish, k->getdents, sizeof k->getdents);
    k->bytes += fileop_names_bytes(&f->names);
    return rc;
}

/* Closes what is open too far up: it is opened again on the way back. */
static void fileop_walk_shed(struct fileop_walker *k) {
    if (k->depth > k->open + 1) {
        struct fileop_frame *f = &k->frames[k->depth - 1 - k->open];
        if (f->fd >= 0) {
            (void)close(f->fd);
            f->fd = -1;
        }
    }
}

/* Takes over `fd`, except for the root's. */
static int fileop_walk_push(struct fileop_walker *k, int fd, size_t path_len, const char *after) {
    struct stat st;
    if (k->depth == k->room) {
        size_t room = k->room ? k->room * 2 : 64;
        struct fileop_frame *more = reallocarray(k->frames, room, sizeof *more);
        if (more == NULL) {
            return -1;
        }
        k->frames = more;
        k->room = room;
    }
    if (fstat(fd, &st) != 0) {
        return -1;
    }
    k->frames[k->depth++] = (struct fileop_frame){
        .fd = fd, .dev = st.st_dev, .ino = st.st_ino, .path_len = path_len, .after = after};
    fileop_walk_shed(k);
    if (fileop_walk_read(k) == 0) {
        return 0;
    }
    if (errno == ENOMEM) {
        return -1;
    }
    int rc = fileop_walk_fault(k, path_len, errno);
    fileop_walk_pop(k);
    return rc;
}

/* Opens the parent of the topmost frame again, before that one goes. Whoever moved a directory
 * meanwhile finds that the walk does not follow it. */
static int fileop_walk_reopen(struct fileop_walker *k) {
    if (k->depth < 2 || k->frames[k->depth - 2].fd >= 0) {
        return 0;
    }
    struct fileop_frame *up = &k->frames[k->depth - 2];
    int fd = openat(k->frames[k->depth - 1].fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_dev != up->dev || st.st_ino != up->ino) {
        int code = fd < 0 ? errno : ESTALE;
        if (fd >= 0) {
            (void)close(fd);
        }
        errno = code;
        return -1;
    }
    up->fd = fd;
    return 0;
}

static int fileop_walk_open(struct fileop_walker *k, int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && k->w->unlock && k->w->unlock(k->w->arg, dir, name) == 0) {
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    return fd;
}

static int fileop_walk_enter(struct fileop_walker *k, const struct fileop_node *node,
                             const char *after) {
    dev_t dev = k->frames[k->depth - 1].dev;
    int fd = fileop_walk_open(k, node->dir, node->name);
    if (fd < 0) {
        bool gone = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
        return gone ? 0 : fileop_walk_fault(k, node->path_len, errno);
    }
    struct stat st;
    if (fstat(fd, &st) != 0 || (st.st_dev != dev && fileop_path_is_proc(fd))) {
        (void)close(fd);
        return 0;
    }
    return fileop_walk_push(k, fd, node->path_len, after);
}

static int fileop_walk_stat(struct fileop_node *node) {
    if (fstatat(node->dir, node->name, &node->st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -1;
    }
    node->is_dir = S_ISDIR(node->st.st_mode);
    node->type = (unsigned char)IFTODT(node->st.st_mode);
    return 0;
}

/* 1 = its path was put behind that of its directory, 0 = it is too long. */
static int fileop_walk_path(struct fileop_walker *k, struct fileop_node *node) {
    size_t base = k->frames[k->depth - 1].path_len;
    size_t n = strlen(node->name);
    size_t start = base ? base + 1 : 0;
    node->path = "";
    if (!k->w->paths) {
        return 1;
    }
    if (start + n > FILEOP_PATH_MAX) {
        return 0;
    }
    if (base) {
        k->path[base] = '/';
    }
    memcpy(k->path + start, node->name, n + 1);
    node->path = k->path;
    node->path_len = start + n;
    return 1;
}

/* One entry of the topmost frame. */
static int fileop_walk_step(struct fileop_walker *k) {
    const struct fileop_walk *w = k->w;
    struct fileop_frame *f = &k->frames[k->depth - 1];
    size_t i = f->next++;
    struct fileop_node node = {.dir = f->fd, .name = fileop_names_at(&f->names, i)};
    unsigned char type = fileop_names_type(&f->names, i);
    const char *rest = NULL;
    bool enter = true;
    node.type = type;
    node.is_dir = type == DT_DIR;
    if (!fileop_walk_path(k, &node)) {
        f->next = f->names.count; /* and so are the others, more or less */
        return fileop_walk_fault(k, f->path_len, ENAMETOOLONG);
    }
    if ((w->stats || type == DT_UNKNOWN) && fileop_walk_stat(&node) != 0) {
        return errno == ENOENT ? 0 : fileop_walk_fault(k, node.path_len, errno);
    }
    size_t n = f->after ? strcspn(f->after, "/") : 0;
    if (n > 0 && strlen(node.name) == n && memcmp(node.name, f->after, n) == 0) {
        rest = f->after[n] == '/' ? f->after + n + 1 : NULL; /* told on an earlier page */
    } else {
        k->visits++;
        if (w->visit(w->arg, &node, &enter) != 0) {
            return -1;
        }
    }
    if (node.is_dir && enter && (w->depth == 0 || k->depth < w->depth)) {
        return fileop_walk_enter(k, &node, rest);
    }
    return 0;
}

/* The topmost directory is done. */
static int fileop_walk_up(struct fileop_walker *k) {
    size_t path_len = k->frames[k->depth - 1].path_len;
    int code = fileop_walk_reopen(k) == 0 ? 0 : errno;
    fileop_walk_pop(k);
    if (k->depth == 0) {
        return 0;
    }
    struct fileop_frame *f = &k->frames[k->depth - 1];
    if (code != 0) {
        f->next = f->names.count;
        f->fd = -1;
        /* The way further up leads through this directory. */
        while (k->depth > 0 && k->frames[k->depth - 1].fd < 0) {
            path_len = k->frames[k->depth - 1].path_len;
            fileop_walk_pop(k);
        }
        return fileop_walk_fault(k, path_len, code);
    }
    if (k->w->leave == NULL) {
        return 0;
    }
    const struct fileop_node node = {.dir = f->fd,
                                     .name = fileop_names_at(&f->names, f->next - 1),
                                     .path = k->w->paths ? k->path : "",
                                     .path_len = path_len,
                                     .is_dir = true};
    return k->w->leave(k->w->arg, &node);
}

static size_t fileop_walk_open_max(void) {
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 ||
        lim.rlim_cur >= FILEOP_WALK_OPEN + FILEOP_WALK_OTHER) {
        return FILEOP_WALK_OPEN;
    }
    return lim.rlim_cur > FILEOP_WALK_OTHER + 1 ? (size_t)lim.rlim_cur - FILEOP_WALK_OTHER : 1;
}

int fileop_walk(int root, const struct fileop_walk *w) {
    struct fileop_walker *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return -1;
    }
    k->w = w;
    k->open = fileop_walk_open_max();
    int rc = lseek(root, 0, SEEK_SET) < 0 ? -1 : fileop_walk_push(k, root, 0, w->after);
    while (rc == 0 && k->depth > 0) {
        struct fileop_frame *f = &k->frames[k->depth - 1];
        rc = f->next < f->names.count ? fileop_walk_step(k) : fileop_walk_up(k);
    }
    int code = errno;
    while (k->depth > 0) {
        fileop_walk_pop(k);
    }
    free(k->frames);
    free(k);
    errno = code;
    return rc;
}
