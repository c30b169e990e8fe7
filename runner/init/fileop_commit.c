#include "fileop_commit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fileop_make.h"
#include "fileop_op.h"

enum fileop_commit_did {
    FILEOP_COMMIT_PLACED,    /* nothing was there */
    FILEOP_COMMIT_EXCHANGED, /* what was there is in the stage */
    FILEOP_COMMIT_TAKEN,     /* it is in the stage, nothing is there */
    FILEOP_COMMIT_MADE,      /* a directory */
    FILEOP_COMMIT_CHANGED,   /* mode and time were these */
    FILEOP_COMMIT_UNLOCKED,  /* a directory that had no u+rwx; put back in any case */
};

struct fileop_commit_note {
    uint32_t did; /* enum fileop_commit_did */
    uint32_t mode;
    size_t item;
    size_t at; /* of its path */
    int64_t mtime_ns;
    ino_t inode; /* UNLOCKED: only this one is shut again */
};

void fileop_commit_init(struct fileop_commit *c, int root, int stage) {
    *c = (struct fileop_commit){.root = root, .stage = stage};
    fileop_below_init(&c->below, root);
}

void fileop_commit_done(struct fileop_commit *c) {
    fileop_below_done(&c->below);
    free(c->items);
    free(c->text);
    free(c->notes);
    c->items = NULL;
    c->text = NULL;
    c->notes = NULL;
}

void fileop_commit_name(size_t item, char name[24]) {
    (void)snprintf(name, 24, "%zu", item);
}

const char *fileop_commit_path(const struct fileop_commit *c, size_t item) {
    return c->text + c->items[item].at;
}

