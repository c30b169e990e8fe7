#include "sync_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "sync_request.h"

#define SYNC_TREE_FIRST 256u

void sync_tree_init(struct sync_tree *t) {
    memset(t, 0, sizeof(*t));
    sync_text_init(&t->text, SYNC_TREE_TEXT);
}

void sync_tree_done(struct sync_tree *t) {
    if (t == NULL)
        return;
    free(t->items);
    sync_text_done(&t->text);
    t->items = NULL;
    t->count = t->alloc = 0;
}

static int sync_tree_room(struct sync_tree *t, struct err *err) {
    if (t->count < t->alloc)
        return 0;
    if (t->count == SYNC_TREE_MAX)
        return err_set(err, ERR_LIMIT, 0, "there are more than %u files and directories in it",
                       SYNC_TREE_MAX);
    size_t more = t->alloc == 0 ? SYNC_TREE_FIRST : t->alloc * 2;
    struct sync_seen *grown = realloc(t->items, more * sizeof(*grown));
    if (grown == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading a tree: out of memory");
    t->items = grown;
    t->alloc = more;
    return 0;
}

int sync_tree_add(struct sync_tree *t, const struct fileop_record *rec, const char *path,
                  const char *target, struct err *err) {
    if (rec->path_len == 0)
        return 0;
    if (!bundle_path_ok(path, rec->path_len) || rec->target_len > FILEOP_TARGET_MAX ||
        rec->kind <= FILEOP_NONE || rec->kind >= FILEOP_KINDS || rec->kind == FILEOP_HARDLINK)
        return err_plain(err, ERR_PROTOCOL, 0, "a tree has an entry that cannot be");
    if (sync_tree_room(t, err) < 0)
        return -1;
    struct sync_seen seen = {.size = rec->kind == FILEOP_FILE ? rec->size : 0,
                             .inode = rec->inode,
                             .ctime_ns = rec->ctime_ns,
                             .path_len = rec->path_len,
                             .target_len = rec->kind == FILEOP_SYMLINK ? rec->target_len : 0,
                             .mode = rec->mode & 0777,
                             .kind = (uint8_t)rec->kind,
                             .opaque = (rec->flags & FILEOP_OPAQUE) != 0};
    seen.path = sync_text_add(&t->text, path, rec->path_len, err);
    seen.target = seen.path != NULL ? sync_text_add(&t->text, target, seen.target_len, err) : NULL;
    if (seen.target == NULL)
        return -1;
    t->items[t->count++] = seen;
    return 0;
}

void sync_tree_unread(struct sync_tree *t, const char *path, size_t path_len) {
    /* Errors come right behind what they are about, or behind what is in it. */
    for (size_t i = t->count; i-- > 0;) {
        struct sync_seen *seen = &t->items[i];
        if (seen->path_len == path_len && memcmp(seen->path, path, path_len) == 0) {
            seen->unread = seen->kind == FILEOP_DIRECTORY;
            return;
        }
        if (!sync_path_below(seen->path, seen->path_len, path, path_len))
            return;
    }
}

static int sync_tree_compare(const struct sync_seen *x, const struct sync_seen *y) {
    return sync_path_compare(x->path, x->path_len, y->path, y->path_len);
}

static int sync_tree_order(const void *a, const void *b) {
    return sync_tree_compare(a, b);
}

int sync_tree_finish(struct sync_tree *t, struct err *err) {
    bool sorted = true;
    for (size_t i = 1; i < t->count && sorted; i++)
        sorted = sync_tree_compare(&t->items[i - 1], &t->items[i]) < 0;
    if (!sorted)
        qsort(t->items, t->count, sizeof(*t->items), sync_tree_order);
    for (size_t i = 1; i < t->count; i++) {
        const struct sync_seen *a = &t->items[i - 1], *b = &t->items[i];
        if ((!sorted && sync_tree_compare(a, b) == 0) ||
            (a->kind != FILEOP_DIRECTORY &&
             sync_path_below(b->path, b->path_len, a->path, a->path_len)))
            return err_plain(err, ERR_PROTOCOL, 0, "what was told of a tree is not one");
    }
    return 0;
}
