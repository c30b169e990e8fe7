#include "ws_links.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WS_LINKS_DEPTH_MAX 200u

/* Entries that are looked at outside of the workspace. */
#define WS_LINKS_ELSEWHERE_MAX 200000u

struct ws_links_walk {
    const struct ws_tree_options *options;
    struct ws_links *all; /* NULL: outside of the workspace, where everything is denied */
    struct ws_links *denied;
    size_t left; /* entries that may still be looked at; outside */
    char path[WS_TREE_PATH_MAX];
};

static int ws_links_order(const void *a, const void *b) {
    const struct ws_links_id *x = a, *y = b;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return x->dev < y->dev ? -1 : x->dev > y->dev;
}

size_t ws_links_names(const struct ws_links *l, const struct ws_links_id *id) {
    const struct ws_links_id *at =
        l->count > 0 ? bsearch(id, l->ids, l->count, sizeof(*id), ws_links_order) : NULL;
    size_t n = 0;
    if (at == NULL)
        return 0;
    while (at > l->ids && ws_links_order(at - 1, id) == 0)
        at--;
    for (; at < l->ids + l->count && ws_links_order(at, id) == 0; at++)
        n++;
    return n;
}

bool ws_links_has(const struct ws_links *l, const struct ws_links_id *id) {
    return l->count > 0 && bsearch(id, l->ids, l->count, sizeof(*id), ws_links_order) != NULL;
}

int ws_links_add(struct ws_links *l, const struct stat *st, struct err *err) {
    if (l->count == l->alloc) {
        size_t alloc = l->alloc == 0 ? 64 : l->alloc * 2;
        struct ws_links_id *ids = reallocarray(l->ids, alloc, sizeof(*ids));
        if (ids == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory");
        l->ids = ids;
        l->alloc = alloc;
    }
    l->ids[l->count++] =
        (struct ws_links_id){.dev = st->st_dev, .ino = st->st_ino, .names = st->st_nlink};
    return 0;
}

void ws_links_done(struct ws_links *l) {
    free(l->ids);
    *l = (struct ws_links){0};
}

static int ws_links_dir(struct ws_links_walk *w, int fd, unsigned depth, bool denied,
                        struct err *err);

static int ws_links_entry(struct ws_links_walk *w, int dir, const char *name, unsigned depth,
                          bool denied, struct err *err) {
    struct stat st;
    if (w->all == NULL && w->left-- == 0)
        return err_set(err, ERR_LIMIT, E2BIG, "too much is elsewhere");
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "looking at %s", w->path);
    if (!S_ISDIR(st.st_mode) && (!S_ISREG(st.st_mode) || st.st_nlink < 2))
        return 0;
    denied = denied || !w->options->may_send(w->options->arg, w->path);
    if (S_ISREG(st.st_mode)) {
        if (w->all != NULL && ws_links_add(w->all, &st, err) < 0)
            return -1;
        return denied ? ws_links_add(w->denied, &st, err) : 0;
    }
    if (depth == WS_LINKS_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, 0, "%s: directories are nested more than %u deep", w->path,
                       WS_LINKS_DEPTH_MAX);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return ws_links_dir(w, fd, depth + 1, denied, err);
    /* What nobody can look into here cannot be linked from here either. */
    return errno == ENOENT || errno == EACCES ? 0 : err_sys(err, "opening %s", w->path);
}

/* Takes over `fd`. */
static int ws_links_dir(struct ws_links_walk *w, int fd, unsigned depth, bool denied,
                        struct err *err) {
    size_t len = strlen(w->path), at = len == 0 ? 0 : len + 1;
    DIR *d = fdopendir(fd);
    int rc = 0;
    if (d == NULL) {
        close(fd);
        return err_sys(err, "listing %s", w->path);
    }
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (at + n >= sizeof(w->path)) {
            rc = err_set(err, ERR_LIMIT, 0, "a path below %s is too long", w->path);
            break;
        }
        if (len > 0)
            w->path[len] = '/';
        memcpy(w->path + at, e->d_name, n + 1);
        rc = ws_links_entry(w, dirfd(d), e->d_name, depth, denied, err);
        w->path[len] = '\0';
    }
    closedir(d);
    return rc;
}

static void ws_links_sort(struct ws_links *l) {
    if (l->count > 0)
        qsort(l->ids, l->count, sizeof(*l->ids), ws_links_order);
}

int ws_links_find(const struct ws_tree_options *options, struct ws_links *all,
                  struct ws_links *denied, struct err *err) {
    struct ws_links_walk *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory");
    w->options = options;
    w->all = all;
    w->denied = denied;
    int fd = openat(options->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? err_sys(err, "opening the workspace") : ws_links_dir(w, fd, 0, false, err);
    free(w);
    ws_links_sort(all);
    ws_links_sort(denied);
    return rc;
}

int ws_links_elsewhere(const struct ws_tree_options *options, struct ws_links *denied, bool *whole,
                       struct err *err) {
    struct ws_links_walk *w = calloc(1, sizeof(*w));
    int rc = 0;
    if (w == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "looking for other names: out of memory");
    w->options = options;
    w->denied = denied;
    w->left = WS_LINKS_ELSEWHERE_MAX;
    *whole = true;
    for (size_t i = 0; rc == 0 && i < options->elsewhere_count; i++) {
        if (strlen(options->elsewhere[i]) >= sizeof(w->path))
            continue; /* no such file can be */
        memcpy(w->path, options->elsewhere[i], strlen(options->elsewhere[i]) + 1);
        rc = ws_links_entry(w, AT_FDCWD, options->elsewhere[i], 0, true, err);
        /* Too large, too deep, unreadable: then nobody can tell what is not there. */
        if (rc < 0 && err->code != ENOMEM) {
            *whole = false;
            rc = 0;
            break;
        }
    }
    free(w);
    ws_links_sort(denied);
    return rc;
}
