/* What a set of changes means for what is there now. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "undo_internal.h"

/* Relative, no empty component, no "." and no "..". */
static bool apply_path_is_good(const char *path) {
    if (*path == '\0' || strlen(path) >= UNDO_PATH_MAX)
        return false;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        if (*p == '\0')
            return true;
    }
}

static int apply_compare(const void *a, const void *b, void *arg) {
    const struct undo_record *r = arg;

    return strcmp(r->items[*(const size_t *)a].path, r->items[*(const size_t *)b].path);
}

size_t *apply_plan_order(const struct undo_record *r, struct err *err) {
    size_t *order = calloc(r->count + 1, sizeof(*order));

    if (order == NULL) {
        err_set(err, ERR_LIMIT, 0, "no memory for the changes");
        return NULL;
    }
    for (size_t i = 0; i < r->count; i++)
        order[i] = i;
    qsort_r(order, r->count, sizeof(*order), apply_compare, (void *)(uintptr_t)r);
    return order;
}

/* The item with this path, or NULL. */
static struct undo_item *apply_find(const struct undo_record *r, const size_t *order, size_t count,
                                    const char *path) {
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int c = strcmp(path, r->items[order[middle]].path);

        if (c == 0)
            return &r->items[order[middle]];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* A change against what is there, which is in item->before. */
static int apply_settle(struct undo_item *item, const struct undo_change *c, struct err *err) {
    struct undo_image after = {.s = c->after};

    item->outcome = UNDO_REFUSED;
    if (!c->any_before && !undo_tree_same(&item->before.s, &c->before)) {
        /* Somebody may have done the same already. */
        item->outcome = undo_tree_same(&item->before.s, &c->after) ? UNDO_SAME : UNDO_CONFLICT;
        return 0;
    }
    item->fd = c->fd;
    item->offset = c->offset;
    item->mode_only = c->fd == -1 && c->after.type == UNDO_FILE;
    if (item->mode_only && item->before.s.type != UNDO_FILE)
        return 0;
    if (item->mode_only) {
        after.s.size = item->before.s.size;
        memcpy(after.s.sha256, item->before.s.sha256, UNDO_HASH_SIZE);
    }
    /* Its mode would change by its other names, too, wherever they are: it becomes a file of its
     * own, with what the journal has of it. */
    if (item->mode_only && item->before.shared) {
        item->mode_only = false;
        after.mtime_ns = item->before.mtime_ns;
        after.xattrs = item->before.xattrs;
    }
    if (after.s.type == UNDO_LINK && after.s.target == NULL)
        return err_set(err, ERR_INVALID, 0, "the link %.200s has no target", c->path);
    if (undo_image_copy(&item->after, &after, err) < 0)
        return -1;
    item->outcome = undo_tree_same(&item->before.s, &item->after.s) ? UNDO_SAME : UNDO_APPLIED;
    return 0;
}

static int apply_one(struct undo *u, struct undo_item *item, const struct undo_change *c,
                     struct err *err) {
    int rc = undo_tree_look(u->root, c->path, u, &item->before, err);

    item->outcome = UNDO_REFUSED;
    return rc == 0 ? apply_settle(item, c, err) : rc < 0 ? -1 : 0;
}

static int apply_all(struct undo *u, struct undo_record *r, const struct undo_change *changes,
                     size_t count, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        struct undo_item *item;

        if (!apply_path_is_good(changes[i].path))
            return err_set(err, ERR_INVALID, 0, "%.200s is no path within the workspace",
                           changes[i].path);
        item = undo_record_add(r, changes[i].path, err);
        if (item == NULL || apply_one(u, item, &changes[i], err) < 0)
            return -1;
    }
    return 0;
}

/* Behind a link nothing is reached; but when the set makes a directory of that link, what is to be
 * in it is not there yet. */
static int apply_behind(const struct undo_record *r, const size_t *order,
                        const struct undo_change *changes, size_t count, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        struct undo_item *item = &r->items[i];
        char path[UNDO_PATH_MAX];

        if (item->outcome != UNDO_REFUSED || item->before.s.type != UNDO_ABSENT ||
            item->before.s.mode != 0)
            continue;
        memcpy(path, item->path, strlen(item->path) + 1);
        for (char *slash = strrchr(path, '/'); slash != NULL; slash = strrchr(path, '/')) {
            const struct undo_item *above;

            *slash = '\0';
            above = apply_find(r, order, count, path);
            if (above == NULL || above->outcome != UNDO_APPLIED ||
                above->before.s.type != UNDO_LINK || above->after.s.type != UNDO_DIR)
                continue;
            if (apply_settle(item, &changes[i], err) < 0)
                return -1;
            break;
        }
    }
    return 0;
}

