/* The part of sync_plan.h that is about changes, and about what is remembered. */
#include <string.h>

#include "sync_plan.h"

/* Is it something that was there, and has it changed as far as can be told without contents? */
static enum sync_change sync_plan_compare(const struct sync_node *n) {
    const struct sync_row *row = n->row;
    const struct sync_seen *seen = n->seen;
    bool was = row != NULL && row->kind != FILEOP_NONE;
    if (!was)
        return seen != NULL ? SYNC_CREATED : SYNC_NO_CHANGE;
    if (seen == NULL)
        return SYNC_DELETED;
    if (seen->same)
        return SYNC_NO_CHANGE;
    if (row->kind != seen->kind || (row->kind != FILEOP_SYMLINK && row->mode != seen->mode))
        return SYNC_MODIFIED;
    if (row->kind == FILEOP_SYMLINK)
        return row->target_len == seen->target_len &&
                       memcmp(row->target, seen->target, row->target_len) == 0
                   ? SYNC_NO_CHANGE
                   : SYNC_MODIFIED;
    if (row->kind != FILEOP_FILE)
        return SYNC_NO_CHANGE;
    if (row->has_sha256 && n->sha256 != NULL)
        return memcmp(row->sha256, n->sha256, SYNC_SHA256_SIZE) == 0 ? SYNC_NO_CHANGE
                                                                     : SYNC_MODIFIED;
    /* Contents that nobody looked at: the stamp has to do. With a hash, it remains to be seen. */
    if (!row->has_sha256 && sync_stamp_equal(&row->stamp, &n->stamp))
        return SYNC_NO_CHANGE;
    return SYNC_MODIFIED;
}

void sync_plan_changes(struct sync_plan *p) {
    const struct sync_seen *unread = NULL;
    for (size_t i = 0; i < p->count; i++) {
        struct sync_node *n = &p->nodes[i];
        n->change = (uint8_t)sync_plan_compare(n);
        n->todo = SYNC_KEEP;
        if (n->seen != NULL && n->seen->unread)
            unread = n->seen;
        /* What cannot be seen need not be gone. */
        if (n->change == SYNC_DELETED && unread != NULL &&
            sync_path_below(n->row->path, n->row->path_len, unread->path, unread->path_len))
            n->change = SYNC_NO_CHANGE;
        if (n->change == SYNC_CREATED || n->change == SYNC_MODIFIED)
            n->todo = n->seen->kind == FILEOP_FILE && n->sha256 == NULL ? SYNC_HASH : SYNC_KEEP;
    }
}

bool sync_plan_split(struct sync_plan *p) {
    size_t first = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct sync_node *n = &p->nodes[i];
        first += n->todo == SYNC_HASH && n->row != NULL && n->row->has_sha256 &&
                 n->row->size == n->seen->size;
    }
    for (size_t i = 0; i < p->count && first > 0; i++) {
        struct sync_node *n = &p->nodes[i];
        if (n->todo == SYNC_HASH &&
            (n->row == NULL || !n->row->has_sha256 || n->row->size != n->seen->size))
            n->todo = SYNC_LATER;
    }
    return first > 0;
}

void sync_plan_rejoin(struct sync_plan *p) {
    for (size_t i = 0; i < p->count; i++) {
        struct sync_node *n = &p->nodes[i];
        if (n->todo == SYNC_LATER) {
            n->todo = SYNC_HASH;
        } else if (n->todo == SYNC_HASH && n->sha256 != NULL) {
            n->change = (uint8_t)sync_plan_compare(n);
            n->todo = SYNC_KEEP;
        }
    }
}

void sync_plan_settle_changes(struct sync_plan *p) {
    for (size_t i = 0; i < p->count; i++) {
        struct sync_node *n = &p->nodes[i];
        if (n->todo == SYNC_HASH && n->failed == FILEOP_NOT_FOUND)
            /* It went while we looked. */
            n->change =
                n->row != NULL && n->row->kind != FILEOP_NONE ? SYNC_DELETED : SYNC_NO_CHANGE;
        else if (n->todo == SYNC_HASH && n->failed == FILEOP_OK)
            n->change = (uint8_t)sync_plan_compare(n);
        n->todo = SYNC_KEEP;
        p->created += n->change == SYNC_CREATED;
        p->modified += n->change == SYNC_MODIFIED;
        p->deleted += n->change == SYNC_DELETED;
    }
}

/* What is remembered. */