/* One more element of an array of `size` bytes each. */
static void *fileop_commit_grow(void *array, size_t count, size_t *room, size_t size) {
    if (count < *room) {
        return array;
    }
    size_t more = *room ? *room * 2 : 256;
    void *p = more <= 8 * (size_t)FILEOP_COMMIT_ITEMS_MAX ? reallocarray(array, more, size) : NULL;
    if (p == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    *room = more;
    return p;
}

static int fileop_commit_text(struct fileop_commit *c, const char *path, size_t *at) {
    size_t len = strlen(path) + 1;
    if (c->text_len + len > c->text_room) {
        size_t room = c->text_room ? c->text_room * 2 : 65536;
        char *text = room <= FILEOP_COMMIT_TEXT_MAX ? realloc(c->text, room) : NULL;
        if (text == NULL) {
            errno = ENOMEM;
            return -1;
        }
        c->text = text;
        c->text_room = room;
    }
    memcpy(c->text + c->text_len, path, len);
    *at = c->text_len;
    c->text_len += len;
    return 0;
}

int fileop_commit_add(struct fileop_commit *c, enum fileop_commit_what what,
                      const struct fileop_record *rec, const char *path) {
    size_t at = 0;
    if (c->count >= FILEOP_COMMIT_ITEMS_MAX) {
        errno = EFBIG;
        return -1;
    }
    void *items = fileop_commit_grow(c->items, c->count, &c->room, sizeof *c->items);
    if (items == NULL) {
        return -1;
    }
    c->items = items;
    if (fileop_commit_text(c, path, &at) != 0) {
        return -1;
    }
    c->items[c->count++] = (struct fileop_commit_item){
        .what = (uint32_t)what, .mode = rec->mode, .at = at, .mtime_ns = rec->mtime_ns};
    return 0;
}

/* Room for a note is made before the step, so that the note cannot fail. */
static int fileop_commit_ready(struct fileop_commit *c) {
    void *notes = fileop_commit_grow(c->notes, c->notes_count, &c->notes_room, sizeof *c->notes);
    if (notes == NULL) {
        return -1;
    }
    c->notes = notes;
    return 0;
}

static void fileop_commit_note(struct fileop_commit *c, enum fileop_commit_did did, size_t item) {
    c->notes[c->notes_count++] =
        (struct fileop_commit_note){.did = (uint32_t)did, .item = item, .at = c->items[item].at};
}

/* Of a directory that was made on the way to another one. */
static int fileop_commit_made(void *arg, const char *path) {
    struct fileop_commit *c = arg;
    size_t at = 0;
    if (fileop_commit_ready(c) != 0 || fileop_commit_text(c, path, &at) != 0) {
        return -1;
    }
    c->notes[c->notes_count++] = (struct fileop_commit_note){.did = FILEOP_COMMIT_MADE, .at = at};
    return 0;
}

/* Opens without following a link, for what fchmod(2) cannot do with O_PATH. */
static int fileop_commit_open(struct fileop_commit *c, const char *path, char proc[32],
                              struct stat *st) {
    const char *name = NULL;
    int dir = fileop_below_parent(&c->below, path, false, &name);
    int fd = dir < 0 ? -1 : openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, st) != 0) {
        fileop_op_close(fd);
        fd = -1;
    }
    (void)snprintf(proc, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* Sets time and mode of a file or directory. */
static int fileop_commit_set(struct fileop_commit *c, const char *path, uint32_t mode,
                             int64_t mtime_ns) {
    const struct fileop_record rec = {.mode = mode, .mtime_ns = mtime_ns};
    struct timespec times[2];
    struct stat st;
    char proc[32];
    int fd = fileop_commit_open(c, path, proc, &st);
    if (fd < 0) {
        return -1;
    }
    int rc = 0;
    if (S_ISLNK(st.st_mode)) {
        errno = ELOOP;
        rc = -1;
    } else {
        fileop_make_times(&rec, times);
        if (mtime_ns != FILEOP_MTIME_NONE) {
            rc = utimensat(AT_FDCWD, proc, times, 0);
        }
        if (rc == 0 && (st.st_mode & 07777) != mode) {
            rc = chmod(proc, (mode_t)mode);
        }
    }
    fileop_op_close(fd);
    return rc;
}

/* Shuts a directory that was opened up, unless something else is in its place. */
static void fileop_commit_lock(struct fileop_commit *c, const struct fileop_commit_note *n) {
    struct stat st;
    char proc[32];
    int fd = fileop_commit_open(c, c->text + n->at, proc, &st);
    if (fd >= 0 && st.st_ino == n->inode && S_ISDIR(st.st_mode)) {
        (void)chmod(proc, (mode_t)n->mode);
    }
    fileop_op_close(fd);
}

/* Sets what an item asks for; noted. `type`: what it must be, S_IFREG or S_IFDIR. */
static int fileop_commit_change(struct fileop_commit *c, size_t item, mode_t type) {
    const struct fileop_commit_item *it = &c->items[item];
    const char *path = fileop_commit_path(c, item);
    struct fileop_record old;
    struct stat st;
    char proc[32];
    int fd = fileop_commit_open(c, path, proc, &st);
    if (fd < 0) {
        return -1;
    }
    fileop_op_close(fd);
    if ((st.st_mode & S_IFMT) != type) {
        errno = type == S_IFDIR ? ENOTDIR : S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
        return -1;
    }
    if (fileop_commit_ready(c) != 0) {
        return -1;
    }
    fileop_io_entry(&old, &st);
    fileop_commit_note(c, FILEOP_COMMIT_CHANGED, item);
    c->notes[c->notes_count - 1].mode = old.mode;
    c->notes[c->notes_count - 1].mtime_ns = old.mtime_ns;
    return fileop_commit_set(c, path, it->mode, it->mtime_ns);
}

/* rwx for the user on a directory that belongs to him and lacks it; noted. -1: it is not that. */
static int fileop_commit_unlock(struct fileop_commit *c, const char *path) {
    struct stat st;
    char proc[32];
    size_t at = 0;
    if (*path == '\0' || fileop_commit_ready(c) != 0) {
        return -1;
    }
    int fd = fileop_commit_open(c, path, proc, &st);
    if (fd < 0) {
        return -1;
    }
    int rc = -1;
    if (S_ISDIR(st.st_mode) && (st.st_mode & 0700) != 0700 &&
        fileop_commit_text(c, path, &at) == 0) {
        rc = chmod(proc, (st.st_mode & 07777) | 0700);
    }
    fileop_op_close(fd);
    if (rc == 0) {
        c->notes[c->notes_count++] = (struct fileop_commit_note){.did = FILEOP_COMMIT_UNLOCKED,
                                                                 .mode = st.st_mode & 07777,
                                                                 .at = at,
                                                                 .inode = st.st_ino};
    }
    return rc;
}

/* The directories of an item's path, and the item itself, as far as they are shut. Directories that
 * cannot be searched are opened on the way down. */
static int fileop_commit_unlock_all(struct fileop_commit *c, size_t item) {
    char path[FILEOP_PATH_MAX + 1];
    int rc = -1;
    memcpy(path, fileop_commit_path(c, item), strlen(fileop_commit_path(c, item)) + 1);
    fileop_below_forget(&c->below);
    for (char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
        if (slash) {
            *slash = '\0';
        }
        if (fileop_commit_unlock(c, path) == 0) {
            rc = 0;
        }
        if (slash == NULL) {
            return rc;
        }
        *slash = '/';
    }
}

/* An exchange or a removal may have taken away the directory that is remembered. */
static void fileop_commit_moved(struct fileop_commit *c, const char *path) {
    size_t n = strlen(path);
    if (strncmp(c->below.dir_path, path, n) == 0 &&
        (c->below.dir_path[n] == '\0' || c->below.dir_path[n] == '/')) {
        fileop_below_forget(&c->below);
    }
}

/* The stage's file takes its place. */
static int fileop_commit_place(struct fileop_commit *c, size_t item) {
    char staged[24];
    char path[FILEOP_PATH_MAX + 1]; /* the text may move when parents are made */
    const char *name = NULL;
    memcpy(path, fileop_commit_path(c, item), strlen(fileop_commit_path(c, item)) + 1);
    int dir = fileop_below_parent(&c->below, path, true, &name);
    if (dir < 0 || fileop_commit_ready(c) != 0) {
        return -1;
    }
    fileop_commit_name(item, staged);
    if (fileop_make_rename(c->stage, staged, dir, name, FILEOP_MAKE_NOREPLACE) == 0) {
        fileop_commit_note(c, FILEOP_COMMIT_PLACED, item);
        return 0;
    }
    if (errno != EEXIST ||
        fileop_make_rename(c->stage, staged, dir, name, FILEOP_MAKE_EXCHANGE) != 0) {
        return -1;
    }
    fileop_commit_note(c, FILEOP_COMMIT_EXCHANGED, item);
    fileop_commit_moved(c, path);
    return 0;
}

/* A directory that is there stays. Its mode and time come last. */
static int fileop_commit_directory(struct fileop_commit *c, size_t item) {
    struct stat st;
    char staged[24];
    const char *name = NULL;
    int dir = fileop_below_parent(&c->below, fileop_commit_path(c, item), false, &name);
    if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
        return 0;
    }
    fileop_commit_name(item, staged);
    if (mkdirat(c->stage, staged, 0700) != 0 && errno != EEXIST) {
        return -1;
    }
    return fileop_commit_place(c, item);
}

