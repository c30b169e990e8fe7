#include "sync_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYNC_FILE_MODE 0644u
#define SYNC_DIRECTORY_MODE 0755u

/* SHA-256 of no bytes. */
static const unsigned char sync_plan_empty[SYNC_SHA256_SIZE] = {
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55};

const char *sync_node_path(const struct sync_node *n, size_t *len) {
    *len = n->want != NULL   ? n->want->path_len
           : n->seen != NULL ? n->seen->path_len
                             : n->row->path_len;
    return n->want != NULL ? n->want->path : n->seen != NULL ? n->seen->path : n->row->path;
}

/* The next of three lists, in order. */
struct sync_cursor {
    const struct sync_row *row, *row_end;
    const struct sync_seen *seen, *seen_end;
    const struct sync_entry *want, *want_end;
};

static int sync_plan_less(const char *a, size_t a_len, const char **b, size_t *b_len) {
    int order = *b != NULL ? sync_path_compare(a, a_len, *b, *b_len) : -1;
    if (order < 0) {
        *b = a;
        *b_len = a_len;
    }
    return order;
}

static bool sync_plan_next(struct sync_cursor *c, struct sync_node *n) {
    const char *path = NULL;
    size_t len = 0;
    int row = 1, seen = 1, want = 1; /* 0 or less: it is the first, or as far as the first */
    *n = (struct sync_node){0};
    if (c->row < c->row_end)
        row = sync_plan_less(c->row->path, c->row->path_len, &path, &len);
    if (c->seen < c->seen_end) {
        seen = sync_plan_less(c->seen->path, c->seen->path_len, &path, &len);
        if (seen < 0)
            row = 1;
    }
    if (c->want < c->want_end) {
        want = sync_plan_less(c->want->path, c->want->path_len, &path, &len);
        if (want < 0)
            row = seen = 1;
    }
    if (row <= 0)
        n->row = c->row++;
    if (seen <= 0)
        n->seen = c->seen++;
    if (want <= 0)
        n->want = c->want++;
    return path != NULL;
}

/* What is known without looking. */
static void sync_plan_stamp(struct sync_node *n) {
    if (n->seen == NULL || (n->seen->kind != FILEOP_FILE && n->seen->kind != FILEOP_DIRECTORY))
        return;
    if (n->seen->same) {
        n->sha256 = n->row != NULL && n->row->has_sha256 ? n->row->sha256 : NULL;
        return;
    }
    n->stamp = (struct sync_stamp){
        .size = n->seen->size, .inode = n->seen->inode, .ctime_ns = n->seen->ctime_ns};
    n->stamped = true;
    if (n->seen->kind == FILEOP_DIRECTORY)
        return;
    if (n->seen->size == 0)
        n->sha256 = sync_plan_empty;
    else if (n->row != NULL && n->row->known && sync_stamp_equal(&n->row->stamp, &n->stamp))
        n->sha256 = n->row->now_sha256;
}

int sync_plan_join(struct sync_plan *p, const struct sync_index *index,
                   const struct sync_tree *tree, const struct sync_request *want, struct err *err) {
    struct sync_cursor c = {.row = index->rows,
                            .row_end = index->rows + index->count,
                            .seen = tree->items,
                            .seen_end = tree->items + tree->count};
    size_t most = index->count + tree->count;
    memset(p, 0, sizeof(*p));
    if (want != NULL) {
        c.want = want->entries;
        c.want_end = want->entries + want->count;
        most += want->count;
    }
    p->nodes = malloc((most + 1) * sizeof(*p->nodes));
    if (p->nodes == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "comparing trees: out of memory");
    while (sync_plan_next(&c, &p->nodes[p->count]))
        sync_plan_stamp(&p->nodes[p->count++]);
    return 0;
}

void sync_plan_done(struct sync_plan *p) {
    if (p == NULL)
        return;
    free(p->nodes);
    memset(p, 0, sizeof(*p));
}

void sync_plan_hashed(struct sync_plan *p, struct sync_node *n, const unsigned char *sha256,
                      const struct sync_stamp *stamp) {
    memcpy(n->hash, sha256, SYNC_SHA256_SIZE);
    n->sha256 = n->hash;
    n->stamp = *stamp;
    n->stamped = true;
    n->failed = FILEOP_OK;
    p->learned = true;
}

void sync_plan_failed(struct sync_node *n, enum fileop_code code) {
    n->sha256 = NULL;
    n->failed = (uint8_t)code;
}

/* Sync. */

uint32_t sync_node_mode(const struct sync_node *n) {
    if (n->want->mode != SYNC_MODE_ANY)
        return n->want->mode;
    if (n->seen != NULL && n->seen->kind == n->want->kind)
        return n->seen->mode;
    return n->want->kind == FILEOP_DIRECTORY ? SYNC_DIRECTORY_MODE : SYNC_FILE_MODE;
}

static bool sync_plan_mode_fits(const struct sync_node *n) {
    return n->want->mode == SYNC_MODE_ANY || n->want->mode == n->seen->mode;
}

