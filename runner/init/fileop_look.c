/* Operations that look and touch nothing: stat, list, scan, upper, look. */
#include "fileop_op.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bundle.h"
#include "fileop_names.h"
#include "fileop_path.h"
#include "fileop_walk.h"

#define FILEOP_LOOK_LIMIT_MAX 1000000

int fileop_stat(struct fileop_op *o) {
    char name[FILEOP_PATH_NAME];
    struct stat st;
    bool follow = false;
    if (fileop_op_yes(o->argv[2], &follow) != 0 || fileop_path_check(o->argv[1]) != 0) {
        return -1;
    }
    /* Of "/" and of "x/." there is no name to look at without following it. */
    int dir = follow ? -1 : fileop_path_parent(o->argv[1], false, name);
    if (dir >= 0 && name[0] != '\0') {
        int rc = fileop_op_entry_of(o, dir, name, "");
        fileop_op_close(dir);
        return rc;
    }
    if (dir < 0 && !follow && errno != EISDIR) {
        return -1;
    }
    fileop_op_close(dir);
    int fd = fileop_path_open(o->argv[1], O_PATH);
    if (fd < 0) {
        return -1;
    }
    int rc = fstat(fd, &st) != 0 ? -1 : fileop_op_entry(o, fd, "", &st, "", 0);
    fileop_op_close(fd);
    return rc;
}

struct fileop_looking {
    struct fileop_op *o;
    uint64_t left; /* list: entries that may still be told */
    /* upper: */
    int merged; /* the directory itself, as programs see it */
};

static int fileop_look_fault(void *arg, const char *path, size_t len, int code) {
    struct fileop_looking *l = arg;
    if (len == 0) { /* of the directory itself */
        errno = code;
        return -1;
    }
    return fileop_io_error(&l->o->io, path, len, code);
}

static int fileop_look_visit(void *arg, const struct fileop_node *node, bool *enter) {
    struct fileop_looking *l = arg;
    (void)enter;
    return fileop_op_entry(l->o, node->dir, node->name, &node->st, node->path, node->path_len);
}

static int fileop_look_list(void *arg, const struct fileop_node *node, bool *enter) {
    struct fileop_looking *l = arg;
    if (l->left == 0) {
        l->o->end_flags = FILEOP_MORE;
        errno = ECANCELED;
        return -1;
    }
    l->left--;
    return fileop_look_visit(arg, node, enter);
}

int fileop_list(struct fileop_op *o) {
    struct fileop_looking l = {.o = o};
    uint64_t depth = 0;
    const char *after = o->argv[4];
    if (fileop_op_number(o->argv[2], UINT32_MAX, &depth) != 0 ||
        fileop_op_number(o->argv[3], FILEOP_LOOK_LIMIT_MAX, &l.left) != 0) {
        return -1;
    }
    if (depth == 0 || l.left == 0 || (*after != '\0' && !bundle_path_ok(after, strlen(after)))) {
        errno = EINVAL;
        return -1;
    }
    const struct fileop_walk w = {
        .arg = &l,
        .visit = fileop_look_list,
        .fault = fileop_look_fault,
        .stats = true,
        .paths = true,
        .sorted = true,
        .depth = (uint32_t)depth,
        .after = after,
        .most = l.left + 1,
    };
    int fd = fileop_path_check(o->argv[1]) != 0 ? -1 : fileop_path_dir(o->argv[1]);
    if (fd < 0) {
        return -1;
    }
    int rc = fileop_walk(fd, &w);
    if (rc != 0 && errno == ECANCELED && o->end_flags == FILEOP_MORE) {
        rc = 0;
    }
    fileop_op_close(fd);
    return rc;
}

int fileop_scan(struct fileop_op *o) {
    struct fileop_looking l = {.o = o};
    const struct fileop_walk w = {
        .arg = &l,
        .visit = fileop_look_visit,
        .fault = fileop_look_fault,
        .stats = true,
        .paths = true,
    };
    int fd = fileop_path_check(o->argv[1]) != 0 ? -1 : fileop_path_dir(o->argv[1]);
    if (fd < 0) {
        return -1;
    }
    /* Where apply works, and so before every apply that a sync makes. */
    int above = fileop_path_above(fd);
    if (above >= 0) {
        fileop_remove_stale(above);
    }
    fileop_op_close(above);
    fileop_remove_stale(fd);
    int rc = fileop_walk(fd, &w);
    fileop_op_close(fd);
    return rc;
}

