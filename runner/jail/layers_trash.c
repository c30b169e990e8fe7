#include "layers_trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "layers_walk.h"

static DIR *layers_trash_open(int dir, const char *name) {
    int fd = strcmp(name, ".") == 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                    : layers_walk_open(dir, name);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        fd_close(&fd);
    }
    return d;
}

/* Empties one directory of files. A directory in it that is not empty is moved up beside it: so
 * no tree is deep, and none needs more than one descriptor at a time. */
static bool layers_trash_one(int trash, const char *name, uint64_t *serial) {
    DIR *d = layers_trash_open(trash, name);
    if (d == NULL) {
        return unlinkat(trash, name, 0) == 0;
    }
    int dir = dirfd(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            unlinkat(dir, e->d_name, 0) == 0) {
            continue;
        }
        if (unlinkat(dir, e->d_name, AT_REMOVEDIR) != 0) {
            char up[32];
            (void)snprintf(up, sizeof up, "t%llu", (unsigned long long)++*serial);
            (void)renameat(dir, e->d_name, trash, up);
        }
    }
    (void)closedir(d);
    return unlinkat(trash, name, AT_REMOVEDIR) == 0;
}

/* One round over what is in the trash now: did it remove anything? */
static bool layers_trash_round(int trash, uint64_t *serial) {
    bool any = false;
    DIR *d = layers_trash_open(trash, ".");
    if (d == NULL) {
        return false;
    }
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            any |= layers_trash_one(trash, e->d_name, serial);
        }
    }
    (void)closedir(d);
    return any;
}

void layers_trash_empty(int trash) {
    uint64_t serial = (uint64_t)getpid() << 32; /* another worker may be at it as well */
    while (layers_trash_round(trash, &serial)) {
        /* the next level of each tree */
    }
}
