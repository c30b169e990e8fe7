/* Theory of operation. What is not needed any more is removed by workers that nobody waits for. A
 * session that ends drops some hundred snapshots at once, and who made them may have filled them
 * with files: so only a few of these workers exist at a time, and the rest is a list. It is begun
 * in a later turn of the loop, when it is known what a file system that goes as a whole saves. */
#include "layers_state.h"

#include <stdlib.h>

#define LAYERS_ASIDE_WORKERS 8u

static void layers_aside_start(struct layers *layers, const struct layers_aside *a) {
    struct layers_fs gone = {.id = a->id, .root_fd = -1};
    struct layers_job *job = layers_job_new(layers, a->op, NULL, NULL);
    if (job == NULL) {
        return;
    }
    job->aside = true;
    layers->aside_workers++;
    job->fs = a->fs != NULL ? a->fs : &gone;
    job->req.layer = a->number;
    if (layers_job_start(job, NULL) == 0) {
        job->fs = NULL; /* it may go before the worker does */
    }
}

static void layers_aside_go(void *arg) {
    struct layers *layers = arg;
    while (layers->asides != NULL && layers->aside_workers < LAYERS_ASIDE_WORKERS) {
        struct layers_aside *a = layers->asides;
        layers->asides = a->next;
        if (layers->asides == NULL) {
            layers->asides_end = NULL;
        }
        layers_aside_start(layers, a);
        free(a);
    }
}

static void layers_aside_soon(struct layers *layers) {
    if (layers->asides != NULL && layers->aside_workers < LAYERS_ASIDE_WORKERS) {
        loop_defer(layers->loop, &layers->aside_defer, layers_aside_go, layers);
    }
}

void layers_aside_ended(struct layers *layers) {
    layers->aside_workers--;
    layers_aside_soon(layers);
}

static void layers_aside_add(struct layers *layers, enum layers_op op, struct layers_fs *fs,
                             uint32_t number) {
    struct layers_aside *a = layers->zygote.pid > 0 ? calloc(1, sizeof *a) : NULL;
    if (a == NULL) {
        return;
    }
    *a = (struct layers_aside){
        .op = op, .fs = op == LAYERS_OP_FORGET ? NULL : fs, .id = fs->id, .number = number};
    if (layers->asides_end != NULL) {
        layers->asides_end->next = a;
    } else {
        layers->asides = a;
    }
    layers->asides_end = a;
    layers_aside_soon(layers);
}

void layers_aside_remove(struct layers *layers, struct layers_fs *fs, uint32_t number) {
    layers_aside_add(layers, LAYERS_OP_REMOVE, fs, number);
}

void layers_aside_clean(struct layers *layers, struct layers_fs *fs) {
    layers_aside_add(layers, LAYERS_OP_CLEAN, fs, 0);
}

/* Those of one file system, or all. */
static void layers_aside_cancel(struct layers *layers, const struct layers_fs *fs) {
    struct layers_aside **p = &layers->asides;
    layers->asides_end = NULL;
    while (*p != NULL) {
        struct layers_aside *a = *p;
        if (fs == NULL || a->fs == fs) {
            *p = a->next;
            free(a);
        } else {
            layers->asides_end = a;
            p = &a->next;
        }
    }
}

void layers_aside_forget(struct layers *layers, struct layers_fs *fs) {
    layers_aside_cancel(layers, fs);
    if (fs->asked) {
        layers_aside_add(layers, LAYERS_OP_FORGET, fs, 0);
    }
}

void layers_aside_free(struct layers *layers) {
    layers_aside_cancel(layers, NULL);
    loop_defer_stop(layers->loop, &layers->aside_defer);
}