static int fileop_commit_remove(struct fileop_commit *c, size_t item) {
    char staged[24];
    const char *name = NULL;
    const char *path = fileop_commit_path(c, item);
    int dir = fileop_below_parent(&c->below, path, false, &name);
    if (dir >= 0) {
        if (fileop_commit_ready(c) != 0) {
            return -1;
        }
        fileop_commit_name(item, staged);
        if (fileop_make_rename(dir, name, c->stage, staged, FILEOP_MAKE_NOREPLACE) == 0) {
            fileop_commit_note(c, FILEOP_COMMIT_TAKEN, item);
            fileop_commit_moved(c, path);
            return 0;
        }
    }
    /* A link on the way: below it is nothing that this path means. */
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
}

static int fileop_commit_once(struct fileop_commit *c, size_t item) {
    switch (c->items[item].what) {
    case FILEOP_COMMIT_PLACE:
        return fileop_commit_place(c, item);
    case FILEOP_COMMIT_DIRECTORY:
        return fileop_commit_directory(c, item);
    case FILEOP_COMMIT_REMOVE:
        return fileop_commit_remove(c, item);
    default:
        break;
    }
    int rc = fileop_commit_change(c, item, S_IFREG);
    if (rc != 0 && (errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == ENXIO)) {
        errno = ESTALE; /* the file whose contents should stay is not there */
    }
    return rc;
}

