/* unpack: a tree as it comes. Nothing is written through a link, nor outside of the directory. */
#include "fileop_op.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fileop_make.h"
#include "fileop_path.h"

#define FILEOP_UNPACK_DIRS_MAX 1000000u
#define FILEOP_UNPACK_TEXT_MAX (128u << 20)

/* A directory gets its mode and its time when all is in it. */
struct fileop_unpack_dir {
    uint32_t mode;
    uint32_t at; /* of its path */
    int64_t mtime_ns;
};

struct fileop_unpacking {
    struct fileop_op *o;
    struct fileop_below below;
    struct fileop_below source; /* of hard links */
    struct fileop_unpack_dir *dirs;
    size_t count, room;
    char *text;
    size_t text_len, text_room;
};

static int fileop_unpack_later(struct fileop_unpacking *u) {
    const struct fileop_record *rec = &u->o->item.rec;
    size_t len = rec->path_len + 1;
    if (u->count == u->room) {
        size_t room = u->room ? u->room * 2 : 256;
        struct fileop_unpack_dir *dirs =
            room <= 2 * FILEOP_UNPACK_DIRS_MAX ? reallocarray(u->dirs, room, sizeof *dirs) : NULL;
        if (dirs == NULL) {
            errno = ENOMEM;
            return -1;
        }
        u->dirs = dirs;
        u->room = room;
    }
    if (u->text_len + len > u->text_room) {
        size_t room = u->text_room ? u->text_room * 2 : 65536;
        char *text = room <= FILEOP_UNPACK_TEXT_MAX ? realloc(u->text, room) : NULL;
        if (text == NULL) {
            errno = ENOMEM;
            return -1;
        }
        u->text = text;
        u->text_room = room;
    }
    memcpy(u->text + u->text_len, u->o->item.path, len);
    u->dirs[u->count++] = (struct fileop_unpack_dir){
        .mode = rec->mode, .at = (uint32_t)u->text_len, .mtime_ns = rec->mtime_ns};
    u->text_len += len;
    return 0;
}

static int fileop_unpack_open(int dir, const char *name) {
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A directory that is there stays, and is opened up for what comes; anything else gives way. */
static int fileop_unpack_dir(struct fileop_unpacking *u, int dir, const char *name) {
    struct stat st;
    if (mkdirat(dir, name, 0700) == 0) {
        return fileop_unpack_later(u);
    }
    if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -1;
    }
    if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(dir, name, 0) != 0 || mkdirat(dir, name, 0700) != 0) {
            return -1;
        }
    } else if ((st.st_mode & 0700) != 0700) {
        int fd = fileop_unpack_open(dir, name);
        if (fd < 0) {
            return -1;
        }
        int rc = fchmod(fd, (st.st_mode & 07777) | 0700);
        fileop_op_close(fd);
        if (rc != 0) {
            return -1;
        }
    }
    return fileop_unpack_later(u);
}

static int fileop_unpack_file(struct fileop_unpacking *u, int dir, const char *name) {
    struct fileop_temp temp;
    const struct fileop_record rec = u->o->item.rec;
    char path[FILEOP_PATH_NAME];
    memcpy(path, name, strlen(name) + 1); /* the item is overwritten by what follows */
    if (fileop_make_temp(&temp, dir) != 0) {
        return -1;
    }
    int rc = rec.flags & FILEOP_CONTENT ? fileop_io_take_all(&u->o->io, &u->o->item, temp.fd) : 0;
    if (rc == 0) {
        rc = fileop_make_attributes(temp.fd, &rec);
    }
    if (rc == 0) {
        rc = fileop_make_place(&temp, path, true);
    }
    fileop_make_done(&temp);
    return rc;
}

static int fileop_unpack_hardlink(struct fileop_unpacking *u, int dir, const char *name) {
    char secret[FILEOP_PATH_SECRET];
    const char *source = NULL;
    int from = fileop_below_parent(&u->source, u->o->item.target, false, &source);
    if (from < 0) {
        return -1;
    }
    int rc = linkat(from, source, dir, name, 0);
    if (rc == 0 || errno != EEXIST) {
        return rc;
    }
    fileop_path_secret(secret);
    if (linkat(from, source, dir, secret, 0) != 0) {
        return -1;
    }
    return fileop_make_settle(dir, secret, name);
}

static int fileop_unpack_entry(struct fileop_unpacking *u) {
    const struct fileop_in *item = &u->o->item;
    const char *name = NULL;
    if (item->rec.path_len == 0) {
        errno = EINVAL;
        return item->rec.kind == FILEOP_DIRECTORY ? 0
                                                  : -1; /* the directory itself stays as it is */
    }
    int dir = fileop_below_parent(&u->below, item->path, true, &name);
    if (dir < 0) {
        return -1;
    }
    switch (item->rec.kind) {
    case FILEOP_FILE:
        return fileop_unpack_file(u, dir, name);
    case FILEOP_DIRECTORY:
        return fileop_unpack_dir(u, dir, name);
    case FILEOP_HARDLINK:
        return fileop_unpack_hardlink(u, dir, name);
    default:
        return fileop_make_special(dir, name, &item->rec, item->target);
    }
}

/* The last first: a directory that may not be searched any more comes after what is in it. */
static int fileop_unpack_dirs(struct fileop_unpacking *u) {
    while (u->count > 0) {
        const struct fileop_unpack_dir *d = &u->dirs[--u->count];
        const struct fileop_record rec = {.mode = d->mode, .mtime_ns = d->mtime_ns};
        const char *name = NULL;
        int dir = fileop_below_parent(&u->below, u->text + d->at, false, &name);
        int fd = dir < 0 ? -1 : fileop_unpack_open(dir, name);
        if (fd < 0) {
            if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) {
                continue; /* something else took its place */
            }
            return -1;
        }
        int rc = fileop_make_attributes(fd, &rec);
        fileop_op_close(fd);
        if (rc != 0) {
            return -1;
        }
    }
    return 0;
}

static int fileop_unpack_all(struct fileop_unpacking *u) {
    struct fileop_op *o = u->o;
    char path[FILEOP_PATH_MAX + 1];
    for (;;) {
        int got = fileop_io_next(&o->io, &o->item);
        if (got > 0 && o->item.rec.type == FILEOP_END) {
            return fileop_unpack_dirs(u);
        }
        if (got <= 0 || o->item.rec.type != FILEOP_ENTRY || fileop_path_hides(o->item.path)) {
            errno = got < 0 ? errno : EPROTO;
            return -1;
        }
        size_t len = o->item.rec.path_len;
        memcpy(path, o->item.path, len + 1);
        if (fileop_unpack_entry(u) == 0) {
            continue;
        }
        int code = errno;
        if (len > 0 && fileop_io_error(&o->io, path, len, code) != 0) {
            return -1;
        }
        if (code != EOPNOTSUPP) {
            errno = code;
            return -1;
        }
    }
}

int fileop_unpack(struct fileop_op *o) {
    struct fileop_unpacking *u = calloc(1, sizeof *u);
    int root = u == NULL ? -1 : fileop_path_make(o->argv[1]);
    if (root < 0) {
        free(u);
        return -1;
    }
    u->o = o;
    fileop_below_init(&u->below, root);
    fileop_below_init(&u->source, root);
    int rc = fileop_unpack_all(u);
    fileop_below_done(&u->below);
    fileop_below_done(&u->source);
    fileop_op_close(root);
    free(u->dirs);
    free(u->text);
    free(u);
    return rc;
}
