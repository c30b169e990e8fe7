#include "layers_maps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "layers_worker.h"

#define LAYERS_MAPS_TEXT_MAX (64u << 20)
#define LAYERS_MAPS_PIDS_MAX 65536u
#define LAYERS_MAPS_FILES_MAX 65536u

static int layers_maps_add(struct layers_mapped *m, ino_t ino) {
    for (size_t i = 0; i < m->count; i++) {
        if (m->ino[i] == ino) {
            return 0;
        }
    }
    if (m->count == m->size) {
        size_t size = m->size == 0 ? 64 : m->size * 2;
        ino_t *bigger =
            size > LAYERS_MAPS_FILES_MAX ? NULL : realloc(m->ino, size * sizeof *bigger);
        if (bigger == NULL) {
            return -1;
        }
        m->ino = bigger;
        m->size = size;
    }
    m->ino[m->count++] = ino;
    return 0;
}

/* `rest` is the path below the place, in the words of the jail. */
static void layers_maps_file(int live, const struct layers_place *place, const char *rest,
                             struct layers_mapped *out) {
    char path[8192];
    struct open_how how = {
        .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    struct stat st;
    size_t len = strlen(rest);
    /* A newline in a name is written as an escape, a name that is gone with a remark. Both could
     * be part of a name as well. */
    bool unsure =
        strchr(rest, '\\') != NULL || (len >= 10 && strcmp(rest + len - 10, " (deleted)") == 0);
    int n = snprintf(path, sizeof path, "%s/%s", place->name, rest);
    fd_cleanup int fd = n < 0 || (size_t)n >= sizeof path
                            ? -1
                            : (int)syscall(SYS_openat2, live, path, &how, sizeof how);
    if (unsure || fd < 0 || fstat(fd, &st) != 0 || layers_maps_add(out, st.st_ino) != 0) {
        out->all = true;
    }
}

/* One line of maps: "start-end perms offset dev inode   path". */
static void layers_maps_line(int live, const char *line, struct layers_mapped *out) {
    const char *perms = strchr(line, ' ');
    /* Also one that is not writable now: protection can be lifted again, and pages that were
     * written to before take writes at once, without a time being set. */
    if (perms == NULL || strlen(perms) < 6 || perms[4] != 's') {
        return;
    }
    const char *path = strchr(line, '/');
    for (size_t i = 0; path != NULL && i < LAYERS_PLACES; i++) {
        const struct layers_place *place = &layers_places[i];
        size_t len = strlen(place->path);
        if ((place->bit & LAYERS_KEPT) && strncmp(path + 1, place->path, len) == 0 &&
            path[1 + len] == '/') {
            layers_maps_file(live, place, path + 2 + len, out);
            return;
        }
    }
}

static void layers_maps_process(int proc, pid_t pid, int live, struct buf *text,
                                struct layers_mapped *out) {
    char path[64];
    (void)snprintf(path, sizeof path, "%d/maps", (int)pid);
    buf_clear(text);
    if (fd_read_file(proc, path, text, NULL) != 0) {
        out->all |= errno != ENOENT && errno != ESRCH;
        return;
    }
    char *line = text->len > 0 ? text->data : NULL;
    while (line != NULL && *line != '\0') {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        layers_maps_line(live, line, out);
        line = end == NULL ? NULL : end + 1;
    }
}

/* Adds the children of each thread of `pid` to `pids`. */
static int layers_maps_children(int proc, pid_t pid, struct buf *pids, struct buf *text) {
    char path[64];
    (void)snprintf(path, sizeof path, "%d/task", (int)pid);
    int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : -1; /* it has ended */
    }
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        fd_close(&fd);
        return -1;
    }
    int rc = 0;
    for (const struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        char file[NAME_MAX + 16];
        if (e->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(file, sizeof file, "%s/children", e->d_name);
        buf_clear(text);
        if (fd_read_file(dirfd(d), file, text, NULL) != 0) {
            /* A kernel without these files cannot tell who the processes are. */
            rc = faccessat(dirfd(d), e->d_name, F_OK, 0) == 0 ? -1 : 0;
            continue;
        }
        for (char *p = text->data; text->len > 0 && rc == 0 && *p >= '1' && *p <= '9';) {
            pid_t child = (pid_t)strtol(p, &p, 10);
            rc = buf_append(pids, &child, sizeof child, NULL);
            p += *p == ' ';
        }
    }
    (void)closedir(d);
    return rc;
}

int layers_maps_find(int proc, pid_t init, int live, struct layers_mapped *out, struct err *err) {
    struct buf pids;
    struct buf text;
    *out = (struct layers_mapped){0};
    buf_init(&pids, LAYERS_MAPS_PIDS_MAX * sizeof(pid_t));
    buf_init(&text, LAYERS_MAPS_TEXT_MAX);
    int rc = buf_append(&pids, &init, sizeof init, err);
    for (size_t at = 0; rc == 0 && !out->all && at < pids.len; at += sizeof(pid_t)) {
        pid_t pid;
        memcpy(&pid, pids.data + at, sizeof pid);
        layers_maps_process(proc, pid, live, &text, out);
        out->all |= layers_maps_children(proc, pid, &pids, &text) != 0;
    }
    buf_done(&pids);
    buf_done(&text);
    return rc;
}

void layers_maps_done(struct layers_mapped *mapped) {
    free(mapped->ino);
    *mapped = (struct layers_mapped){0};
}
