/* Undo and redo: an entry's images, the other way round, as an entry of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "undo_internal.h"

/* As more than this many deletions, undo asks. */
#define UNDO_DELETIONS_MAX 100u

struct undo_back {
    struct undo *u;
    const struct undo_choice *choice;
    struct undo_result *result; /* summed up */
    bool redo;
};

static struct undo_record *undo_back_find(const struct undo_records *all, const char *id) {
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i]->id, id) == 0)
            return all->list[i];
    return NULL;
}

/* The newest that is not undone, or the one that was undone last. */
static struct undo_record *undo_back_pick(const struct undo_records *all, bool redo) {
    for (size_t i = all->count; i-- > 0;) {
        struct undo_record *r = all->list[i];

        if (!redo && r->of[0] == '\0' && !r->undone)
            return r;
        if (redo && r->of[0] != '\0' && !r->redo && !r->partly) {
            struct undo_record *of = undo_back_find(all, r->of);

            if (of != NULL && of->undone)
                return of;
        }
    }
    return NULL;
}

/* The changes that take `from` back (or make it again); only `path` when it is not NULL. */
static struct undo_change *undo_back_changes(const struct undo_record *from, const char *path,
                                             bool redo, size_t *count, struct err *err) {
    struct undo_change *list = calloc(from->count + 1, sizeof(*list));

    *count = 0;
    if (list == NULL) {
        err_set(err, ERR_LIMIT, 0, "no memory for the changes");
        return NULL;
    }
    for (size_t i = 0; i < from->count; i++) {
        const struct undo_item *item = &from->items[i];

        if (path != NULL && strcmp(path, item->path) != 0)
            continue;
        list[(*count)++] = (struct undo_change){
            .path = item->path,
            .after = redo ? item->after.s : item->before.s,
            .before = redo ? item->before.s : item->after.s,
            .fd = item->mode_only ? -1 : UNDO_FD_BLOB,
        };
    }
    return list;
}

/* Times and attributes come back as well. */
static int undo_back_times(struct undo_record *r, const struct undo_record *from, bool redo,
                           struct err *err) {
    for (size_t i = 0, k = 0; i < r->count && k < from->count; k++) {
        const struct undo_image *image = redo ? &from->items[k].after : &from->items[k].before;

        if (strcmp(r->items[i].path, from->items[k].path) != 0)
            continue;
        r->items[i].after.mtime_ns = image->mtime_ns;
        if (image->xattrs != NULL) {
            free(r->items[i].after.xattrs);
            r->items[i].after.xattrs = strdup(image->xattrs);
            if (r->items[i].after.xattrs == NULL)
                return err_set(err, ERR_LIMIT, 0, "no memory for the changes");
        }
        i++;
    }
    return 0;
}

static int undo_back_deletions(const struct undo_back *b, const struct undo_record *r, size_t count,
                               struct err *err) {
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += r->items[i].outcome == UNDO_APPLIED && r->items[i].after.s.type == UNDO_ABSENT;
    if (n <= UNDO_DELETIONS_MAX ||
        (b->choice->confirm != NULL && b->choice->confirm(b->choice->arg, n)))
        return 0;
    return err_set(err, ERR_STATE, 0,
                   "it would remove %zu files and directories, and nobody agreed", n);
}

static int undo_back_add(struct undo_result *sum, const struct undo_record *r, size_t count,
                         struct err *err) {
    size_t before = sum->applied + sum->same + sum->conflicts + sum->refused;
    enum undo_outcome *more =
        reallocarray(sum->outcomes, before + count + 1, sizeof(*sum->outcomes));
    struct undo_result one = {.applied = 0};

    if (more == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for the changes");
    sum->outcomes = more;
    one.outcomes = more + before;
    apply_count(r, count, &one);
    sum->applied += one.applied;
    sum->same += one.same;
    sum->conflicts += one.conflicts;
    sum->refused += one.refused;
    return 0;
}

/* One entry back or again. */
static int undo_back_one(struct undo_back *b, const struct undo_record *from, struct err *err) {
    size_t count;
    struct undo_change *changes = undo_back_changes(from, b->choice->path, b->redo, &count, err);
    struct undo_record *r = NULL;
    char label[UNDO_LABEL_MAX];
    int rc = -1;

    if (changes == NULL)
        return -1;
    if (count == 0) {
        free(changes);
        return err_set(err, ERR_INVALID, 0, "%s did not touch %.200s", from->id, b->choice->path);
    }
    snprintf(label, sizeof(label), "%s %s: %s", b->redo ? "redo" : "undo", from->id,
             from->label != NULL ? from->label : "");
    r = undo_record_new(b->u, label, b->redo ? "redo" : "undo", from->session, err);
    if (r != NULL && apply_plan(b->u, r, changes, count, err) >= 0 &&
        undo_back_times(r, from, b->redo, err) == 0 && undo_back_deletions(b, r, count, err) == 0) {
        struct undo_result one = {.applied = 0};

        apply_count(r, count, &one);
        snprintf(r->of, sizeof(r->of), "%s", from->id);
        r->redo = b->redo;
        r->partly = b->choice->path != NULL;
        /* Also when nothing was left to do: it counts as undone from then on. */
        rc = one.applied + one.same > 0 ? apply_record(b->u, r, err) : 0;
        if (rc == 0 && one.applied + one.same > 0) {
            b->u->next++;
            memcpy(b->result->id, r->id, sizeof(r->id));
        }
        if (rc == 0)
            rc = undo_back_add(b->result, r, count, err);
    }
    undo_record_free(r);
    free(changes);
    return rc;
}

static int undo_back(struct undo *u, const struct undo_choice *choice, bool redo,
                     struct undo_result *result, struct err *err) {
    struct undo_result sum = {.applied = 0};
    struct undo_back b = {.u = u, .choice = choice, .result = &sum, .redo = redo};
    struct undo_records all;
    const struct undo_record *first;
    int rc = 0;

    if (undo_records_load(u, &all, err) < 0)
        return -1;
    first = choice->id != NULL ? undo_back_find(&all, choice->id) : undo_back_pick(&all, redo);
    if (first == NULL)
        rc = choice->id != NULL
                 ? err_set(err, ERR_INVALID, 0, "there is no entry %.40s", choice->id)
                 : err_set(err, ERR_STATE, 0, "there is nothing to %s", redo ? "redo" : "undo");
    else if (choice->path == NULL && first->of[0] == '\0' && first->undone != redo)
        rc = err_set(err, ERR_STATE, 0, redo ? "%s is not undone" : "%s is undone already",
                     first->id);
    /* Later ones first: each expects what is there to be what it left. */
    for (size_t i = all.count; rc == 0 && choice->until && !redo && i-- > 0;) {
        if (all.list[i] == first)
            break;
        if (all.list[i]->of[0] == '\0' && !all.list[i]->undone)
            rc = undo_back_one(&b, all.list[i], err);
    }
    if (rc == 0)
        rc = undo_back_one(&b, first, err);
    undo_records_done(&all);
    if (rc < 0) {
        free(sum.outcomes);
        return -1;
    }
    *result = sum;
    return 0;
}

int undo_undo(struct undo *u, const struct undo_choice *choice, struct undo_result *result,
              struct err *err) {
    return undo_back(u, choice, false, result, err);
}

int undo_redo(struct undo *u, const struct undo_choice *choice, struct undo_result *result,
              struct err *err) {
    return undo_back(u, choice, true, result, err);
}