/* Both are files of the same size. */
static enum sync_todo sync_plan_file(const struct sync_node *n) {
    if (n->sha256 == NULL)
        return n->failed != FILEOP_OK ? SYNC_MAKE : SYNC_HASH;
    if (n->stamp.size != n->want->size || memcmp(n->sha256, n->want->sha256, SYNC_SHA256_SIZE) != 0)
        return SYNC_MAKE;
    return sync_plan_mode_fits(n) ? SYNC_SAME : SYNC_SET;
}

static enum sync_todo sync_plan_decide(const struct sync_node *n, bool delete) {
    const struct sync_seen *seen = n->seen;
    const struct sync_entry *want = n->want;
    if (want == NULL)
        return seen != NULL && delete ? SYNC_DROP : SYNC_KEEP;
    if (seen == NULL || seen->kind != want->kind)
        return SYNC_MAKE;
    if (want->kind == FILEOP_DIRECTORY)
        return sync_plan_mode_fits(n) ? SYNC_SAME : SYNC_SET;
    if (want->kind == FILEOP_SYMLINK)
        return seen->target_len == want->target_len &&
                       memcmp(seen->target, want->target, want->target_len) == 0
                   ? SYNC_SAME
                   : SYNC_MAKE;
    return seen->size == want->size ? sync_plan_file(n) : SYNC_MAKE;
}

void sync_plan_sync(struct sync_plan *p, bool delete) {
    const struct sync_seen *gone = NULL; /* a directory that goes with all that is in it */
    for (size_t i = 0; i < p->count; i++) {
        struct sync_node *n = &p->nodes[i];
        if (gone != NULL && n->seen != NULL &&
            sync_path_below(n->seen->path, n->seen->path_len, gone->path, gone->path_len)) {
            n->todo = SYNC_COVERED;
            continue;
        }
        n->todo = (uint8_t)sync_plan_decide(n, delete);
        if (n->seen != NULL && n->seen->kind == FILEOP_DIRECTORY &&
            (n->todo == SYNC_DROP || n->todo == SYNC_MAKE))
            gone = n->seen;
    }
}

static void sync_plan_count(struct sync_plan *p, const struct sync_node *n) {
    if (n->todo == SYNC_DROP || n->todo == SYNC_COVERED)
        p->deleted++;
    else if (n->want == NULL || n->want->implied)
        return;
    else if (n->todo == SYNC_SAME)
        p->unchanged++;
    else if (n->seen == NULL)
        p->created++;
    else
        p->modified++;
}

void sync_plan_settle_sync(struct sync_plan *p) {
    for (size_t i = 0; i < p->count; i++) {
        struct sync_node *n = &p->nodes[i];
        if (n->todo == SYNC_HASH)
            n->todo = (uint8_t)(n->sha256 != NULL ? sync_plan_file(n) : SYNC_MAKE);
        sync_plan_count(p, n);
    }
}

bool sync_plan_is_idle(const struct sync_plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (p->nodes[i].todo == SYNC_MAKE || p->nodes[i].todo == SYNC_SET ||
            p->nodes[i].todo == SYNC_DROP)
            return false;
    return true;
}

static int sync_plan_need_order(const void *a, const void *b) {
    const struct sync_need *x = a, *y = b;
    int order = memcmp(x->sha256, y->sha256, SYNC_SHA256_SIZE);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

static int sync_plan_need_error(struct api_error *error, uint32_t index, const char *text) {
    char field[API_ERROR_FIELD_MAX];
    (void)snprintf(field, sizeof(field), "/entries/%u/size", index);
    return api_error_set(error, 400, "invalid_value", field, "entries[%u].size %s", index, text);
}

int sync_plan_needs(const struct sync_plan *p, struct sync_need **needs, size_t *count,
                    struct api_error *error) {
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < p->count; i++)
        n += p->nodes[i].todo == SYNC_MAKE && p->nodes[i].want->kind == FILEOP_FILE;
    struct sync_need *all = malloc((n + 1) * sizeof(*all));
    if (all == NULL)
        return api_error_memory(error);
    n = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct sync_entry *want = p->nodes[i].want;
        if (p->nodes[i].todo != SYNC_MAKE || want->kind != FILEOP_FILE)
            continue;
        bool empty = memcmp(want->sha256, sync_plan_empty, SYNC_SHA256_SIZE) == 0;
        if (empty != (want->size == 0)) {
            free(all);
            return sync_plan_need_error(error, want->index, "does not belong to this sha256.");
        }
        if (!empty)
            all[n++] = (struct sync_need){
                .sha256 = want->sha256, .size = want->size, .index = want->index};
    }
    qsort(all, n, sizeof(*all), sync_plan_need_order);
    for (size_t i = 0; i < n; i++) {
        const struct sync_need *last = kept > 0 ? &all[kept - 1] : NULL;
        if (last == NULL || memcmp(last->sha256, all[i].sha256, SYNC_SHA256_SIZE) != 0) {
            all[kept++] = all[i];
        } else if (last->size != all[i].size) {
            uint32_t index = all[i].index;
            free(all);
            return sync_plan_need_error(error, index,
                                        "is another one than that of the same sha256 elsewhere.");
        }
    }
    *needs = all;
    *count = kept;
    return 0;
}
