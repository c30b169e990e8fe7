/* Theory of operation. A layer whose snapshot was dropped stays as long as something stands on it,
 * and with it whatever newer layers have replaced or removed. When that may be much, the layers
 * that a volume stands on are merged into one beside them, in the background: files are linked, not
 * copied, and layers do not change, so that nobody notices. Snapshots that stood on all of them
 * stand on the new one from then on; the volume does so from its next snapshot or restore on.
 *
 * "May be much" is measured against the lowest layer, which is what an earlier merge left: a volume
 * that only grows is merged each time it has grown by a half. */
#include <stdlib.h>
#include <string.h>

#include "layers_state.h"

#define LAYERS_COMPACT_SLACK (16ull << 20)

static bool layers_compact_wanted(const struct layers_volume *v) {
    uint64_t bytes = 0;
    uint64_t files = 0;
    bool unnamed = false;
    if (v->busy || v->broken || v->merged != NULL || v->stack.depth < 2 || v->own == NULL ||
        v->own->root_fd < 0) {
        return false;
    }
    for (uint32_t i = 0; i < v->stack.depth; i++) {
        unnamed |= v->stack.layer[i]->named == 0;
    }
    uint64_t lowest = v->stack.layer[v->stack.depth - 1]->bytes;
    layers_store_sum(&v->stack, NULL, &bytes, &files);
    return unnamed && bytes >= lowest + lowest / 2 + LAYERS_COMPACT_SLACK;
}

static void layers_compact_start(struct layers_volume *v) {
    struct layers_job *job = layers_job_new(v->layers, LAYERS_OP_MERGE, v, NULL);
    if (job == NULL) {
        return; /* another time */
    }
    layers_store_copy(&job->stack, &v->stack);
    job->fs = v->own;
    job->req.merge = ++v->own->number;
    job->req.litter = v->litter;
    layers_job_limits(job);
    v->litter = 0;
    v->compacting = job;
    if (layers_job_start(job, NULL) != 0) {
        v->compacting = NULL;
    }
}

void layers_compact_look(struct layers *layers) {
    for (const struct layers_fs *fs = layers->fs; fs != NULL; fs = fs->next) {
        if (fs->owner != NULL && fs->owner->compacting != NULL) {
            return; /* one at a time: it is not urgent */
        }
    }
    for (const struct layers_fs *fs = layers->fs; fs != NULL; fs = fs->next) {
        if (fs->owner != NULL && layers_compact_wanted(fs->owner)) {
            layers_compact_start(fs->owner);
            return;
        }
    }
}

void layers_compact_stop(struct layers_volume *v) {
    if (v->compacting != NULL) {
        v->litter = v->compacting->req.merge;
        layers_job_end(v->compacting);
        v->compacting = NULL;
    }
}

/* Are the lowest layers of `stack` just these? */
static bool layers_compact_ends(const struct layers_stack *stack, const struct layers_stack *end) {
    return stack->depth >= end->depth &&
           memcmp(&stack->layer[stack->depth - end->depth], end->layer,
                  end->depth * sizeof(struct layers_layer *)) == 0;
}

static void layers_compact_replace(struct layers *layers, struct layers_stack *stack,
                                   const struct layers_stack *old, struct layers_layer *merged) {
    uint32_t above = stack->depth - old->depth;
    if (above == 0) {
        stack->layer[0]->named--;
        merged->named++;
    }
    stack->depth = above + 1;
    stack->layer[above] = merged;
    layers_store_ref(merged);
    for (uint32_t i = 0; i < old->depth; i++) {
        layers_store_unref(layers, old->layer[i]);
    }
}

void layers_compact_done(struct layers_job *job, const struct layers_reply *reply) {
    struct layers_volume *v = job->v;
    struct layers *layers = job->layers;
    if (v == NULL) {
        return; /* it was answered before */
    }
    job->v = NULL;
    v->compacting = NULL;
    if (reply == NULL || !(reply->flags & LAYERS_MERGED)) {
        v->litter = job->req.merge;
        return;
    }
    struct layers_layer *merged = layers_store_layer(v->own, job->req.merge, NULL);
    if (merged == NULL) {
        return; /* it stays until the file system goes */
    }
    layers_store_size(merged, reply->merge_bytes, reply->merge_files);
    for (struct layers_snap *s = layers->snaps; s != NULL; s = s->next) {
        if (layers_compact_ends(&s->stack, &job->stack)) {
            layers_compact_replace(layers, &s->stack, &job->stack, merged);
        }
    }
    if (v->merged == NULL && v->stack.depth == job->stack.depth &&
        layers_compact_ends(&v->stack, &job->stack)) {
        v->merged = merged;
    } else {
        layers_store_unref(layers, merged);
    }
}
