/* The stages of an operation after LOAD, in their order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fileop_status.h"
#include "receipt.h"
#include "sync_apply.h"
#include "sync_hash.h"
#include "sync_internal.h"
#include "sync_upper.h"

#define SYNC_LAYER_WAITS 50u
/* Contents that are looked for in a round of the loop: half a millisecond. */
#define SYNC_SORT_PART 1000u
#define SYNC_LAYER_WAIT_NS (2 * CLOCK_NS_PER_MS)

static void sync_failed(struct sync_op *op, const struct fileop_result *result) {
    struct err none = {0};
    if (op->error.status == 0)
        fileop_status_error(result, &op->error);
    sync_fail(op, &none);
}

/* SAVE. */

static void sync_encode(struct sync_op *op) {
    struct sync_result result = {.applied = op->applied,
                                 .missing = op->needs,
                                 .missing_count = op->need_count,
                                 .created = op->plan.created,
                                 .modified = op->plan.modified,
                                 .deleted = op->plan.deleted,
                                 .unchanged = op->plan.unchanged,
                                 .plan = &op->plan};
    op->asker.encode(op->asker.arg, &result);
}

/* As receipts name files. */
static void sync_digest(struct sync_op *op) {
    struct sync_manifest *m = &op->manifest;
    struct receipt_file *files = calloc(op->want.count + 1, sizeof(*files));
    size_t n = 0;
    for (size_t i = 0; files != NULL && i < op->want.count; i++) {
        const struct sync_entry *e = &op->want.entries[i];
        if (e->kind != FILEOP_FILE)
            continue;
        files[n] = (struct receipt_file){.path = e->path, .path_len = e->path_len, .size = e->size};
        files[n].mode = e->mode == SYNC_MODE_ANY ? 0 : e->mode & 0777u;
        memcpy(files[n].sha256, e->sha256, sizeof(files[n].sha256));
        m->bytes += e->size;
        n++;
    }
    if (files != NULL) {
        receipt_files_sort(files, n);
        receipt_files_root(files, n, m->sha256);
        m->files = n;
        m->whole = op->want.delete;
        m->known = true;
    }
    free(files);
}

static void sync_save(struct sync_op *op) {
    struct sync_index next;
    if (op->applied)
        sync_digest(op);
    op->known = op->applied && op->index.applied && sync_plan_is_known(&op->plan);
    if ((op->applied && !op->known) || op->plan.learned) {
        sync_index_init(&next);
        next.applied = op->index.applied;
        op->rc = op->applied ? sync_plan_applied(&op->plan, op->fresh, &next, &op->err)
                             : sync_plan_learned(&op->plan, op->fresh, &next, &op->err);
        if (op->rc == 0)
            op->rc = sync_index_save(&next, op->dir, op->path, &op->err);
        sync_index_done(&next);
    }
    if (op->rc == 0)
        sync_encode(op);
}

/* The file operation that did it may not have ended yet, though it has answered. */
static void sync_layer(void *arg) {
    struct sync_op *op = arg;
    if (op->part != NULL && sync_root_waits(op) && op->waits++ < SYNC_LAYER_WAITS &&
        loop_timer_at(sandbox_loop(op->part->sandbox), &op->later,
                      clock_mono_ns() + SYNC_LAYER_WAIT_NS, sync_layer, op, NULL) == 0)
        return;
    if (op->part == NULL || !sync_root_layer(op->root, op))
        sync_finish(op);
}

static void sync_saved(struct sync_op *op) {
    if (!op->applied) {
        sync_finish(op);
        return;
    }
    struct sandbox_activity now = sandbox_activity(op->part->sandbox);
    op->root->manifest = op->manifest;
    op->root->manifest.writes = now.writes;
    op->root->manifest.others =
        now.writes - op->began.writes - (op->wrote ? 1 : 0) + op->began.writing;
    sync_root_unpin(op->root);
    sync_layer(op);
}

/* APPLY. */

static void sync_applied(void *arg, const struct fileop_result *result) {
    struct sync_op *op = arg;
    if (result->code != FILEOP_OK || result->gone) {
        sync_failed(op, result);
        return;
    }
    op->applied = true;
    sync_work(op, sync_save, sync_saved);
}

static void sync_carry_out(struct sync_op *op) {
    struct sync_apply_task task = {.loop = sandbox_loop(op->part->sandbox),
                                   .sandbox = op->part->sandbox,
                                   .root = op->path,
                                   .plan = &op->plan,
                                   .blobs = op->blobs,
                                   .user = op->user,
                                   .done = sync_applied,
                                   .arg = op};
    struct err err;
    err_clear(&err);
    op->own_tasks++;
    op->wrote = true;
    if (sync_apply_start(&task, &err) == NULL)
        sync_fail(op, &err);
}

/* Pins what is needed, and sees whether it is there: what is missing goes to the front. What is
 * pinned stays as it was seen, however many rounds of the loop this takes. -1: *error. */
