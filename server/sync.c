#include "sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"
#include "str.h"
#include "sync_internal.h"

static void sync_part_free(void *part);
static void sync_part_gone(void *part);
static bool sync_part_rests(const void *part);
static void sync_begin(void *arg);

static const struct sandbox_part_ops sync_part_ops = {
    .free = sync_part_free, .gone = sync_part_gone, .rests = sync_part_rests};

/* Operations. */

/* Nodes of a plan that the loop gives back itself; more are a worker's. */
#define SYNC_FREE_INLINE 5000u

static void sync_op_free_run(struct work_job *job) {
    struct sync_op *op = (struct sync_op *)(void *)job;
    sync_plan_done(&op->plan);
    sync_tree_done(&op->tree);
    sync_index_done(&op->index);
    sync_request_done(&op->want);
    free(op->needs);
    fd_close(&op->dir);
    free(op);
}

static void sync_op_free(struct sync_op *op) {
    blobs_unpin_all(op->blobs, op->user, op->pins, op->pin_count);
    op->pins = NULL;
    op->job = (struct work_job){.run = sync_op_free_run};
    if (op->part != NULL && op->plan.count > SYNC_FREE_INLINE)
        work_add(op->part->means.work, &op->job);
    else
        sync_op_free_run(&op->job);
}

/* Tells the end; the operation is off the list. */
static void sync_tell(struct sync_op *op) {
    op->asker.done(op->asker.arg, op->error.status != 0 ? &op->error : NULL);
    sync_op_free(op);
}

static void sync_next(struct sync_part *part) {
    struct sync_op *op = part->first;
    if (op != NULL)
        loop_defer(sandbox_loop(part->sandbox), &op->soon, sync_begin, op);
}

void sync_finish(struct sync_op *op) {
    struct sync_part *part = op->part;
    if (part != NULL) {
        part->first = op->next;
        if (part->first == NULL)
            part->last = NULL;
        part->op_count--;
        sync_next(part);
    }
    sync_tell(op);
}

void sync_fail(struct sync_op *op, const struct err *err) {
    if (op->error.status != 0)
        (void)0;
    else if (op->part == NULL || sandbox_state(op->part->sandbox) == SANDBOX_GONE)
        api_error_set(&op->error, 410, "gone", NULL, "The sandbox is gone.");
    else if (err->kind == ERR_STATE)
        api_error_set(&op->error, 409, "not_ready", NULL, "This is not possible now: %s.",
                      err->text);
    else if (err->kind == ERR_LIMIT)
        api_error_set(&op->error, 413, "too_large", "/root", "%s: %s.", op->path, err->text);
    else if (err->kind == ERR_SYSTEM && (err->code == ENOSPC || err->code == EDQUOT))
        api_error_set(&op->error, 507, "no_space", NULL, "The server's disk is full.");
    else if (err->kind == ERR_SYSTEM && err->code == ENOMEM)
        api_error_memory(&op->error);
    else
        api_error_set(&op->error, 500, "internal", NULL, "The sync failed: %s.", err->text);
    sync_finish(op);
}

/* Jobs: `run` on a worker, `then` on the loop's thread when it went well. */

static void sync_job_run(struct work_job *job) {
    struct sync_op *op = (struct sync_op *)(void *)job;
    op->run(op);
}

static void sync_job_done(struct work_job *job) {
    struct sync_op *op = (struct sync_op *)(void *)job;
    if (op->rc < 0 || op->part == NULL || sandbox_state(op->part->sandbox) == SANDBOX_GONE)
        sync_fail(op, &op->err);
    else
        op->then(op);
}

void sync_work(struct sync_op *op, void (*run)(struct sync_op *op),
               void (*then)(struct sync_op *op)) {
    op->run = run;
    op->then = then;
    op->rc = 0;
    err_clear(&op->err);
    op->job = (struct work_job){.run = sync_job_run, .done = sync_job_done};
    work_add(op->part->means.work, &op->job);
}

static void sync_load(struct sync_op *op) {
    op->rc = sync_index_load(&op->index, op->dir, op->path, &op->err);
    if (op->rc == 0 && op->is_sync && !op->index.applied &&
        sync_root_count(op->dir) >= SYNC_ROOTS_MAX)
        op->rc =
            api_error_set(&op->error, 409, "too_many_roots", "/root",
                          "%u directories of this sandbox are synced already.", SYNC_ROOTS_MAX);
}

static void sync_loaded(struct sync_op *op) {
    struct err none = {0};
    if (!op->is_sync && !op->index.applied) {
        api_error_set(&op->error, 409, "no_sync", "/root",
                      "There was no sync of %s yet that changes could be told against.", op->path);
        sync_fail(op, &none);
        return;
    }
    sync_look(op);
}

