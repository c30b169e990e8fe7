/* apply: many changes of a tree, all of them or none. They are made in a hidden directory of the
 * same file system first, while they come in; fileop_commit.c puts them into their places. */
#include "fileop_op.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fileop_commit.h"
#include "fileop_make.h"
#include "fileop_path.h"

#define FILEOP_APPLY_TRIES 16
#define FILEOP_APPLY_LOST ".pinfold-lost-"

struct fileop_applying {
    struct fileop_op *o;
    int root;
    int holder; /* the directory that the stage is in: the root or, beside it, its parent */
    int stage;
    char name[FILEOP_PATH_SECRET]; /* of the stage */
    struct fileop_commit commit;
};

static void fileop_apply_unmake(int holder, const char *name) {
    int code = errno;
    (void)unlinkat(holder, name, AT_REMOVEDIR);
    errno = code;
}

/* Opens and locks what was just made; 0 = somebody who sweeps was faster. */
static int fileop_apply_hold(struct fileop_applying *a, int holder) {
    struct stat st;
    a->stage = openat(holder, a->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (a->stage < 0) {
        return errno == ENOENT ? 0 : -1;
    }
    if (flock(a->stage, LOCK_EX | LOCK_NB) == 0 && fstat(a->stage, &st) == 0 && st.st_nlink > 0) {
        return 1;
    }
    fileop_op_close(a->stage);
    a->stage = -1;
    return 0;
}

static int fileop_apply_stage_in(struct fileop_applying *a, int holder) {
    for (int i = 0; i < FILEOP_APPLY_TRIES; i++) {
        fileop_path_secret(a->name);
        if (mkdirat(holder, a->name, 0700) != 0) {
            if (errno == EEXIST) {
                continue;
            }
            return -1;
        }
        int rc = fileop_apply_hold(a, holder);
        if (rc > 0) {
            fileop_remove_stale(holder);
            return 0;
        }
        if (rc < 0) {
            fileop_apply_unmake(holder, a->name);
            return -1;
        }
    }
    errno = EBUSY;
    return -1;
}

/* Beside the directory, where no program looks, if that is the same mount and may be written to. */
static int fileop_apply_stage(struct fileop_applying *a) {
    a->holder = fileop_path_above(a->root);
    if (a->holder >= 0) {
        if (fileop_apply_stage_in(a, a->holder) == 0) {
            return 0;
        }
        fileop_op_close(a->holder);
    }
    a->holder = a->root;
    return fileop_apply_stage_in(a, a->root);
}

/* A regular file with its contents, in the stage. */
static int fileop_apply_file(struct fileop_applying *a, const struct fileop_record *rec,
                             const char *staged) {
    int fd = openat(a->stage, staged, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -1;
    }
    int rc = fileop_io_take_all(&a->o->io, &a->o->item, fd);
    if (rc == 0) {
        rc = fileop_make_attributes(fd, rec);
    }
    fileop_op_close(fd);
    return rc;
}

static int fileop_apply_entry(struct fileop_applying *a) {
    struct fileop_in *item = &a->o->item;
    const struct fileop_record rec = item->rec; /* the contents overwrite it */
    enum fileop_commit_what what = FILEOP_COMMIT_PLACE;
    char staged[24];
    if (rec.kind == FILEOP_DIRECTORY) {
        what = FILEOP_COMMIT_DIRECTORY;
    } else if (rec.kind == FILEOP_FILE && !(rec.flags & FILEOP_CONTENT)) {
        what = FILEOP_COMMIT_ATTRIBUTES;
    }
    if (fileop_commit_add(&a->commit, what, &rec, item->path) != 0) {
        return -1;
    }
    if (what != FILEOP_COMMIT_PLACE) {
        return 0;
    }
    fileop_commit_name(a->commit.count - 1, staged);
    return rec.kind == FILEOP_FILE ? fileop_apply_file(a, &rec, staged)
                                   : fileop_make_special(a->stage, staged, &rec, item->target);
}

/* Whatever fails is told with the path that it was about. */
static int fileop_apply_tell(struct fileop_applying *a, const char *path) {
    int code = errno;
    if (fileop_io_error(&a->o->io, path, strlen(path), code) == 0) {
        errno = code;
    }
    return -1;
}

static int fileop_apply_take(struct fileop_applying *a) {
    struct fileop_op *o = a->o;
    for (;;) {
        int got = fileop_io_next(&o->io, &o->item);
        if (got > 0 && o->item.rec.type == FILEOP_END) {
            return 0;
        }
        bool entry = got > 0 && o->item.rec.type == FILEOP_ENTRY;
        if ((!entry && (got <= 0 || o->item.rec.type != FILEOP_REMOVE)) ||
            o->item.rec.path_len == 0 || fileop_path_hides(o->item.path)) {
            errno = got < 0 ? errno : EPROTO;
            return -1;
        }
        size_t before = a->commit.count;
        int rc =
            entry ? fileop_apply_entry(a)
                  : fileop_commit_add(&a->commit, FILEOP_COMMIT_REMOVE, &o->item.rec, o->item.path);
        if (rc != 0) {
            return a->commit.count > before
                       ? fileop_apply_tell(a, fileop_commit_path(&a->commit, before))
                       : -1;
        }
    }
}

/* What is there now of what was made. */
static int fileop_apply_answer(struct fileop_applying *a) {
    struct fileop_commit *c = &a->commit;
    fileop_below_forget(&c->below);
    for (size_t i = 0; i < c->count; i++) {
        const char *path = fileop_commit_path(c, i);
        const char *name = NULL;
        if (c->items[i].what == FILEOP_COMMIT_REMOVE) {
            continue;
        }
        int dir = fileop_below_parent(&c->below, path, false, &name);
        if ((dir < 0 || fileop_op_entry_of(a->o, dir, name, path) != 0) &&
            fileop_io_error(&a->o->io, path, strlen(path), errno) != 0) {
            return -1;
        }
    }
    return 0;
}

static int fileop_apply_staged(struct fileop_applying *a) {
    fileop_commit_init(&a->commit, a->root, a->stage);
    int rc = fileop_apply_take(a);
    if (rc == 0) {
        rc = fileop_commit_run(&a->commit);
        rc = rc == 0 ? fileop_apply_answer(a)
                     : fileop_apply_tell(a, fileop_commit_path(&a->commit, a->commit.failed));
    }
    int code = errno;
    if (a->commit.stuck) {
        /* What could not be put back is found under a name that everybody sees. */
        char lost[FILEOP_PATH_SECRET] = FILEOP_APPLY_LOST;
        size_t n = sizeof FILEOP_APPLY_LOST - 1;
        memcpy(lost + n, a->name + strlen(a->name) - 16, 17);
        (void)fileop_make_rename(a->holder, a->name, a->holder, lost, FILEOP_MAKE_NOREPLACE);
    } else {
        (void)fileop_remove_tree(a->holder, a->name);
    }
    fileop_commit_done(&a->commit);
    errno = code;
    return rc;
}

int fileop_apply(struct fileop_op *o) {
    struct fileop_applying *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return -1;
    }
    a->o = o;
    a->root = fileop_path_make(o->argv[1]);
    if (a->root < 0) {
        free(a);
        return -1;
    }
    int rc = fileop_apply_stage(a);
    if (rc == 0) {
        rc = fileop_apply_staged(a);
        fileop_op_close(a->stage);
    }
    if (a->holder != a->root) {
        fileop_op_close(a->holder);
    }
    fileop_op_close(a->root);
    free(a);
    return rc;
}
