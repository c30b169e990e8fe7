/* remove: a file, a link, a tree; iteratively, and never through a link. */
#include "fileop_op.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "fileop_path.h"
#include "fileop_walk.h"

#define FILEOP_REMOVE_ROUNDS 16 /* while others make files in what is to go */

struct fileop_removing {
    int failed; /* the first errno that a further round will not help */
};

/* rwx for the owner, through a descriptor, so that no link is followed. */
static int fileop_remove_unlock(void *arg, int dir, const char *name) {
    char path[32];
    struct stat st;
    (void)arg;
    int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = fstat(fd, &st) == 0 ? chmod(path, (st.st_mode & 07777) | 0700) : -1;
    fileop_op_close(fd);
    return rc;
}

/* Unlinks; a directory that may not be written to, but belongs to the user, is opened up first. */
static int fileop_remove_unlink(int dir, const char *name, int flags) {
    struct stat st;
    if (unlinkat(dir, name, flags) == 0) {
        return 0;
    }
    if (errno != EACCES || fstat(dir, &st) != 0 || (st.st_mode & 0700) == 0700 ||
        fchmod(dir, (st.st_mode & 07777) | 0700) != 0) {
        return -1;
    }
    return unlinkat(dir, name, flags);
}

static void fileop_remove_note(struct fileop_removing *r, int code) {
    bool again = code == ENOENT || code == ENOTEMPTY || code == EEXIST || code == EISDIR ||
                 code == ENOTDIR || code == ESTALE;
    if (!again && r->failed == 0) {
        r->failed = code;
    }
}

static int fileop_remove_visit(void *arg, const struct fileop_node *node, bool *enter) {
    (void)enter;
    if (!node->is_dir && fileop_remove_unlink(node->dir, node->name, 0) != 0) {
        fileop_remove_note(arg, errno);
    }
    return 0;
}

static int fileop_remove_leave(void *arg, const struct fileop_node *node) {
    if (fileop_remove_unlink(node->dir, node->name, AT_REMOVEDIR) != 0) {
        fileop_remove_note(arg, errno);
    }
    return 0;
}

static int fileop_remove_fault(void *arg, const char *path, size_t len, int code) {
    (void)path;
    (void)len;
    fileop_remove_note(arg, code);
    return 0;
}

/* Empties a directory once. */
static int fileop_remove_below(int dir, const char *name) {
    struct fileop_removing r = {0};
    const struct fileop_walk w = {
        .arg = &r,
        .visit = fileop_remove_visit,
        .leave = fileop_remove_leave,
        .fault = fileop_remove_fault,
        .unlock = fileop_remove_unlock,
        .hidden = true,
    };
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags);
    if (fd < 0 && errno == EACCES && fileop_remove_unlock(NULL, dir, name) == 0) {
        fd = openat(dir, name, flags);
    }
    if (fd < 0) {
        return -1;
    }
    int rc = fileop_walk(fd, &w);
    fileop_op_close(fd);
    if (rc == 0 && r.failed != 0) {
        errno = r.failed;
        return -1;
    }
    return rc;
}

int fileop_remove_tree(int dir, const char *name) {
    for (int i = 0; i < FILEOP_REMOVE_ROUNDS; i++) {
        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) {
            return 0;
        }
        if (errno != EISDIR && errno != EPERM) {
            return -1;
        }
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
            return -1;
        }
        if (errno != ENOTDIR && fileop_remove_below(dir, name) != 0 && errno != ENOENT &&
            errno != ENOTDIR && errno != ELOOP) {
            return -1;
        }
    }
    errno = ENOTEMPTY;
    return -1;
}

/* What is mounted there, or may not be taken out of its directory, is left alone as a whole: its
 * contents would be gone and it would not. */
static int fileop_remove_allowed(int dir, const char *name) {
    if (fileop_path_mounted(dir, name)) {
        errno = EBUSY;
        return -1;
    }
    return faccessat(dir, ".", W_OK | X_OK, AT_EACCESS);
}

static int fileop_remove_at(int dir, const char *name, bool recursive) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -1;
    }
    if (!S_ISDIR(st.st_mode)) {
        return unlinkat(dir, name, 0);
    }
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0) {
        return 0;
    }
    if (!recursive || (errno != ENOTEMPTY && errno != EEXIST)) {
        return -1;
    }
    return fileop_remove_allowed(dir, name) == 0 ? fileop_remove_tree(dir, name) : -1;
}

int fileop_remove(struct fileop_op *o) {
    char name[FILEOP_PATH_NAME];
    bool recursive = false;
    if (fileop_op_yes(o->argv[2], &recursive) != 0) {
        return -1;
    }
    int dir = fileop_path_parent(o->argv[1], false, name);
    if (dir < 0) {
        return -1;
    }
    int rc = -1;
    if (name[0] == '\0') {
        errno = EBUSY;
    } else {
        rc = fileop_remove_at(dir, name, recursive);
    }
    fileop_op_close(dir);
    return rc;
}

/* Whoever works in a directory of that name holds its lock. */
static int fileop_remove_stale_one(void *arg, const struct fileop_node *node, bool *enter) {
    (void)arg;
    *enter = false;
    if (!node->is_dir || !fileop_path_hidden(node->name)) {
        return 0;
    }
    int fd = openat(node->dir, node->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)fileop_remove_tree(node->dir, node->name);
    }
    fileop_op_close(fd);
    return 0;
}

void fileop_remove_stale(int dir) {
    struct fileop_removing r = {0};
    const struct fileop_walk w = {.arg = &r,
                                  .visit = fileop_remove_stale_one,
                                  .fault = fileop_remove_fault,
                                  .hidden = true,
                                  .depth = 1};
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fileop_walk(fd, &w);
    }
    fileop_op_close(fd);
}