static int sync_sort_one(struct sync_op *op, struct api_error *error) {
    struct sync_need *need = &op->needs[op->sorted];
    uint64_t size = need->size;
    if (op->pins != NULL && op->pin_count == op->sorted &&
        blobs_pin(op->blobs, op->user, need->sha256) == 0)
        memcpy(op->pins[op->pin_count++], need->sha256, SYNC_SHA256_SIZE);
    bool have = blobs_has(op->blobs, op->user, need->sha256, &size);
    if (size != need->size) {
        char field[64];
        snprintf(field, sizeof(field), "/entries/%u/size", need->index);
        return api_error_set(error, 400, "invalid_value", field,
                             "entries[%u].size is not that of the contents with this sha256: "
                             "they have %" PRIu64 " bytes.",
                             need->index, size);
    }
    op->total += need->size;
    if (!have) {
        struct sync_need swap = op->needs[op->missing];
        op->needs[op->missing++] = *need;
        *need = swap;
    }
    op->sorted++;
    return 0;
}

static void sync_sorted(struct sync_op *op);

static void sync_sort(void *arg) {
    struct sync_op *op = arg;
    struct err none = {0};
    uint64_t quota = blobs_usage(op->blobs, op->user).quota;
    if (sandbox_state(op->part->sandbox) == SANDBOX_GONE) {
        sync_fail(op, &none);
        return;
    }
    for (unsigned i = 0; i < SYNC_SORT_PART && op->sorted < op->need_count; i++)
        if (sync_sort_one(op, &op->error) < 0) {
            sync_fail(op, &none);
            return;
        }
    if (op->sorted < op->need_count) {
        loop_defer(sandbox_loop(op->part->sandbox), &op->turn, sync_sort, op);
        return;
    }
    if (op->total > quota) {
        api_error_set(&op->error, 413, "too_large", "/entries",
                      "The contents of this sync have %" PRIu64
                      " bytes; your quota for blobs is %" PRIu64 ".",
                      op->total, quota);
        sync_fail(op, &none);
        return;
    }
    sync_root_pin(op->root, op);
    op->need_count = op->missing;
    sync_sorted(op);
}

static void sync_settled(struct sync_op *op) {
    struct err none = {0};
    if (op->error.status != 0) { /* the manifest contradicts itself */
        sync_fail(op, &none);
    } else if (op->is_sync) {
        op->pins = malloc((op->need_count + 1) * sizeof(*op->pins)); /* NULL: nothing is pinned */
        sync_sort(op);
    } else {
        sync_sorted(op);
    }
}

static void sync_sorted(struct sync_op *op) {
    if (op->is_sync && op->need_count == 0 && !sync_plan_is_idle(&op->plan)) {
        sync_carry_out(op);
        return;
    }
    op->applied = op->is_sync && op->need_count == 0;
    for (size_t i = 0; op->contents && i < op->plan.count; i++) {
        struct sync_node *n = &op->plan.nodes[i];
        if (n->change == SYNC_CREATED || n->change == SYNC_MODIFIED)
            n->absent = n->sha256 != NULL && n->seen->kind == FILEOP_FILE &&
                        !blobs_has(op->blobs, op->user, n->sha256, NULL);
    }
    sync_work(op, sync_save, sync_saved);
}

/* SETTLE. */

static void sync_settle(struct sync_op *op) {
    if (!op->is_sync) {
        sync_plan_settle_changes(&op->plan);
        return;
    }
    sync_plan_settle_sync(&op->plan);
    (void)sync_plan_needs(&op->plan, &op->needs, &op->need_count, &op->error);
}

/* HASH. */

static void sync_read(struct sync_op *op, bool keep);

static void sync_hashed(void *arg, const struct fileop_result *result) {
    struct sync_op *op = arg;
    if (result->code != FILEOP_OK || result->gone)
        sync_failed(op, result);
    else
        sync_work(op, sync_settle, sync_settled);
}

/* What is to be looked at; also contents that are known, but not there to be fetched. */
static bool sync_to_hash(struct sync_op *op) {
    bool any = false;
    for (size_t i = 0; i < op->plan.count; i++) {
        struct sync_node *n = &op->plan.nodes[i];
        if (op->contents && (n->change == SYNC_CREATED || n->change == SYNC_MODIFIED) &&
            n->seen->kind == FILEOP_FILE && n->sha256 != NULL &&
            !blobs_has(op->blobs, op->user, n->sha256, NULL))
            n->todo = SYNC_HASH;
        any = any || n->todo == SYNC_HASH;
    }
    return any;
}

static void sync_keep(struct sync_op *op) {
    if (sync_to_hash(op))
        sync_read(op, op->contents);
    else
        sync_work(op, sync_settle, sync_settled);
}

