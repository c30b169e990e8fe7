/* The one function that changes a workspace, and the way back from its middle. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "undo_internal.h"

#define APPLY_TEMP_SIZE 64
#define APPLY_COLLECT_EVERY 32u /* entries */

static void apply_temp(const struct undo_record *r, size_t i, char temp[APPLY_TEMP_SIZE]) {
    snprintf(temp, APPLY_TEMP_SIZE, ".pinfold-%s-%zu", r->id, i);
}

/* What is there must go before the new thing can come: rename(2) replaces only like by like. */
static bool apply_goes(const struct undo_state *from, const struct undo_state *to) {
    if (from->type == UNDO_ABSENT)
        return false;
    return to->type == UNDO_ABSENT || (from->type == UNDO_DIR) != (to->type == UNDO_DIR);
}

/* Brings one path to `to`; `from` is what it is now. */
static int apply_place(struct undo *u, const struct undo_record *r, size_t i,
                       const struct undo_image *to, struct err *err) {
    const struct undo_item *item = &r->items[i];
    struct undo_source from = {.fd = item->fd, .offset = item->offset};
    struct undo_image open = *to;
    char temp[APPLY_TEMP_SIZE];
    fd_cleanup int blob = -1;

    if (to->s.type == UNDO_FILE && (to == &item->before || item->fd < 0)) {
        blob = undo_blob_open(u, to->s.sha256, &from.offset, err);
        if (blob < 0)
            return -1;
        from.fd = blob;
    }
    /* Until its files are in it. */
    if (to->s.type == UNDO_DIR)
        open.s.mode |= 0700;
    apply_temp(r, i, temp);
    return undo_tree_place(u, item->path, &open, &from, temp, err);
}

static int apply_modes(struct undo *u, const struct undo_record *r, const size_t *order,
                       bool forward, struct err *err) {
    for (size_t k = r->count; k-- > 0;) {
        const struct undo_item *item = &r->items[order[k]];
        const struct undo_image *to = forward ? &item->after : &item->before;

        if (item->outcome == UNDO_APPLIED && to->s.type == UNDO_DIR &&
            undo_tree_mode(u->root, item->path, to, err) < 0 && forward)
            return -1;
        /* On the way back, a directory that somebody else has replaced stays as it is. */
    }
    return 0;
}

static int apply_sync(struct undo *u, const struct undo_record *r, const size_t *order,
                      struct err *err) {
    const char *last = NULL;
    size_t last_len = 0;

    for (size_t k = 0; k < r->count; k++) {
        const char *path = r->items[order[k]].path, *slash = strrchr(path, '/');
        size_t len = slash != NULL ? (size_t)(slash - path) : 0;

        if (r->items[order[k]].outcome != UNDO_APPLIED ||
            (last != NULL && len == last_len && memcmp(last, path, len) == 0))
            continue;
        if (undo_tree_sync_parent(u->root, path, err) < 0)
            return -1;
        last = path;
        last_len = len;
    }
    return 0;
}

static int apply_forward(struct undo *u, const struct undo_record *r, const size_t *order,
                         struct err *err) {
    for (size_t k = r->count; k-- > 0;) {
        const struct undo_item *item = &r->items[order[k]];

        if (item->outcome == UNDO_APPLIED && apply_goes(&item->before.s, &item->after.s) &&
            undo_tree_remove(u->root, item->path, item->before.s.type, err) < 0)
            return -1;
    }
    for (size_t k = 0; k < r->count; k++) {
        const struct undo_item *item = &r->items[order[k]];
        int rc = 0;

        if (item->outcome != UNDO_APPLIED || item->after.s.type == UNDO_ABSENT)
            continue;
        if (item->mode_only)
            rc = undo_tree_mode(u->root, item->path, &item->after, err);
        else if (item->after.s.type != UNDO_DIR || item->before.s.type != UNDO_DIR)
            rc = apply_place(u, r, order[k], &item->after, err);
        if (rc < 0)
            return -1;
    }
    /* Before the modes: a directory may become one that nothing can be put into. */
    return undo_batch_flush(u, err) < 0 || apply_modes(u, r, order, true, err) < 0
               ? -1
               : apply_sync(u, r, order, err);
}

/* ---- back ---- */

static void apply_drop_temp(struct undo *u, const struct undo_record *r, size_t i) {
    const char *name;
    char temp[APPLY_TEMP_SIZE];
    fd_cleanup int dir = undo_tree_parent(u->root, r->items[i].path, &name);

    apply_temp(r, i, temp);
    if (dir >= 0)
        unlinkat(dir, temp, 0);
}

/* Is what is there ours to take back? What is neither before nor after, somebody else has made. */
static int apply_is_ours(struct undo *u, const struct undo_item *item, bool *ours,
                         struct undo_image *now, struct err *err) {
    int rc = undo_tree_look(u->root, item->path, u, now, err);

    if (rc < 0)
        return -1;
    *ours = rc == 0 && !undo_tree_same(&now->s, &item->before.s) &&
            (undo_tree_same(&now->s, &item->after.s) || now->s.type == UNDO_ABSENT ||
             (now->s.type == UNDO_DIR && item->after.s.type == UNDO_DIR));
    return 0;
}

