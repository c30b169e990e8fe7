#include "sync_apply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"

#define SYNC_APPLY_PIECE ((size_t)64 * 1024)
/* Write and search: what changing the contents of a directory takes. */
#define SYNC_APPLY_OPEN 0300u

struct sync_apply {
    struct sync_apply_task task;
    struct fileop_run *run;
    struct sync_steps asked, told;
    const struct sync_node *node; /* whose contents are being sent */
    int fd;
    uint64_t left;
    bool failed; /* a blob could not be read: nothing is to be applied */
    char piece[SYNC_APPLY_PIECE];
};

/* The mode that a directory has in the end. */
static uint32_t sync_apply_mode(const struct sync_node *n) {
    return n->want != NULL && n->todo != SYNC_SAME ? sync_node_mode(n) : n->seen->mode;
}

static bool sync_apply_is_directory(const struct sync_node *n) {
    if (n->todo == SYNC_DROP || n->todo == SYNC_COVERED)
        return false;
    return n->want != NULL ? n->want->kind == FILEOP_DIRECTORY
                           : n->seen != NULL && n->seen->kind == FILEOP_DIRECTORY;
}

/* Is it closed before, or to be closed at the end? */
static bool sync_apply_opens(const struct sync_node *n) {
    if (!n->touched || !sync_apply_is_directory(n))
        return false;
    uint32_t before = n->seen != NULL && n->seen->kind == FILEOP_DIRECTORY ? n->seen->mode : 0777;
    return (before & sync_apply_mode(n) & SYNC_APPLY_OPEN) != SYNC_APPLY_OPEN;
}

static enum sync_step sync_apply_forth(const struct sync_plan *p, struct sync_steps *s, size_t *n,
                                       uint32_t *mode) {
    while (s->at < p->count) {
        const struct sync_node *node = &p->nodes[s->at];
        *n = s->at++;
        if (node->todo == SYNC_DROP)
            return SYNC_STEP_REMOVE;
        if (sync_apply_opens(node)) {
            *mode = sync_apply_mode(node) | SYNC_APPLY_OPEN | 0400;
            return SYNC_STEP_ENTRY;
        }
        if (node->todo == SYNC_MAKE || node->todo == SYNC_SET) {
            *mode = node->want->kind == FILEOP_SYMLINK ? 0777 : sync_node_mode(node);
            return SYNC_STEP_ENTRY;
        }
    }
    return SYNC_STEP_OVER;
}

enum sync_step sync_apply_step(const struct sync_plan *p, struct sync_steps *s, size_t *n,
                               uint32_t *mode) {
    if (!s->closing) {
        enum sync_step step = sync_apply_forth(p, s, n, mode);
        if (step != SYNC_STEP_OVER)
            return step;
        s->closing = true;
    }
    while (s->at > 0) {
        const struct sync_node *node = &p->nodes[--s->at];
        if (sync_apply_opens(node)) {
            *n = s->at;
            *mode = sync_apply_mode(node);
            return SYNC_STEP_ENTRY;
        }
    }
    return SYNC_STEP_OVER;
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

static int sync_apply_entry(struct sync_apply *a, const struct sync_node *n, uint32_t mode) {
    const struct sync_entry *want = n->want;
    size_t len;
    const char *path = sync_node_path(n, &len), *target = "";
    struct fileop_record rec = {.type = FILEOP_ENTRY,
                                .kind = want != NULL ? want->kind : FILEOP_DIRECTORY,
                                .mode = mode,
                                .mtime_ns = FILEOP_MTIME_NONE,
                                .path_len = (uint32_t)len};
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
    return fileop_run_put(a->run, &rec, path, target, NULL);
}

static void sync_apply_write(void *arg) {
    struct sync_apply *a = arg;
    int rc = 1;
    while (rc > 0 && !a->failed) {
        size_t n, len;
        uint32_t mode = 0;
        if (a->node != NULL) {
            rc = sync_apply_contents(a);
            continue;
        }
        enum sync_step step = sync_apply_step(a->task.plan, &a->asked, &n, &mode);
        if (step == SYNC_STEP_OVER) {
            fileop_run_finish(a->run);
            return;
        }
        if (step == SYNC_STEP_ENTRY) {
            rc = sync_apply_entry(a, &a->task.plan->nodes[n], mode);
            continue;
        }
        struct fileop_record rec = {.type = FILEOP_REMOVE};
        const char *path = sync_node_path(&a->task.plan->nodes[n], &len);
        rec.path_len = (uint32_t)len;
        rc = fileop_run_put(a->run, &rec, path, "", NULL);
    }
}

/* What was made, in the order of the records. A stamp that does not come is only one that is not
 * remembered. */
static int sync_apply_item(void *arg, const struct fileop_item *item) {
    struct sync_apply *a = arg;
    size_t i, len;
    uint32_t mode;
    enum sync_step step;
    if (item->rec.type != FILEOP_ENTRY)
        return 0;
    while ((step = sync_apply_step(a->task.plan, &a->told, &i, &mode)) == SYNC_STEP_REMOVE)
        ;
    if (step == SYNC_STEP_OVER)
        return 0;
    struct sync_node *n = &a->task.plan->nodes[i];
    const char *path = sync_node_path(n, &len);
    bool file = item->rec.kind == FILEOP_FILE;
    if (len != item->rec.path_len || memcmp(path, item->path, len) != 0 || n->want == NULL ||
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
    if (a->failed)
        fileop_status_set(&own, FILEOP_CHANGED, 0, task.root);
    fd_close(&a->fd);
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
