/* Operations that change one file: write, mkdir, move. */
#include "fileop_op.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "fileop_make.h"
#include "fileop_path.h"

#define FILEOP_WRITE_LINKS 40 /* what the kernel follows, too */
#define FILEOP_WRITE_COPY (1u << 30)

/* Where the file really is that `path` leads to through final links: its directory (O_PATH), its
 * name, and what is there (st_mode 0 = nothing). */
static int fileop_write_where(const char *path, bool make, char name[FILEOP_PATH_NAME],
                              struct stat *st) {
    char target[FILEOP_TARGET_MAX + 1];
    int dir = fileop_path_parent(path, make, name);
    for (int i = 0; dir >= 0 && i < FILEOP_WRITE_LINKS; i++) {
        if (name[0] == '\0') {
            fileop_op_close(dir);
            errno = EISDIR;
            return -1;
        }
        if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) != 0) {
            st->st_mode = 0;
            if (errno == ENOENT) {
                return dir;
            }
            fileop_op_close(dir);
            return -1;
        }
        if (!S_ISLNK(st->st_mode)) {
            return dir;
        }
        ssize_t n = readlinkat(dir, name, target, sizeof target);
        int next = -1;
        if (n > 0 && n < (ssize_t)sizeof target) {
            target[n] = '\0';
            next = fileop_path_parent_at(dir, target, make, name);
        }
        fileop_op_close(dir);
        dir = next;
    }
    if (dir >= 0) {
        fileop_op_close(dir);
        errno = ELOOP;
    }
    return -1;
}

/* DATA up to END. */
static int fileop_write_data(struct fileop_op *o, int fd) {
    for (;;) {
        int rc = fileop_io_next(&o->io, &o->item);
        if (rc > 0 && o->item.rec.type == FILEOP_END) {
            return 0;
        }
        if (rc <= 0 || o->item.rec.type != FILEOP_DATA) {
            errno = rc < 0 ? errno : EPROTO;
            return -1;
        }
        if (fileop_io_take(&o->io, fd) != 0) {
            return -1;
        }
    }
}

static int fileop_write_into(struct fileop_op *o, int dir, const char *name, mode_t mode,
                             bool created) {
    struct fileop_record rec;
    struct fileop_temp temp;
    struct stat st;
    if (fileop_make_temp(&temp, dir) != 0) {
        return -1;
    }
    int rc = fileop_write_data(o, temp.fd);
    if (rc == 0) {
        rc = fchmod(temp.fd, mode);
    }
    if (rc == 0) {
        rc = fileop_make_place(&temp, name, true);
    }
    if (rc == 0) {
        rc = fstat(temp.fd, &st);
    }
    if (rc == 0) {
        fileop_io_entry(&rec, &st);
        rec.flags = created ? FILEOP_CREATED : 0;
        rc = fileop_io_put(&o->io, &rec, "", 0, NULL);
    }
    fileop_make_done(&temp);
    return rc;
}

int fileop_write(struct fileop_op *o) {
    char name[FILEOP_PATH_NAME];
    struct stat st;
    mode_t mode = 0;
    bool keep = false;
    bool make = false;
    if (fileop_op_mode(o->argv[2], &mode, &keep) != 0 || fileop_op_yes(o->argv[3], &make) != 0) {
        return -1;
    }
    int dir = fileop_write_where(o->argv[1], make, name, &st);
    if (dir < 0) {
        return -1;
    }
    int rc = -1;
    if (st.st_mode != 0 && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
    } else {
        if (keep) {
            mode = st.st_mode != 0 ? st.st_mode & 07777 : 0644;
        }
        rc = fileop_write_into(o, dir, name, mode, st.st_mode == 0);
    }
    fileop_op_close(dir);
    return rc;
}

/* mkdir with exactly this mode. */
static int fileop_mkdir_new(int dir, const char *name, mode_t mode) {
    if (mkdirat(dir, name, mode & 0777) != 0) {
        return -1;
    }
    if ((mode & ~(mode_t)0777) == 0) {
        return 0;
    }
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int rc = fchmod(fd, mode);
    fileop_op_close(fd);
    return rc;
}

