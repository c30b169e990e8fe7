#include "sync_hash.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct sync_hash {
    struct sync_hash_task task;
    struct fileop_run *run;
    size_t asked, told;     /* nodes: the next to ask for, the next to be told of */
    struct sync_node *node; /* whose contents come now */
    struct sync_stamp stamp;
    uint64_t bytes;
    struct blobs_put *put;
    crypto_hash_sha256_state hash; /* when it is not put */
};

/* The next node from *at on that is to be looked at. */
static struct sync_node *sync_hash_next(const struct sync_plan *p, size_t *at) {
    while (*at < p->count) {
        struct sync_node *n = &p->nodes[(*at)++];
        if (n->todo == SYNC_HASH)
            return n;
    }
    return NULL;
}

static void sync_hash_ask(void *arg) {
    struct sync_hash *h = arg;
    struct sync_node *n;
    int rc = 1;
    while (rc > 0 && (n = sync_hash_next(h->task.plan, &h->asked)) != NULL) {
        size_t len;
        const char *path = sync_node_path(n, &len);
        struct fileop_record rec = {.type = FILEOP_NAME, .path_len = (uint32_t)len};
        rc = fileop_run_put(h->run, &rec, path, "", NULL);
    }
    if (rc > 0)
        fileop_run_finish(h->run);
}

/* A file whose contents end, or break off. */
static void sync_hash_drop(struct sync_hash *h) {
    blobs_put_abort(h->put);
    h->put = NULL;
    h->node = NULL;
}

static int sync_hash_begin(struct sync_hash *h, const struct fileop_item *item) {
    if (item->rec.kind != FILEOP_FILE || (item->rec.flags & FILEOP_CONTENT) == 0) {
        sync_plan_failed(h->node, FILEOP_NOT_REGULAR);
        h->node = NULL;
        return 0;
    }
    h->stamp = (struct sync_stamp){
        .size = item->rec.size, .inode = item->rec.inode, .ctime_ns = item->rec.ctime_ns};
    h->bytes = 0;
    if (h->task.blobs != NULL)
        h->put = blobs_put_start(h->task.blobs, h->task.user, item->rec.size, NULL);
    /* Over the quota: what it is can be told all the same. */
    if (h->put == NULL)
        crypto_hash_sha256_init(&h->hash);
    return 0;
}

static int sync_hash_piece(struct sync_hash *h, const struct fileop_item *item) {
    h->bytes += item->rec.data_len;
    if (h->put == NULL) {
        crypto_hash_sha256_update(&h->hash, (const unsigned char *)item->data, item->rec.data_len);
        return 0;
    }
    if (blobs_put_write(h->put, item->data, item->rec.data_len, NULL) == 0)
        return 0;
    /* The disk is full, or the file grew while it was read. */
    sync_plan_failed(h->node, h->bytes > h->stamp.size ? FILEOP_CHANGED : FILEOP_NO_SPACE);
    sync_hash_drop(h);
    return 0;
}

static int sync_hash_end(struct sync_hash *h) {
    unsigned char sha256[SYNC_SHA256_SIZE];
    struct sync_node *n = h->node;
    struct blobs_put *put = h->put;
    h->node = NULL;
    h->put = NULL;
    if (put == NULL) {
        crypto_hash_sha256_final(&h->hash, sha256);
    } else if (blobs_put_finish(put, NULL, sha256, NULL, NULL) < 0) {
        sync_plan_failed(n, FILEOP_IO);
        return 0;
    }
    sync_plan_hashed(h->task.plan, n, sha256, &h->stamp);
    if (h->bytes != h->stamp.size) { /* it changed: that is not what the stamp stands for */
        n->stamp.size = h->bytes;
        n->stamped = false;
    }
    return 0;
}

/* Answers come in the order in which was asked. */
static int sync_hash_item(void *arg, const struct fileop_item *item) {
    struct sync_hash *h = arg;
    size_t len;
    if (item->rec.type == FILEOP_DATA) {
        if (h->node == NULL)
            return 0; /* of one that was given up */
        return item->rec.data_len > 0 ? sync_hash_piece(h, item) : sync_hash_end(h);
    }
    if (item->rec.type == FILEOP_ERROR && h->node != NULL) {
        sync_plan_failed(h->node, (enum fileop_code)item->rec.code);
        sync_hash_drop(h);
        return 0;
    }
    if (item->rec.type == FILEOP_ERROR && h->told > 0) {
        /* Of one that was given up, or that is taken back? */
        const char *last = sync_node_path(&h->task.plan->nodes[h->told - 1], &len);
        if (len == item->rec.path_len && memcmp(last, item->path, len) == 0) {
            sync_plan_failed(&h->task.plan->nodes[h->told - 1], (enum fileop_code)item->rec.code);
            return 0;
        }
    }
    struct sync_node *n = sync_hash_next(h->task.plan, &h->told);
    const char *path = n != NULL ? sync_node_path(n, &len) : NULL;
    if (path == NULL || h->node != NULL || len != item->rec.path_len ||
        memcmp(path, item->path, len) != 0)
        return -1;
    if (item->rec.type == FILEOP_ERROR) {
        sync_plan_failed(n, (enum fileop_code)item->rec.code);
        return 0;
    }
    if (item->rec.type != FILEOP_ENTRY)
        return -1;
    h->node = n;
    return sync_hash_begin(h, item);
}

static void sync_hash_done(void *arg, const struct fileop_result *result) {
    struct sync_hash *h = arg;
    struct sync_hash_task task = h->task;
    sync_hash_drop(h);
    free(h);
    task.done(task.arg, result);
}

static const struct fileop_run_ops sync_hash_ops = {
    .item = sync_hash_item, .writable = sync_hash_ask, .done = sync_hash_done};

struct sync_hash *sync_hash_start(const struct sync_hash_task *task, struct err *err) {
    const char *argv[] = {"fetch", task->root};
    struct sync_hash *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "reading files of a sandbox: out of memory");
        return NULL;
    }
    h->task = *task;
    h->run = fileop_run_start(task->sandbox, argv, 2, true, &sync_hash_ops, h, err);
    if (h->run == NULL) {
        free(h);
        return NULL;
    }
    sync_hash_ask(h);
    return h;
}