/* Where a path of the jail is in the upper directory: NULL = nowhere. */
static const char *fileop_look_upper_path(const char *path, char out[FILEOP_PATH_MAX + 1]) {
    static const struct {
        const char *place, *name;
    } rows[] = {{"/workspace", "workspace"}, {"/home/user", "home"}, {"/var/tmp", "var_tmp"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = strlen(rows[i].place);
        if (strncmp(path, rows[i].place, n) == 0 && (path[n] == '\0' || path[n] == '/')) {
            size_t len = strlen(rows[i].name);
            memcpy(out, rows[i].name, len);
            memcpy(out + len, path + n, strlen(path + n) + 1); /* shorter than it was */
            return out;
        }
    }
    return NULL;
}

static bool fileop_look_whiteout(const struct fileop_node *node) {
    struct stat st;
    return node->type == DT_CHR && fstatat(node->dir, node->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0);
}

/* Entries of a directory without whiteouts; -1 = cannot be told. */
static int64_t fileop_look_count(int fd) {
    if (fd < 0) {
        return -1;
    }
    int64_t n = fileop_names_count(fd);
    fileop_op_close(fd);
    return n;
}

/* An overlay's directory is whole in the upper one when nothing shines through from below. The
 * kernel's own mark for that is not for this user's eyes; but then both have as many entries. */
static bool fileop_look_opaque(const struct fileop_looking *l, const struct fileop_node *node) {
    const int flags = O_RDONLY | O_DIRECTORY;
    int64_t all = fileop_look_count(fileop_path_below(l->merged, node->path, flags));
    return all >= 0 && all == fileop_look_count(fileop_path_below(node->dir, node->name, flags));
}

/* Told is what programs see: the inode of a file that was copied up is another one there. */
static int fileop_look_upper(void *arg, const struct fileop_node *node, bool *enter) {
    struct fileop_looking *l = arg;
    struct fileop_record rec = {.type = FILEOP_ENTRY, .kind = FILEOP_WHITEOUT};
    struct stat st;
    (void)enter;
    if (fileop_look_whiteout(node)) {
        return fileop_io_put(&l->o->io, &rec, node->path, node->path_len, NULL);
    }
    if (fstatat(l->merged, node->path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? 0 : fileop_look_fault(arg, node->path, node->path_len, errno);
    }
    if (!S_ISDIR(st.st_mode)) {
        return fileop_op_entry(l->o, l->merged, node->path, &st, node->path, node->path_len);
    }
    fileop_io_entry(&rec, &st);
    rec.flags = fileop_look_opaque(l, node) ? FILEOP_OPAQUE : 0;
    return fileop_io_put(&l->o->io, &rec, node->path, node->path_len, NULL);
}

int fileop_upper(struct fileop_op *o) {
    char text[FILEOP_PATH_MAX + 1];
    struct fileop_looking l = {.o = o};
    const struct fileop_walk w = {
        .arg = &l,
        .visit = fileop_look_upper,
        .fault = fileop_look_fault,
        .paths = true,
    };
    if (fileop_path_check(o->argv[1]) != 0) {
        return -1;
    }
    const char *path = fileop_look_upper_path(o->argv[1], text);
    if (o->upper < 0 || path == NULL) {
        errno = EOPNOTSUPP;
        return -1;
    }
    l.merged = fileop_path_dir(o->argv[1]);
    if (l.merged < 0) {
        return -1;
    }
    int fd = fileop_path_below(o->upper, path, O_RDONLY | O_DIRECTORY);
    int rc = fd < 0 ? (errno == ENOENT ? 0 : -1) : fileop_walk(fd, &w);
    fileop_op_close(fd);
    fileop_op_close(l.merged);
    return rc;
}

int fileop_look(struct fileop_op *o) {
    struct fileop_below below;
    int root = fileop_path_check(o->argv[1]) != 0 ? -1 : fileop_path_dir(o->argv[1]);
    if (root < 0) {
        return -1;
    }
    fileop_below_init(&below, root);
    int rc = 0;
    while (rc == 0) {
        const char *name = NULL;
        int got = fileop_io_next(&o->io, &o->item);
        if (got <= 0 || (o->item.rec.type != FILEOP_NAME && o->item.rec.type != FILEOP_END)) {
            errno = got < 0 ? errno : EPROTO;
            rc = -1;
            break;
        }
        if (o->item.rec.type == FILEOP_END) {
            break;
        }
        int dir = fileop_below_parent(&below, o->item.path, false, &name);
        if (dir < 0 || fileop_op_entry_of(o, dir, name, o->item.path) != 0) {
            rc = fileop_io_error(&o->io, o->item.path, o->item.rec.path_len, errno);
        }
    }
    fileop_below_done(&below);
    fileop_op_close(root);
    return rc;
}
