#include "bodies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results.h"

struct bodies_held {
    struct bodies_held *next;
    size_t count;
    char name[STORE_RUNS_FILE_SIZE];
};

struct bodies_removal {
    struct work_job job;
    int dir;
    char hidden[STORE_RUNS_FILE_SIZE];
};

void bodies_init(struct bodies *b) {
    memset(b, 0, sizeof(*b));
    pthread_mutex_init(&b->lock, NULL);
}

void bodies_done(struct bodies *b) {
    for (size_t i = 0; i < BODIES_BUCKETS; i++)
        while (b->held[i] != NULL) {
            struct bodies_held *h = b->held[i];
            b->held[i] = h->next;
            free(h);
        }
    pthread_mutex_destroy(&b->lock);
}

/* Where the entry of this name is, or would be. The names are hashes, in hexadecimal. */
static struct bodies_held **bodies_at(struct bodies *b, const char *name) {
    const char bits[3] = {name[0], name[1], '\0'};
    struct bodies_held **at = &b->held[strtoul(bits, NULL, 16) % BODIES_BUCKETS];
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

int bodies_hold(struct bodies *b, const char name[STORE_RUNS_FILE_SIZE], struct err *err) {
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    struct bodies_held **at = bodies_at(b, name);
    if (*at == NULL && (*at = calloc(1, sizeof(**at))) != NULL)
        memcpy((*at)->name, name, STORE_RUNS_FILE_SIZE);
    if (*at != NULL)
        (*at)->count++;
    else
        rc = err_set(err, ERR_SYSTEM, ENOMEM, "keeping a request: out of memory");
    pthread_mutex_unlock(&b->lock);
    return rc;
}

bool bodies_let_go(struct bodies *b, const char name[STORE_RUNS_FILE_SIZE]) {
    pthread_mutex_lock(&b->lock);
    struct bodies_held **at = bodies_at(b, name), *h = *at;
    bool last = h == NULL || --h->count == 0;
    if (h != NULL && last) {
        *at = h->next;
        free(h);
    }
    pthread_mutex_unlock(&b->lock);
    return last;
}

static void bodies_unlink(struct work_job *job) {
    struct bodies_removal *r = (struct bodies_removal *)(void *)job;
    (void)unlinkat(r->dir, r->hidden, 0);
}

static void bodies_unlinked(struct work_job *job) {
    free(job);
}

/* It loses its name while nobody can begin to hold it: who does afterwards finds no file, and
 * writes one. */
void bodies_remove(struct bodies *b, struct work *work, int dir,
                   const char name[STORE_RUNS_FILE_SIZE]) {
    struct bodies_removal *r = calloc(1, sizeof(*r));
    bool hidden = false;
    if (r == NULL)
        return; /* the next start finds that no row names it */
    pthread_mutex_lock(&b->lock);
    if (*bodies_at(b, name) == NULL)
        hidden = results_hide(dir, name, r->hidden);
    pthread_mutex_unlock(&b->lock);
    if (!hidden) {
        free(r);
        return;
    }
    r->job = (struct work_job){.run = bodies_unlink, .done = bodies_unlinked};
    r->dir = dir;
    work_add(work, &r->job);
}