/* The file that is there has these contents. */
static void sync_plan_now(struct sync_row *row, const struct sync_node *n,
                          const unsigned char *sha256, int64_t fresh) {
    row->stamp = n->stamp;
    row->known = n->stamped && sha256 != NULL && n->stamp.ctime_ns < fresh;
    if (row->known)
        memcpy(row->now_sha256, sha256, SYNC_SHA256_SIZE);
}

static void sync_plan_row_wanted(struct sync_row *row, const struct sync_node *n, int64_t fresh) {
    const struct sync_entry *want = n->want;
    row->kind = want->kind;
    row->target = want->target;
    row->target_len = want->target_len;
    row->mode = want->kind == FILEOP_SYMLINK ? 0 : sync_node_mode(n);
    if (want->kind == FILEOP_DIRECTORY && n->stamped)
        row->stamp = n->stamp;
    if (want->kind != FILEOP_FILE)
        return;
    row->size = want->size;
    row->has_sha256 = true;
    memcpy(row->sha256, want->sha256, SYNC_SHA256_SIZE);
    sync_plan_now(row, n, want->sha256, fresh);
}

/* It was there before, and the sync left it alone. */
static void sync_plan_row_kept(struct sync_row *row, const struct sync_node *n, int64_t fresh) {
    const struct sync_seen *seen = n->seen;
    row->kind = seen->kind;
    row->target = seen->target;
    row->target_len = seen->target_len;
    row->mode = seen->mode;
    if (seen->kind == FILEOP_DIRECTORY)
        row->stamp = n->stamp;
    if (seen->kind != FILEOP_FILE)
        return;
    row->size = seen->size;
    row->has_sha256 = n->sha256 != NULL;
    if (row->has_sha256)
        memcpy(row->sha256, n->sha256, SYNC_SHA256_SIZE);
    sync_plan_now(row, n, n->sha256, fresh);
}

static bool sync_plan_row_stays(const struct sync_node *n) {
    const struct sync_row *row = n->row;
    const struct sync_seen *seen = n->seen;
    if (row == NULL || seen == NULL || row->kind != seen->kind)
        return false;
    switch (row->kind) {
    case FILEOP_FILE:
        return row->mode == seen->mode && row->has_sha256 && n->sha256 == row->now_sha256 &&
               memcmp(row->sha256, row->now_sha256, SYNC_SHA256_SIZE) == 0;
    case FILEOP_DIRECTORY:
        return row->mode == seen->mode && row->stamp.inode == seen->inode;
    case FILEOP_SYMLINK:
        return row->target_len == seen->target_len &&
               memcmp(row->target, seen->target, row->target_len) == 0;
    default:
        return true;
    }
}

bool sync_plan_is_known(const struct sync_plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (!sync_plan_row_stays(&p->nodes[i]))
            return false;
    return sync_plan_is_idle(p);
}

int sync_plan_applied(const struct sync_plan *p, int64_t fresh, struct sync_index *out,
                      struct err *err) {
    for (size_t i = 0; i < p->count; i++) {
        const struct sync_node *n = &p->nodes[i];
        struct sync_row row = {.target = ""};
        size_t len;
        if (n->todo == SYNC_DROP || n->todo == SYNC_COVERED || (n->want == NULL && n->seen == NULL))
            continue;
        row.path = sync_node_path(n, &len);
        row.path_len = (uint32_t)len;
        row.loose = p->layered && !(n->row != NULL && n->row->kind != FILEOP_NONE &&
                                    (p->tight || !n->row->loose));
        if (n->want != NULL)
            sync_plan_row_wanted(&row, n, fresh);
        else
            sync_plan_row_kept(&row, n, fresh);
        if (sync_index_add(out, &row, err) < 0)
            return -1;
    }
    out->applied = true;
    return 0;
}

int sync_plan_learned(const struct sync_plan *p, int64_t fresh, struct sync_index *out,
                      struct err *err) {
    for (size_t i = 0; i < p->count; i++) {
        const struct sync_node *n = &p->nodes[i];
        bool was = n->row != NULL && n->row->kind != FILEOP_NONE;
        bool file = n->seen != NULL && n->seen->kind == FILEOP_FILE && n->sha256 != NULL;
        struct sync_row row = {.target = ""};
        size_t len;
        if (!was && !file)
            continue;
        if (was)
            row = *n->row;
        row.path = sync_node_path(n, &len);
        row.path_len = (uint32_t)len;
        /* The stamp of a file whose contents were not looked at is what it is told changed by. */
        if (file && n->stamped && !(was && row.kind == FILEOP_FILE && !row.has_sha256))
            sync_plan_now(&row, n, n->sha256, fresh);
        if (sync_index_add(out, &row, err) < 0)
            return -1;
    }
    return 0;
}