/* May a directory go: is everything in it removed as well? 1 = yes, 0 = no. */
static int apply_is_emptied(struct undo *u, const struct undo_record *r, const size_t *order,
                            size_t count, const char *path, struct err *err) {
    const char *name;
    int dir = undo_tree_parent(u->root, path, &name), fd = -1, empty = 1;
    DIR *list = NULL;
    const struct dirent *d;

    if (dir >= 0)
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir >= 0)
        close(dir);
    if (fd >= 0)
        list = fdopendir(fd);
    if (list == NULL) {
        if (fd >= 0)
            close(fd);
        return err_sys(err, "cannot list %s", path);
    }
    while (empty && (d = readdir(list)) != NULL) {
        char child[UNDO_PATH_MAX + 300];
        const struct undo_item *item;

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, d->d_name);
        item = apply_find(r, order, count, child);
        empty = item != NULL && item->outcome == UNDO_APPLIED && item->after.s.type == UNDO_ABSENT;
    }
    closedir(list);
    return empty;
}

static int apply_directories(struct undo *u, struct undo_record *r, const size_t *order,
                             size_t count, struct err *err) {
    /* The deepest first: what they are emptied of is decided then. */
    for (size_t i = count; i-- > 0;) {
        struct undo_item *item = &r->items[order[i]];
        int rc;

        if (item->outcome != UNDO_APPLIED || item->before.s.type != UNDO_DIR ||
            item->after.s.type == UNDO_DIR)
            continue;
        rc = apply_is_emptied(u, r, order, count, item->path, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            item->outcome = UNDO_REFUSED;
    }
    return 0;
}

/* A directory on the way to a change: there, made by the set, or made now. False = in the way. */
static int apply_parent(struct undo *u, struct undo_record *r, const size_t *order, size_t count,
                        const char *path, struct err *err) {
    const struct undo_item *known = apply_find(r, order, count, path);
    struct undo_image now;
    struct undo_item *item;
    int rc;

    if (known != NULL && known->outcome == UNDO_APPLIED)
        return known->after.s.type == UNDO_DIR;
    for (size_t i = count; i < r->count; i++)
        if (strcmp(r->items[i].path, path) == 0)
            return 1;
    rc = undo_tree_look(u->root, path, u, &now, err);
    if (rc != 0) {
        undo_image_done(&now);
        return rc < 0 ? -1 : 0;
    }
    rc = now.s.type == UNDO_DIR;
    if (now.s.type == UNDO_ABSENT) {
        item = undo_record_add(r, path, err);
        if (item == NULL)
            return -1;
        item->outcome = UNDO_APPLIED;
        item->after.s = (struct undo_state){.type = UNDO_DIR, .mode = 0755};
        rc = 1;
    }
    undo_image_done(&now);
    return rc;
}

static int apply_parents(struct undo *u, struct undo_record *r, const size_t *order, size_t count,
                         struct err *err) {
    char last[UNDO_PATH_MAX] = "";

    for (size_t i = 0; i < count; i++) {
        char dir[UNDO_PATH_MAX];
        const char *path = r->items[order[i]].path, *end = strrchr(path, '/');

        if (r->items[order[i]].outcome != UNDO_APPLIED || end == NULL ||
            r->items[order[i]].after.s.type == UNDO_ABSENT)
            continue;
        memcpy(dir, path, (size_t)(end - path));
        dir[end - path] = '\0';
        if (strcmp(dir, last) == 0)
            continue;
        memcpy(last, dir, sizeof(last));
        for (char *slash = strchr(dir, '/');; slash = strchr(slash + 1, '/')) {
            int rc;

            if (slash != NULL)
                *slash = '\0';
            rc = apply_parent(u, r, order, count, dir, err);
            if (rc < 0)
                return -1;
            if (rc == 0) {
                r->items[order[i]].outcome = UNDO_REFUSED;
                last[0] = '\0';
            }
            if (slash == NULL || rc == 0)
                break;
            *slash = '/';
        }
    }
    return 0;
}

int apply_plan(struct undo *u, struct undo_record *r, const struct undo_change *changes,
               size_t count, struct err *err) {
    size_t *order;
    int rc = -1;

    if (apply_all(u, r, changes, count, err) < 0)
        return -1;
    order = apply_plan_order(r, err);
    if (order == NULL)
        return -1;
    for (size_t i = 1; i < count; i++)
        if (strcmp(r->items[order[i - 1]].path, r->items[order[i]].path) == 0) {
            err_set(err, ERR_INVALID, 0, "%.200s is there twice", r->items[order[i]].path);
            goto out;
        }
    if (apply_behind(r, order, changes, count, err) < 0 ||
        apply_directories(u, r, order, count, err) < 0 ||
        apply_parents(u, r, order, count, err) < 0)
        goto out;
    rc = 0;
    for (size_t i = 0; i < count; i++)
        if (r->items[i].outcome == UNDO_CONFLICT || r->items[i].outcome == UNDO_REFUSED)
            rc = 1;
out:
    free(order);
    return rc;
}