int fileop_mkdir(struct fileop_op *o) {
    char name[FILEOP_PATH_NAME];
    struct stat st;
    mode_t mode = 0755;
    bool none = false;
    bool make = false;
    if (fileop_op_mode(o->argv[2], &mode, &none) != 0 || fileop_op_yes(o->argv[3], &make) != 0) {
        return -1;
    }
    int dir = fileop_path_parent(o->argv[1], make, name);
    if (dir < 0) {
        return -1;
    }
    const char *self = name[0] ? name : ".";
    int rc = fileop_mkdir_new(dir, self, mode);
    if (rc != 0 && errno == EEXIST && make) {
        /* A link to a directory will do as well, as with mkdir -p. */
        if (fstatat(dir, self, &st, 0) == 0 && S_ISDIR(st.st_mode)) {
            rc = 0;
        } else {
            errno = EEXIST;
        }
    }
    if (rc == 0) {
        rc = fstatat(dir, self, &st, 0) == 0 ? fileop_op_entry(o, dir, self, &st, "", 0) : -1;
    }
    fileop_op_close(dir);
    return rc;
}

struct fileop_moving {
    int from, to;
    char from_name[FILEOP_PATH_NAME], to_name[FILEOP_PATH_NAME];
    bool replace;
};

static int fileop_move_bytes(int from, int to) {
    for (;;) {
        ssize_t n = sendfile(to, from, NULL, FILEOP_WRITE_COPY);
        if (n == 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return -1;
        }
    }
}

static int fileop_move_copy(const struct fileop_moving *m, int fd, const struct stat *st) {
    struct fileop_temp temp;
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fileop_make_temp(&temp, m->to) != 0) {
        return -1;
    }
    int rc = fileop_move_bytes(fd, temp.fd);
    if (rc == 0) {
        rc = futimens(temp.fd, times);
    }
    if (rc == 0) {
        rc = fchmod(temp.fd, st->st_mode & 07777);
    }
    if (rc == 0) {
        rc = fileop_make_place(&temp, m->to_name, m->replace);
    }
    fileop_make_done(&temp);
    return rc;
}

/* /tmp and /workspace are mounts of their own, though of one file system: what mv(1) does then. A
 * regular file alone; whole trees are not copied. */
static int fileop_move_across(const struct fileop_moving *m) {
    struct stat st;
    if (fstatat(m->from, m->from_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -1;
    }
    if (!S_ISREG(st.st_mode)) {
        errno = EXDEV;
        return -1;
    }
    int fd = fileop_path_regular(m->from, m->from_name, &st);
    if (fd < 0) {
        return -1;
    }
    int rc = fileop_move_copy(m, fd, &st);
    fileop_op_close(fd);
    return rc == 0 ? unlinkat(m->from, m->from_name, 0) : -1;
}

static int fileop_move_at(struct fileop_op *o, struct fileop_moving *m) {
    if (m->from_name[0] == '\0' || m->to_name[0] == '\0') {
        errno = EBUSY;
        return -1;
    }
    int rc = fileop_make_rename(m->from, m->from_name, m->to, m->to_name,
                                m->replace ? FILEOP_MAKE_REPLACE : FILEOP_MAKE_NOREPLACE);
    if (rc != 0 && errno == EXDEV) {
        rc = fileop_move_across(m);
    }
    return rc == 0 ? fileop_op_entry_of(o, m->to, m->to_name, "") : -1;
}

int fileop_move(struct fileop_op *o) {
    struct fileop_moving m = {.from = -1, .to = -1};
    if (fileop_op_yes(o->argv[3], &m.replace) != 0) {
        return -1;
    }
    m.from = fileop_path_parent(o->argv[1], false, m.from_name);
    m.to = m.from < 0 ? -1 : fileop_path_parent(o->argv[2], false, m.to_name);
    int rc = m.to < 0 ? -1 : fileop_move_at(o, &m);
    fileop_op_close(m.from);
    fileop_op_close(m.to);
    return rc;
}
