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
}

/* One of the threads that wait for the disk. */
struct undo_batch_share {
    const struct undo *u;
    pthread_t thread;
    size_t first, step;
    int code; /* errno of what failed; 0 = nothing */
    size_t failed;
};

static void *undo_batch_wait(void *arg) {
    struct undo_batch_share *s = arg;

    for (size_t i = s->first; s->code == 0 && i < s->u->late_count; i += s->step)
        if (fdatasync(s->u->late[i].fd) < 0) {
            s->code = errno;
            s->failed = i;
        }
    return NULL;
}

/* Each wait is for the disk to have emptied its cache; of those that wait at once it does so once.
 */
static int undo_batch_sync(const struct undo *u, struct err *err) {
    struct undo_batch_share share[UNDO_BATCH_THREADS];
    bool running[UNDO_BATCH_THREADS] = {false};
    size_t n = u->late_count / UNDO_BATCH_EACH;
    int rc = 0;

    n = n < 1 ? 1 : n > UNDO_BATCH_THREADS ? UNDO_BATCH_THREADS : n;
    for (size_t i = 0; i < n; i++)
        share[i] = (struct undo_batch_share){.u = u, .first = i, .step = n};
    for (size_t i = 1; i < n; i++)
        running[i] = pthread_create(&share[i].thread, NULL, undo_batch_wait, &share[i]) == 0;
    for (size_t i = 0; i < n; i++)
        if (!running[i])
            undo_batch_wait(&share[i]);
    for (size_t i = 0; i < n; i++) {
        if (running[i])
            pthread_join(share[i].thread, NULL);
        if (share[i].code != 0 && rc == 0)
            rc = err_set(err, ERR_SYSTEM, share[i].code, "cannot make %s durable: %s",
                         u->late[share[i].failed].name, strerror(share[i].code));
    }
    return rc;
}

static int undo_batch_name(const struct undo *u, const struct undo_late *l, struct err *err) {
    char self[40];

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

int undo_batch_flush(struct undo *u, struct err *err) {
    int rc = undo_batch_sync(u, err);

    for (size_t i = 0; rc == 0 && i < u->late_count; i++)
        rc = undo_batch_name(u, &u->late[i], err);
    undo_batch_drop(u);
    return rc;
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
