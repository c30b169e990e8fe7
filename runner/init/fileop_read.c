/* Operations that read contents: read, pack, fetch. */
#include "fileop_op.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fileop_links.h"
#include "fileop_path.h"
#include "fileop_walk.h"

/* A regular file by its path, links followed, without waking whoever holds a FIFO's other end. */
static int fileop_read_open(const char *path, struct stat *st) {
    if (fileop_path_check(path) != 0) {
        return -1;
    }
    int fd = fileop_path_open(path, O_PATH);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode) || fileop_path_is_proc(fd)) {
        errno = S_ISDIR(st->st_mode) ? EISDIR : ENXIO;
        fileop_op_close(fd);
        return -1;
    }
    fileop_op_close(fd);
    fd = fileop_path_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, st) != 0 || !S_ISREG(st->st_mode) || fileop_path_is_proc(fd))) {
        fileop_op_close(fd);
        errno = ENXIO;
        return -1;
    }
    return fd;
}

int fileop_read(struct fileop_op *o) {
    struct fileop_record rec;
    struct stat st;
    uint64_t offset = 0;
    uint64_t length = 0;
    bool shrunk = false;
    if (fileop_op_number(o->argv[2], INT64_MAX, &offset) != 0 ||
        fileop_op_number(o->argv[3], UINT64_MAX, &length) != 0) {
        return -1;
    }
    int fd = fileop_read_open(o->argv[1], &st);
    if (fd < 0) {
        return -1;
    }
    uint64_t size = (uint64_t)st.st_size;
    uint64_t left = offset < size ? size - offset : 0;
    fileop_io_entry(&rec, &st);
    rec.flags = FILEOP_CONTENT;
    int rc = fileop_io_put(&o->io, &rec, "", 0, NULL);
    if (rc == 0) {
        rc = fileop_io_contents(&o->io, fd, offset, length < left ? length : left, &shrunk);
    }
    fileop_op_close(fd);
    if (rc == 0 && shrunk) {
        errno = ESTALE;
        return -1;
    }
    return rc;
}

struct fileop_packing {
    struct fileop_op *o;
    uint64_t bytes;
    struct fileop_links links;
};

static int fileop_pack_fault(void *arg, const char *path, size_t len, int code) {
    struct fileop_packing *p = arg;
    if (len == 0) { /* of the directory itself */
        errno = code;
        return -1;
    }
    return fileop_io_error(&p->o->io, path, len, code);
}

static int fileop_pack_quiet(void *arg, const char *path, size_t len, int code) {
    (void)arg;
    (void)path;
    (void)len;
    (void)code;
    return 0;
}

static int fileop_pack_add(struct fileop_packing *p, const struct stat *st) {
    if (S_ISREG(st->st_mode)) {
        if (st->st_size < 0 || (uint64_t)st->st_size > FILEOP_PACK_MAX - p->bytes) {
            errno = EFBIG;
            return -1;
        }
        p->bytes += (uint64_t)st->st_size;
    }
    return 0;
}

static int fileop_pack_measure(void *arg, const struct fileop_node *node, bool *enter) {
    struct fileop_packing *p = arg;
    (void)enter;
    /* Without paths every name of a file counts: it may be told more than once, too. */
    return fileop_pack_add(p, &node->st);
}

/* The contents of `name` in `dir`, or why there are none. `p`: they count, as they are now. */
static int fileop_read_file(struct fileop_op *o, struct fileop_packing *p, int dir,
                            const char *name, const char *path) {
    struct stat st;
    size_t len = strlen(path);
    int fd = fileop_path_regular(dir, name, &st);
    if (fd < 0) {
        return fileop_io_error(&o->io, path, len, errno);
    }
    int rc = 0;
    if (p && fileop_pack_add(p, &st) != 0) {
        rc = -1;
    } else if (st.st_size > (off_t)FILEOP_PACK_MAX) {
        rc = fileop_io_error(&o->io, path, len, EFBIG);
    } else {
        rc = fileop_io_file(&o->io, fd, &st, path, len);
    }
    fileop_op_close(fd);
    return rc;
}

