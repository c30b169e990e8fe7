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
    size_t deletions, done; /* so far; entries */
};

static struct undo_record *undo_back_find(const struct undo_records *all, const char *id) {
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i]->id, id) == 0)
            return all->list[i];
    return NULL;
}

/* `path` itself, or what is below it; NULL covers everything. */
static bool undo_back_covers(const char *path, const char *item) {
    size_t n = path != NULL ? strlen(path) : 0;

    return path == NULL || (strncmp(path, item, n) == 0 && (item[n] == '\0' || item[n] == '/'));
}

static bool undo_back_touches(const struct undo_record *r, const char *path) {
    for (size_t i = 0; i < r->count; i++)
        if (undo_back_covers(path, r->items[i].path))
            return true;
    return path == NULL;
}

/* Is it undone, or, with a path, undone there? The last word counts. */
static bool undo_back_undone(const struct undo_records *all, const struct undo_record *r,
                             const char *path) {
    bool undone = r->undone;

    for (size_t i = 0; path != NULL && i < all->count; i++)
        if (strcmp(all->list[i]->of, r->id) == 0 && undo_back_touches(all->list[i], path))
            undone = !all->list[i]->redo;
    return undone;
}

/* The newest that is not undone, or the one that was undone last. */
static struct undo_record *undo_back_pick(const struct undo_records *all, const char *path,
                                          bool redo) {
    for (size_t i = all->count; i-- > 0;) {
        struct undo_record *r = all->list[i];

        if (redo && r->of[0] != '\0' && !r->redo && (path != NULL || !r->partly))
            r = undo_back_find(all, r->of);
        else if (redo || r->of[0] != '\0')
            continue;
        if (r != NULL && undo_back_touches(r, path) && undo_back_undone(all, r, path) == redo)
            return r;
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

        if (!undo_back_covers(path, item->path))
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

static bool undo_back_goes(const struct undo_item *item) {
    return item->outcome == UNDO_APPLIED && item->after.s.type == UNDO_ABSENT;
}

static int undo_back_deletions(struct undo_back *b, const struct undo_record *r, size_t count,
                               struct err *err) {
    const struct undo_choice *c = b->choice;
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += undo_back_goes(&r->items[i]);
    b->deletions += n;
    if (n == 0 || b->deletions <= UNDO_DELETIONS_MAX)
        return 0;
    for (size_t i = 0; c->removes != NULL && i < count; i++)
        if (undo_back_goes(&r->items[i]))
            c->removes(c->arg, r->items[i].path);
    if (c->confirm != NULL && c->confirm(c->arg, n))
        return 0;
    return err_set(err, ERR_STATE, 0,
                   "%s would remove %zu files and directories, and nobody agreed", r->of, n);
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

static void undo_back_tell(const struct undo_back *b, const struct undo_record *r, size_t count) {
    for (size_t i = 0; b->choice->told != NULL && i < count; i++)
        b->choice->told(b->choice->arg, r->items[i].path, r->items[i].outcome);
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
    if (r == NULL)
        goto out;
    snprintf(r->of, sizeof(r->of), "%s", from->id);
    r->redo = b->redo;
    r->partly = b->choice->path != NULL;
    if (apply_plan(b->u, r, changes, count, err) >= 0 &&
        undo_back_times(r, from, b->redo, err) == 0 && undo_back_deletions(b, r, count, err) == 0) {
        struct undo_result one = {.applied = 0};

        apply_count(r, count, &one);
        /* Also when nothing was left to do: it counts as undone from then on. */
        rc = one.applied + one.same > 0 ? apply_record(b->u, r, err) : 0;
        if (rc == 0 && one.applied + one.same > 0) {
            b->u->next++;
            b->done++;
            memcpy(b->result->id, r->id, sizeof(r->id));
        }
        if (rc == 0)
            rc = undo_back_add(b->result, r, count, err);
        if (rc == 0)
            undo_back_tell(b, r, count);
    }
out:
    undo_record_free(r);
    free(changes);
    return rc;
}

/* The entries between the newest (or, for redo, the oldest) and the one that was chosen; NULL = all
 * of them. Each expects what is there to be what the one before it left. */
static int undo_back_until(struct undo_back *b, const struct undo_records *all,
                           const struct undo_record *last, struct err *err) {
    const char *path = b->choice->path;

    for (size_t i = 0; i < all->count; i++) {
        const struct undo_record *r = all->list[b->redo ? i : all->count - 1 - i];

        if (r == last)
            break;
        if (r->of[0] == '\0' && undo_back_touches(r, path) &&
            undo_back_undone(all, r, path) == b->redo && undo_back_one(b, r, err) < 0)
            return -1;
    }
    return last != NULL ? undo_back_one(b, last, err) : 0;
}

static int undo_back_chosen(struct undo_back *b, const struct undo_records *all, struct err *err) {
    const struct undo_choice *c = b->choice;
    const struct undo_record *first =
        c->id != NULL ? undo_back_find(all, c->id) : undo_back_pick(all, c->path, b->redo);

    if (first == NULL && c->id != NULL)
        return err_set(err, ERR_INVALID, 0, "there is no entry %.40s; pinfold log shows them",
                       c->id);
    if (first == NULL)
        return err_set(err, ERR_STATE, 0, "there is nothing to %s%s%.200s",
                       b->redo ? "redo" : "undo", c->path != NULL ? " of " : "",
                       c->path != NULL ? c->path : "");
    if (c->path == NULL && first->of[0] == '\0' && first->undone != b->redo)
        return err_set(err, ERR_STATE, 0, b->redo ? "%s is not undone" : "%s is undone already",
                       first->id);
    if (c->until)
        return undo_back_until(b, all, c->id != NULL ? first : NULL, err);
    return undo_back_one(b, first, err);
}

static int undo_back(struct undo *u, const struct undo_choice *choice, bool redo,
                     struct undo_result *result, struct err *err) {
    struct undo_result sum = {.applied = 0};
    struct undo_back b = {.u = u, .choice = choice, .result = &sum, .redo = redo};
    struct undo_records all;

    if (undo_records_load(u, &all, err) < 0)
        return -1;
    int rc = undo_back_chosen(&b, &all, err);
    undo_records_done(&all);
    if (rc < 0) {
        if (b.done > 0)
            err_wrap(err, "%zu other entries were %s before this", b.done,
                     redo ? "made again" : "taken back");
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