static void sync_begin(void *arg) {
    struct sync_op *op = arg;
    struct sandbox *sb = op->part->sandbox;
    struct err err;
    err_clear(&err);
    op->dir = fcntl(sandbox_dir(sb), F_DUPFD_CLOEXEC, 3);
    if (op->dir < 0) {
        err_sys(&err, "opening the sandbox's directory");
        sync_fail(op, &err);
        return;
    }
    sync_work(op, sync_load, sync_loaded);
}

/* The part of a sandbox. */

static struct sync_part *sync_part(const struct sync_means *means, struct sandbox *sb) {
    struct sync_part *part = sandbox_part(sb, SANDBOX_SYNC);
    if (part != NULL)
        return part;
    part = calloc(1, sizeof(*part));
    if (part == NULL)
        return NULL;
    part->sandbox = sb;
    part->means = *means;
    sandbox_part_set(sb, SANDBOX_SYNC, &sync_part_ops, part);
    return part;
}

/* Those that wait are told; the one at work notices by itself. */
static void sync_part_gone(void *arg) {
    struct sync_part *part = arg;
    struct sync_op *op = part->first, *next;
    struct err none = {0};
    if (op == NULL)
        return;
    bool begun = !op->soon.pending;
    if (begun) {
        next = op->next;
        op->next = NULL;
        part->last = op;
        part->op_count = 1;
        op = next;
    } else {
        part->first = part->last = NULL;
        part->op_count = 0;
        loop_defer_stop(sandbox_loop(part->sandbox), &op->soon);
    }
    for (; op != NULL; op = next) {
        next = op->next;
        op->part = NULL;
        sync_fail(op, &none);
    }
}

static bool sync_part_rests(const void *arg) {
    const struct sync_part *part = arg;
    return part->first == NULL;
}

static void sync_part_free(void *arg) {
    struct sync_part *part = arg;
    sync_part_gone(part);
    struct sync_op *op = part->first;
    if (op != NULL) {
        bool waits = op->turn.pending; /* else a worker has it */
        struct err none = {0};
        loop_defer_stop(sandbox_loop(part->sandbox), &op->turn);
        op->part = NULL;
        op->root = NULL;
        if (waits)
            sync_fail(op, &none);
    }
    while (part->roots != NULL) {
        struct sync_root *root = part->roots;
        part->roots = root->next;
        sync_root_free(root);
    }
    free(part);
}

static int sync_add(const struct sync_means *means, struct sandbox *sb, struct sync_op *op,
                    const char *path, struct api_error *error) {
    struct sync_part *part = sync_part(means, sb);
    if (part == NULL)
        return api_error_memory(error);
    if (part->op_count > SYNC_WAITING_MAX)
        return api_error_set(error, 429, "busy", NULL,
                             "%zu transfers of this sandbox wait already.", part->op_count);
    op->root = op->is_sync ? sync_root(part, path, error) : sync_root_find(part, path);
    if (op->is_sync && op->root == NULL)
        return -1;
    op->part = part;
    op->blobs = means->blobs;
    str_copy(op->user, sizeof(op->user), sandbox_owner(sb));
    str_copy(op->path, sizeof(op->path), path);
    if (part->last != NULL)
        part->last->next = op;
    else
        part->first = op;
    part->last = op;
    if (part->op_count++ == 0)
        sync_next(part);
    return 0;
}

static struct sync_op *sync_op_new(const struct sync_asker *asker, struct api_error *error) {
    struct sync_op *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        api_error_memory(error);
        return NULL;
    }
    op->dir = -1;
    op->asker = *asker;
    sync_index_init(&op->index);
    sync_tree_init(&op->tree);
    return op;
}

int sync_start(const struct sync_means *means, struct sandbox *sb, struct sync_request *request,
               const struct sync_asker *asker, struct api_error *error) {
    struct sync_op *op = sync_op_new(asker, error);
    if (op == NULL) {
        sync_request_done(request);
        return -1;
    }
    op->is_sync = true;
    op->want = *request;
    *request = (struct sync_request){0};
    if (sync_add(means, sb, op, op->want.root, error) == 0)
        return 0;
    sync_op_free(op);
    return -1;
}

int sync_changes_start(const struct sync_means *means, struct sandbox *sb, const char *root,
                       bool contents, const struct sync_asker *asker, struct api_error *error) {
    struct sync_op *op = sync_op_new(asker, error);
    if (op == NULL)
        return -1;
    op->contents = contents;
    if (sync_add(means, sb, op, root, error) == 0)
        return 0;
    sync_op_free(op);
    return -1;
}