static int fileop_pack_visit(void *arg, const struct fileop_node *node, bool *enter) {
    struct fileop_packing *p = arg;
    (void)enter;
    if (!S_ISREG(node->st.st_mode)) {
        return fileop_op_entry(p->o, node->dir, node->name, &node->st, node->path, node->path_len);
    }
    const char *earlier = fileop_links_find(&p->links, &node->st, node->path, node->path_len);
    if (earlier) {
        struct fileop_record rec;
        fileop_io_entry(&rec, &node->st);
        rec.kind = FILEOP_HARDLINK;
        return fileop_io_put(&p->o->io, &rec, node->path, node->path_len, earlier);
    }
    return fileop_read_file(p->o, p, node->dir, node->name, node->path);
}

static int fileop_pack_tree(struct fileop_op *o, int fd, const struct stat *st) {
    struct fileop_packing *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return -1;
    }
    p->o = o;
    struct fileop_walk w = {
        .arg = p,
        .visit = fileop_pack_measure,
        .fault = fileop_pack_quiet,
        .stats = true,
    };
    int rc = fileop_walk(fd, &w);
    if (rc == 0) {
        p->bytes = 0;
        w.visit = fileop_pack_visit;
        w.fault = fileop_pack_fault;
        w.paths = true;
        w.sorted = true;
        rc = fileop_op_entry(o, fd, "", st, "", 0);
    }
    if (rc == 0) {
        rc = fileop_walk(fd, &w);
    }
    fileop_links_done(&p->links);
    free(p);
    return rc;
}

int fileop_pack(struct fileop_op *o) {
    struct stat st;
    int fd = fileop_path_check(o->argv[1]) != 0 ? -1 : fileop_path_dir(o->argv[1]);
    if (fd < 0 && errno == ENOTDIR) {
        fd = fileop_read_open(o->argv[1], &st);
        if (fd < 0) {
            return -1;
        }
        if ((uint64_t)st.st_size > FILEOP_PACK_MAX) {
            fileop_op_close(fd);
            errno = EFBIG;
            return -1;
        }
        int rc = fileop_io_file(&o->io, fd, &st, "", 0);
        fileop_op_close(fd);
        return rc;
    }
    if (fd < 0) {
        return -1;
    }
    if (fileop_path_is_proc(fd)) {
        fileop_op_close(fd);
        errno = ENXIO;
        return -1;
    }
    int rc = fstat(fd, &st) != 0 ? -1 : fileop_pack_tree(o, fd, &st);
    fileop_op_close(fd);
    return rc;
}

/* One name of a request: everything but the end of the pipe is told and no failure. */
static int fileop_fetch_one(struct fileop_op *o, struct fileop_below *below) {
    struct stat st;
    const char *name = NULL;
    const char *path = o->item.path;
    int dir = fileop_below_parent(below, path, false, &name);
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return fileop_io_error(&o->io, path, o->item.rec.path_len, errno);
    }
    if (S_ISREG(st.st_mode)) {
        return fileop_read_file(o, NULL, dir, name, path);
    }
    return fileop_op_entry(o, dir, name, &st, path, o->item.rec.path_len);
}

int fileop_fetch(struct fileop_op *o) {
    struct fileop_below below;
    int root = fileop_path_check(o->argv[1]) != 0 ? -1 : fileop_path_dir(o->argv[1]);
    if (root < 0) {
        return -1;
    }
    fileop_below_init(&below, root);
    int rc = 0;
    while (rc == 0) {
        int got = fileop_io_next(&o->io, &o->item);
        if (got <= 0 || (o->item.rec.type != FILEOP_NAME && o->item.rec.type != FILEOP_END)) {
            errno = got < 0 ? errno : EPROTO;
            rc = -1;
            break;
        }
        if (o->item.rec.type == FILEOP_END) {
            break;
        }
        rc = fileop_fetch_one(o, &below);
    }
    fileop_below_done(&below);
    fileop_op_close(root);
    return rc;
}
