/* Files that are written, but not there yet. To make each durable by itself costs a commit of the
 * file system's own journal each; written out together, they share a few. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "undo_internal.h"

#define UNDO_BATCH_THREADS 8u
#define UNDO_BATCH_EACH 4u /* files that a thread is worth its while for */

static void undo_batch_pop(struct undo_late *l) {
    fd_close(&l->fd);
    fd_close(&l->dir);
}

void undo_batch_drop(struct undo *u) {
    for (size_t i = 0; i < u->late_count; i++)
        undo_batch_pop(&u->late[i]);
    u->late_count = 0;
    undo_pack_drop(u);
}

/* What the threads share: each takes the next file that nobody has. Number 0 is the pack. */
struct undo_batch {
    struct undo *u;
    size_t count;
    pthread_mutex_t lock;
    pthread_cond_t settled; /* all are durable, or it has failed */
    size_t next, durable, named;
    int rc;
    struct err err;
};

static int undo_batch_sync(struct undo *u, size_t i, struct err *err) {
    if (i == 0)
        return undo_pack_seal(u, err);
    return fdatasync(u->late[i - 1].fd) == 0
               ? 0
               : err_sys(err, "cannot make %s durable", u->late[i - 1].name);
}

static int undo_batch_name(struct undo *u, size_t i, struct err *err) {
    const struct undo_late *l;
    char self[40];

    if (i == 0)
        return undo_pack_link(u, err);
    l = &u->late[i - 1];
    if (l->dir >= 0)
        return renameat(l->dir, l->temp, l->dir, l->name) == 0
                   ? 0
                   : err_sys(err, "cannot write %s", l->name);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", l->fd);
    /* The same contents may be there twice. */
    return linkat(AT_FDCWD, self, u->blobs, l->name, AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST
               ? 0
               : err_sys(err, "cannot store contents in the journal");
}

/* One of the steps for all files, as far as other threads do not do it. */
static void undo_batch_step(struct undo_batch *b, size_t *next, size_t *done,
                            int (*step)(struct undo *, size_t, struct err *)) {
    while (b->rc == 0 && *next < b->count) {
        size_t i = (*next)++;
        struct err err = {0};
        int rc;

        pthread_mutex_unlock(&b->lock);
        rc = step(b->u, i, &err);
        pthread_mutex_lock(&b->lock);
        ++*done;
        if (rc < 0 && b->rc == 0) {
            b->rc = -1;
            b->err = err;
        }
    }
}

/* Each wait is for the disk to have emptied its cache: of those that wait at once it does so once.
 * And what a rename replaces is given back to the disk, which takes its time as well. Names change
 * only once everything is durable: else each wait would be for some of the names, too. */
static void *undo_batch_work(void *arg) {
    struct undo_batch *b = arg;
    size_t ignored = 0;

    pthread_mutex_lock(&b->lock);
    undo_batch_step(b, &b->next, &b->durable, undo_batch_sync);
    if (b->rc < 0 || b->durable == b->count)
        pthread_cond_broadcast(&b->settled);
    while (b->rc == 0 && b->durable < b->count)
        pthread_cond_wait(&b->settled, &b->lock);
    undo_batch_step(b, &b->named, &ignored, undo_batch_name);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

int undo_batch_flush(struct undo *u, struct err *err) {
    struct undo_batch b = {.u = u,
                           .count = u->late_count + 1,
                           .lock = PTHREAD_MUTEX_INITIALIZER,
                           .settled = PTHREAD_COND_INITIALIZER};
    size_t n = b.count / UNDO_BATCH_EACH, running = 0;
    pthread_t thread[UNDO_BATCH_THREADS];

    n = n > UNDO_BATCH_THREADS ? UNDO_BATCH_THREADS : n;
    while (running + 1 < n && pthread_create(&thread[running], NULL, undo_batch_work, &b) == 0)
        running++;
    undo_batch_work(&b);
    while (running > 0)
        pthread_join(thread[--running], NULL);
    pthread_cond_destroy(&b.settled);
    pthread_mutex_destroy(&b.lock);
    undo_batch_drop(u);
    if (b.rc < 0 && err != NULL)
        *err = b.err;
    return b.rc;
}

int undo_batch_add(struct undo *u, int *fd, int *dir, const char *temp, const char *name,
                   struct err *err) {
    struct undo_late *l = &u->late[u->late_count];

    if (strlen(name) >= sizeof(l->name) || strlen(temp) >= sizeof(l->temp))
        return err_set(err, ERR_LIMIT, 0, "the name %.100s is too long", name);
    /* The disk begins with it now; where there is no such call, fdatasync(2) does all of it. */
    (void)sync_file_range(*fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    l->fd = fd_steal(fd);
    l->dir = dir != NULL ? fd_steal(dir) : -1;
    snprintf(l->temp, sizeof(l->temp), "%s", temp);
    snprintf(l->name, sizeof(l->name), "%s", name);
    u->late_count++;
    return u->late_count < UNDO_BATCH_MAX ? 0 : undo_batch_flush(u, err);
}