/* What was only touched is told from what was changed. */
static void sync_sorted_out(void *arg, const struct fileop_result *result) {
    struct sync_op *op = arg;
    if (result->code != FILEOP_OK || result->gone) {
        sync_failed(op, result);
        return;
    }
    sync_plan_rejoin(&op->plan);
    sync_keep(op);
}

static void sync_read(struct sync_op *op, bool keep) {
    struct sync_hash_task task = {.sandbox = op->part->sandbox,
                                  .root = op->path,
                                  .plan = &op->plan,
                                  .blobs = keep ? op->blobs : NULL,
                                  .user = op->user,
                                  .done = op->contents && !keep ? sync_sorted_out : sync_hashed,
                                  .arg = op};
    struct err err;
    err_clear(&err);
    op->own_tasks++;
    if (sync_hash_start(&task, &err) == NULL)
        sync_fail(op, &err);
}

static void sync_planned(struct sync_op *op) {
    if (op->rescan) {
        sync_tree_done(&op->tree);
        sync_tree_init(&op->tree);
        sync_plan_done(&op->plan);
        sync_look(op);
    } else if (op->contents && sync_plan_split(&op->plan)) {
        sync_read(op, false);
    } else {
        sync_keep(op);
    }
}

/* PLAN. */

/* What the layer tells, on top of what was there. */
static int sync_plan_upper(struct sync_op *op) {
    struct sync_tree whole;
    sync_tree_init(&whole);
    int rc = sync_upper_tree(&op->index, op->tight, &op->tree, &whole, &op->err);
    if (rc == 0)
        rc = sync_tree_finish(&whole, &op->err);
    if (rc != 0) {
        sync_tree_done(&whole);
        return rc;
    }
    sync_tree_done(&op->tree);
    op->tree = whole;
    return 0;
}

static void sync_plan_job(struct sync_op *op) {
    op->rc = sync_tree_finish(&op->tree, &op->err);
    if (op->rc == 0 && op->upper) {
        int rc = sync_plan_upper(op);
        op->rescan = rc > 0;
        op->rc = rc < 0 ? -1 : 0;
    }
    if (op->rc < 0 || op->rescan)
        return;
    op->rc =
        sync_plan_join(&op->plan, &op->index, &op->tree, op->is_sync ? &op->want : NULL, &op->err);
    if (op->rc < 0)
        return;
    op->plan.layered = op->layered;
    op->plan.tight = op->tight;
    if (op->is_sync)
        sync_plan_sync(&op->plan, op->want.delete);
    else
        sync_plan_changes(&op->plan);
}

/* SCAN. */

static int sync_look_item(void *arg, const struct fileop_item *item) {
    struct sync_op *op = arg;
    if (item->rec.type == FILEOP_ERROR) {
        sync_tree_unread(&op->tree, item->path, item->rec.path_len);
        return 0;
    }
    if (item->rec.type != FILEOP_ENTRY)
        return 0;
    struct err err;
    err_clear(&err);
    if (sync_tree_add(&op->tree, &item->rec, item->path, item->target, &err) == 0)
        return 0;
    if (err.kind == ERR_LIMIT)
        api_error_set(&op->error, 413, "too_large", "/root", "%s: %s.", op->path, err.text);
    else if (err.kind == ERR_SYSTEM)
        api_error_memory(&op->error);
    return -1;
}

static void sync_look_done(void *arg, const struct fileop_result *result) {
    struct sync_op *op = arg;
    bool none = result->code == FILEOP_NOT_FOUND && op->tree.count == 0;
    if (none)
        op->upper = false; /* nothing is left of what was there */
    if (op->upper && result->code == FILEOP_UNSUPPORTED && !result->gone) {
        op->rescan = true;
        sync_planned(op);
        return;
    }
    if ((result->code != FILEOP_OK && !none) || result->gone)
        sync_failed(op, result);
    else
        sync_work(op, sync_plan_job, sync_planned);
}

static const struct fileop_run_ops sync_look_ops = {.item = sync_look_item, .done = sync_look_done};

void sync_look(struct sync_op *op) {
    struct sandbox *sb = op->part->sandbox;
    struct err err;
    err_clear(&err);
    op->layers = sandbox_layer_serial(sb);
    /* A root that can be replaced as a whole would have to be looked at itself. */
    op->layered = op->root != NULL && op->root->layer && op->root->layer_serial == op->layers;
    op->tight = op->layered && op->root->tight;
    op->upper = !op->is_sync && !op->rescan && op->layered && sync_root_has_layers(op->root);
    op->rescan = false;
    op->began = sandbox_activity(sb);
    op->own_tasks = 1;
    op->fresh = sync_index_fresh_now();
    const char *argv[] = {op->upper ? "upper" : "scan", op->path};
    if (fileop_run_start(sb, argv, 2, false, &sync_look_ops, op, &err) == NULL)
        sync_fail(op, &err);
}
