#include "fileop_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fileop_op.h"
#include "scratch.h"
#include "str.h"

static const struct fileop_call {
    const char *name;
    size_t args;
    int (*run)(struct fileop_op *o);
} fileop_calls[] = {
    {"stat", 2, fileop_stat},     {"read", 3, fileop_read},   {"write", 3, fileop_write},
    {"list", 4, fileop_list},     {"mkdir", 3, fileop_mkdir}, {"move", 3, fileop_move},
    {"remove", 2, fileop_remove}, {"pack", 1, fileop_pack},   {"unpack", 1, fileop_unpack},
    {"watch", 2, fileop_watch},   {"scan", 1, fileop_scan},   {"upper", 1, fileop_upper},
    {"look", 1, fileop_look},     {"fetch", 1, fileop_fetch}, {"apply", 1, fileop_apply},
};

int fileop_op_number(const char *text, uint64_t max, uint64_t *value) {
    if (str_u64(text, 0, max, value, NULL) != 0) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

int fileop_op_yes(const char *text, bool *yes) {
    uint64_t value = 0;
    if (fileop_op_number(text, 1, &value) != 0) {
        return -1;
    }
    *yes = value == 1;
    return 0;
}

int fileop_op_mode(const char *text, mode_t *mode, bool *none) {
    uint64_t value = 0;
    *none = strcmp(text, "-1") == 0;
    if (*none) {
        return 0;
    }
    if (fileop_op_number(text, 07777, &value) != 0) {
        return -1;
    }
    *mode = (mode_t)value;
    return 0;
}

void fileop_op_close(int fd) {
    int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    errno = code;
}

int fileop_op_entry(struct fileop_op *o, int dir, const char *name, const struct stat *st,
                    const char *path, size_t len) {
    struct fileop_record rec;
    char target[FILEOP_TARGET_MAX + 1];
    fileop_io_entry(&rec, st);
    if (!S_ISLNK(st->st_mode)) {
        return fileop_io_put(&o->io, &rec, path, len, NULL);
    }
    ssize_t n = readlinkat(dir, name, target, sizeof target);
    if (n <= 0 || n == sizeof target) {
        return fileop_io_error(&o->io, path, len, n < 0 && errno != EINVAL ? errno : ESTALE);
    }
    target[n] = '\0';
    return fileop_io_put(&o->io, &rec, path, len, target);
}

int fileop_op_entry_of(struct fileop_op *o, int dir, const char *name, const char *path) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -1;
    }
    return fileop_op_entry(o, dir, name, &st, path, strlen(path));
}

static int fileop_call(struct fileop_op *o, size_t argc) {
    for (size_t i = 0; i < sizeof fileop_calls / sizeof fileop_calls[0]; i++) {
        const struct fileop_call *c = &fileop_calls[i];
        if (argc > 0 && strcmp(o->argv[0], c->name) == 0) {
            if (argc == c->args + 1) {
                if (c->run != fileop_upper) {
                    fileop_op_close(o->upper); /* holds no file system longer than it must */
                    o->upper = -1;
                }
                return c->run(o);
            }
            break;
        }
    }
    errno = EINVAL;
    return -1;
}

int fileop_run(struct spec *spec, int upper_fd) {
    struct fileop_op *o = scratch_new(sizeof *o);
    o->argv = spec->argv;
    o->upper = upper_fd;
    o->io.in = 0;
    o->io.out = 1;
    umask(0);
    /* A reader that went away and a file over its limit are errors, not deaths. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    int rc = fileop_call(o, spec->argc);
    if (rc == 0) {
        struct fileop_record end = {.type = FILEOP_END, .flags = o->end_flags};
        rc = fileop_io_put(&o->io, &end, "", 0, NULL);
    } else {
        rc = fileop_io_error(&o->io, "", 0, errno);
    }
    return rc == 0 && fileop_io_flush(&o->io) == 0 ? 0 : 1;
}
