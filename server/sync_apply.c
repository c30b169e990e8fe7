#include "sync_apply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"

#define SYNC_APPLY_PIECE ((size_t)64 * 1024)
/* Sent per turn of the loop, and what a record counts beside its contents: 64 entries. */
#define SYNC_APPLY_TURN ((size_t)1024 * 1024)
#define SYNC_APPLY_RECORD ((size_t)16 * 1024)

struct sync_apply {
    struct sync_apply_task task;
    struct fileop_run *run;
    size_t asked, told;           /* nodes: the next to ask for, the next to be told of */
    const struct sync_node *node; /* whose contents are being sent */
    int fd;
    uint64_t left;
    struct loop_defer later;
    bool failed; /* a blob could not be read: nothing is to be applied */
    char piece[SYNC_APPLY_PIECE];
};

/* The next node from *at on of which a record is sent. Directories that are shut are opened and
 * shut again by the operation, and it sets their modes last. */
static struct sync_node *sync_apply_next(const struct sync_plan *p, size_t *at) {
    while (*at < p->count) {
        struct sync_node *n = &p->nodes[(*at)++];
        if (n->todo == SYNC_DROP || n->todo == SYNC_MAKE || n->todo == SYNC_SET)
            return n;
    }
    return NULL;
}

static void sync_apply_fail(struct sync_apply *a) {
    a->failed = true;
    fd_close(&a->fd);
    fileop_run_cancel(a->run);
}

/* -1: it failed; else as fileop_run_put(). */
static int sync_apply_contents(struct sync_apply *a) {
    struct fileop_record rec = {.type = FILEOP_DATA};
    size_t want = a->left < sizeof(a->piece) ? (size_t)a->left : sizeof(a->piece);
    ssize_t n = 0;
    while (want > 0 && (n = read(a->fd, a->piece, want)) < 0 && errno == EINTR)
        ;
    if (want > 0 && n <= 0) {
        sync_apply_fail(a);
        return -1;
    }
    a->left -= (uint64_t)n;
    rec.data_len = (uint32_t)n;
    if (n == 0) { /* the empty piece that ends a file */
        fd_close(&a->fd);
        a->node = NULL;
    }
    return fileop_run_put(a->run, &rec, "", "", a->piece);
}

static int sync_apply_entry(struct sync_apply *a, const struct sync_node *n) {
    const struct sync_entry *want = n->want;
    const char *target = "";
    struct fileop_record rec = {.type = FILEOP_ENTRY,
                                .kind = want->kind,
                                .mode = want->kind == FILEOP_SYMLINK ? 0777 : sync_node_mode(n),
                                .mtime_ns = FILEOP_MTIME_NONE,
                                .path_len = want->path_len};
    if (rec.kind == FILEOP_SYMLINK) {
        rec.target_len = want->target_len;
        target = want->target;
    }
    if (rec.kind == FILEOP_FILE && n->todo == SYNC_MAKE) {
        uint64_t size = 0;
        rec.flags = FILEOP_CONTENT;
        rec.size = a->left = want->size;
        a->node = n;
        if (want->size > 0) {
            a->fd = blobs_read(a->task.blobs, a->task.user, want->sha256, &size, NULL);
            if (a->fd < 0 || size != want->size) {
                sync_apply_fail(a);
                return -1;
            }
        }
    }
    return fileop_run_put(a->run, &rec, want->path, target, NULL);
}

/* The next record: as fileop_run_put(); -1 also when that was all. */
static int sync_apply_record(struct sync_apply *a) {
    size_t len;
    if (a->node != NULL)
        return sync_apply_contents(a);
    const struct sync_node *n = sync_apply_next(a->task.plan, &a->asked);
    if (n == NULL) {
        fileop_run_finish(a->run);
        return -1;
    }
    if (n->todo != SYNC_DROP)
        return sync_apply_entry(a, n);
    const char *path = sync_node_path(n, &len);
    struct fileop_record rec = {.type = FILEOP_REMOVE, .path_len = (uint32_t)len};
    return fileop_run_put(a->run, &rec, path, "", NULL);
}

/* Whoever reads the pipe may be as fast as this: then others have their turn in between. */
static void sync_apply_write(void *arg) {
    struct sync_apply *a = arg;
    size_t spent = 0;
    int rc = a->failed ? -1 : 1;
    loop_defer_stop(a->task.loop, &a->later);
    while (rc > 0 && spent < SYNC_APPLY_TURN) {
        uint64_t left = a->left;
        rc = sync_apply_record(a);
        spent += SYNC_APPLY_RECORD + (a->left < left ? (size_t)(left - a->left) : 0);
    }
    if (rc > 0)
        loop_defer(a->task.loop, &a->later, sync_apply_write, a);
}

/* What was made, in the order of the records. A stamp that does not come is only one that is not
 * remembered. */
static int sync_apply_item(void *arg, const struct fileop_item *item) {
    struct sync_apply *a = arg;
    struct sync_node *n;
    if (item->rec.type != FILEOP_ENTRY)
        return 0;
    while ((n = sync_apply_next(a->task.plan, &a->told)) != NULL && n->todo == SYNC_DROP)
        ;
    if (n == NULL)
        return 0;
    bool file = item->rec.kind == FILEOP_FILE;
    if (n->want->path_len != item->rec.path_len ||
        memcmp(n->want->path, item->path, item->rec.path_len) != 0 ||
        n->want->kind != item->rec.kind || (file && item->rec.size != n->want->size) ||
        (!file && item->rec.kind != FILEOP_DIRECTORY))
        return 0;
    n->stamp = (struct sync_stamp){
        .size = item->rec.size, .inode = item->rec.inode, .ctime_ns = item->rec.ctime_ns};
    n->stamped = true;
    return 0;
}

static void sync_apply_done(void *arg, const struct fileop_result *result) {
    struct sync_apply *a = arg;
    struct sync_apply_task task = a->task;
    struct fileop_result own = *result;
    /* The root is made where it is missing: what is not found went away meanwhile. */
    if (a->failed || own.code == FILEOP_NOT_FOUND)
        fileop_status_set(&own, FILEOP_CHANGED, 0, task.root);
    fd_close(&a->fd);
    loop_defer_stop(task.loop, &a->later);
    free(a);
    task.done(task.arg, &own);
}

static const struct fileop_run_ops sync_apply_ops = {
    .item = sync_apply_item, .writable = sync_apply_write, .done = sync_apply_done};

struct sync_apply *sync_apply_start(const struct sync_apply_task *task, struct err *err) {
    const char *argv[] = {"apply", task->root};
    struct sync_apply *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "applying a sync: out of memory");
        return NULL;
    }
    a->task = *task;
    a->fd = -1;
    for (size_t i = 0; i < task->plan->count; i++) /* what is made has other stamps */
        if (task->plan->nodes[i].todo == SYNC_MAKE || task->plan->nodes[i].todo == SYNC_SET)
            task->plan->nodes[i].stamped = false;
    a->run = fileop_run_start(task->sandbox, argv, 2, true, &sync_apply_ops, a, err);
    if (a->run == NULL) {
        free(a);
        return NULL;
    }
    sync_apply_write(a);
    return a;
}