static int fileop_commit_item(struct fileop_commit *c, size_t item) {
    c->failed = item;
    int rc = fileop_commit_once(c, item);
    if (rc != 0 && errno == EACCES) {
        rc = fileop_commit_unlock_all(c, item);
        if (rc == 0) {
            rc = fileop_commit_once(c, item);
        } else {
            errno = EACCES;
        }
    }
    return rc;
}

static int fileop_commit_back(struct fileop_commit *c, const struct fileop_commit_note *n) {
    char staged[24];
    const char *name = NULL;
    const char *path = c->text + n->at;
    if (n->did == FILEOP_COMMIT_UNLOCKED) {
        fileop_commit_lock(c, n);
        return 0;
    }
    if (n->did == FILEOP_COMMIT_CHANGED) {
        (void)fileop_commit_set(c, path, n->mode, n->mtime_ns);
        return 0;
    }
    int dir = fileop_below_parent(&c->below, path, false, &name);
    if (dir < 0) {
        return n->did == FILEOP_COMMIT_MADE || n->did == FILEOP_COMMIT_PLACED ? 0 : -1;
    }
    fileop_commit_name(n->item, staged);
    int rc = 0;
    switch (n->did) {
    case FILEOP_COMMIT_MADE:
        (void)unlinkat(dir, name, AT_REMOVEDIR); /* somebody may have put something there */
        break;
    case FILEOP_COMMIT_PLACED:
        (void)fileop_make_rename(dir, name, c->stage, staged, FILEOP_MAKE_NOREPLACE);
        break;
    case FILEOP_COMMIT_EXCHANGED:
        rc = fileop_make_rename(c->stage, staged, dir, name, FILEOP_MAKE_EXCHANGE);
        if (rc != 0 && errno == ENOENT) {
            rc = fileop_make_rename(c->stage, staged, dir, name, FILEOP_MAKE_NOREPLACE);
        }
        break;
    default:
        rc = fileop_make_rename(c->stage, staged, dir, name, FILEOP_MAKE_NOREPLACE);
        break;
    }
    fileop_commit_moved(c, path);
    return rc;
}

static void fileop_commit_undo(struct fileop_commit *c) {
    int code = errno;
    fileop_below_forget(&c->below);
    while (c->notes_count > 0) {
        if (fileop_commit_back(c, &c->notes[--c->notes_count]) != 0) {
            c->stuck = true;
        }
    }
    errno = code;
}

/* Directories that were opened up are shut again, and those that were asked for get their modes and
 * times: the last first, since one that is shut hides what is in it. */
static int fileop_commit_attributes(struct fileop_commit *c) {
    for (size_t i = c->notes_count; i-- > 0;) {
        const struct fileop_commit_note n = c->notes[i];
        if (n.did == FILEOP_COMMIT_UNLOCKED) {
            fileop_commit_lock(c, &n);
        }
    }
    for (size_t i = c->count; i-- > 0;) {
        if (c->items[i].what != FILEOP_COMMIT_DIRECTORY) {
            continue;
        }
        c->failed = i;
        int rc = fileop_commit_change(c, i, S_IFDIR);
        if (rc != 0 && errno == EACCES && fileop_commit_unlock_all(c, i) == 0) {
            rc = fileop_commit_change(c, i, S_IFDIR);
        }
        /* A later record may have put something else there. */
        if (rc != 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) {
            return -1;
        }
    }
    return 0;
}

int fileop_commit_run(struct fileop_commit *c) {
    c->below.made = fileop_commit_made;
    c->below.arg = c;
    for (size_t i = 0; i < c->count; i++) {
        if (fileop_commit_item(c, i) != 0) {
            fileop_commit_undo(c);
            return -1;
        }
    }
    if (fileop_commit_attributes(c) != 0) {
        fileop_commit_undo(c);
        return -1;
    }
    return 0;
}