static int apply_back(struct undo *u, const struct undo_record *r, const size_t *order,
                      struct err *err) {
    undo_batch_drop(u);
    for (size_t k = r->count; k-- > 0;) {
        const struct undo_item *item = &r->items[order[k]];
        struct undo_image now;
        bool ours = false;

        if (item->outcome != UNDO_APPLIED)
            continue;
        apply_drop_temp(u, r, order[k]);
        if (apply_is_ours(u, item, &ours, &now, err) < 0)
            return -1;
        /* A directory that somebody has put something into stays. */
        if (ours && apply_goes(&now.s, &item->before.s) &&
            undo_tree_remove(u->root, item->path, now.s.type, err) < 0 && errno != ENOTEMPTY) {
            undo_image_done(&now);
            return -1;
        }
        undo_image_done(&now);
    }
    for (size_t k = 0; k < r->count; k++) {
        const struct undo_item *item = &r->items[order[k]];
        struct undo_image now;
        bool ours = false;
        int rc = 0;

        if (item->outcome != UNDO_APPLIED || item->before.s.type == UNDO_ABSENT)
            continue;
        if (apply_is_ours(u, item, &ours, &now, err) < 0)
            return -1;
        if (ours && item->mode_only)
            rc = undo_tree_mode(u->root, item->path, &item->before, err);
        else if (ours && (item->before.s.type != UNDO_DIR || now.s.type != UNDO_DIR))
            rc = apply_place(u, r, order[k], &item->before, err);
        undo_image_done(&now);
        if (rc < 0)
            return -1;
    }
    return undo_batch_flush(u, err) < 0 || apply_modes(u, r, order, false, err) < 0
               ? -1
               : apply_sync(u, r, order, err);
}

int apply_rollback(struct undo *u, struct undo_record *r, struct err *err) {
    size_t *order = apply_plan_order(r, err);
    int rc = order == NULL ? -1 : apply_back(u, r, order, err);

    free(order);
    return rc < 0 ? -1 : undo_record_drop(u, r, err);
}

int apply_record(struct undo *u, struct undo_record *r, struct err *err) {
    size_t *order = apply_plan_order(r, err);
    struct err late = {0};
    int rc;

    if (order == NULL)
        return -1;
    rc = undo_record_begin(u, r, err);
    if (rc == 0) {
        rc = apply_forward(u, r, order, err);
        if (rc == 0)
            rc = undo_record_commit(u, r, err);
        else if (apply_rollback(u, r, &late) < 0)
            err_wrap(err, "and what was done could not be taken back (%.150s)", late.text);
    }
    free(order);
    return rc;
}

void apply_count(const struct undo_record *r, size_t count, struct undo_result *result) {
    for (size_t i = 0; i < count; i++) {
        enum undo_outcome o = r->items[i].outcome;

        result->applied += o == UNDO_APPLIED;
        result->same += o == UNDO_SAME;
        result->conflicts += o == UNDO_CONFLICT;
        result->refused += o == UNDO_REFUSED;
        result->shared +=
            o == UNDO_APPLIED && r->items[i].before.shared && r->items[i].after.s.type == UNDO_FILE;
        if (result->outcomes != NULL)
            result->outcomes[i] = o;
    }
}

/* ---- the set ---- */

static int apply_deletions(const struct undo_set *set, const struct undo_record *r,
                           struct err *err) {
    size_t n = 0;

    for (size_t i = 0; i < set->count; i++)
        n += r->items[i].outcome == UNDO_APPLIED && r->items[i].after.s.type == UNDO_ABSENT;
    if (set->deletions_max == 0 || n <= set->deletions_max)
        return 0;
    if (set->confirm != NULL && set->confirm(set->arg, n))
        return 0;
    return err_set(err, ERR_STATE, 0,
                   "it would remove %zu files and directories, more than %zu, and nobody agreed", n,
                   set->deletions_max);
}

int apply_changeset(struct undo *u, const struct undo_set *set, struct undo_result *result,
                    struct err *err) {
    struct undo_record *r;
    struct undo_result out = {.applied = 0};
    int rc, planned = -1;

    if (set->count > UNDO_CHANGES_MAX)
        return err_set(err, ERR_LIMIT, 0, "more than %u changes at once", UNDO_CHANGES_MAX);
    r = undo_record_new(u, set->label, set->by, set->session, err);
    if (r != NULL && set->rules != NULL && (r->rules = strdup(set->rules)) == NULL) {
        undo_record_free(r);
        r = NULL;
    }
    out.outcomes = calloc(set->count + 1, sizeof(*out.outcomes));
    if (r == NULL || out.outcomes == NULL) {
        undo_record_free(r);
        free(out.outcomes);
        return err_set(err, ERR_LIMIT, 0, "no memory for the changes");
    }
    planned = apply_plan(u, r, set->changes, set->count, err);
    rc = planned < 0 ? -1 : 0;
    if (rc == 0)
        apply_count(r, set->count, &out);
    if (planned == 1 && !set->partial)
        out.applied = 0;
    if (rc == 0 && out.applied > 0) {
        rc = apply_deletions(set, r, err) < 0 || apply_record(u, r, err) < 0 ? -1 : 0;
        memcpy(out.id, r->id, sizeof(out.id));
        u->next += rc == 0;
    }
    undo_record_free(r);
    /* Contents of what is not changed after all. */
    undo_batch_drop(u);
    if (rc < 0) {
        free(out.outcomes);
        return -1;
    }
    /* Old entries go now and then. What cannot be removed today is removed another time. */
    if (out.applied > 0 && u->next % APPLY_COLLECT_EVERY == 0)
        (void)undo_collect(u, NULL, NULL);
    *result = out;
    return 0;
}
