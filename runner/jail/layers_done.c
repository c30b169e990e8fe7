#include "layers_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fd.h"
#include "str.h"

/* The layers of a new snapshot: the new one, whose reference is consumed, over what the live
 * directory stands on. */
static void layers_done_stack(struct layers_stack *to, const struct layers_volume *v,
                              struct layers_layer *layer) {
    struct layers_stack below = {0};
    if (v->merged != NULL) {
        below.depth = 1;
        below.layer[0] = v->merged;
    } else {
        below = v->stack;
    }
    to->depth = 1;
    to->layer[0] = layer;
    for (uint32_t i = 0; i < below.depth; i++) {
        to->layer[to->depth++] = below.layer[i];
        layers_store_ref(below.layer[i]);
    }
}

static void layers_done_live(struct layers_volume *v, uint32_t live,
                             const struct layers_stack *stack) {
    struct layers *layers = v->layers;
    struct layers_stack before = v->stack;
    struct layers_layer *merged = v->merged;
    v->live = live;
    v->copied = NULL;
    v->merged = NULL;
    layers_store_copy(&v->stack, stack);
    layers_store_drop(layers, &before);
    layers_store_unref(layers, merged);
}

static void layers_done_merged(struct layers_volume *v, const struct layers_request *req,
                               const struct layers_reply *reply) {
    struct layers_layer *merged = layers_store_layer(v->own, req->merge, NULL);
    if (merged != NULL) {
        layers_store_size(merged, reply->merge_bytes, reply->merge_files);
        layers_store_unref(v->layers, v->merged);
        v->merged = merged;
    }
}

static int layers_done_snapshot(struct layers_job *job, const struct layers_reply *reply,
                                struct err *err) {
    struct layers_volume *v = job->v;
    if (reply->flags & LAYERS_MERGED) {
        layers_done_merged(v, &job->req, reply);
    }
    if (reply->code != 0) {
        return 0;
    }
    if (v->merged == NULL && v->stack.depth >= LAYERS_DEPTH_MAX) {
        v->broken = true;
        return err_set(err, ERR_PROTOCOL, EIO, "the layers were not merged; the sandbox is broken");
    }
    struct layers_snap *snap = calloc(1, sizeof *snap);
    struct layers_layer *layer = snap ? layers_store_layer(v->own, job->req.layer, NULL) : NULL;
    if (layer == NULL || !str_copy(snap->key, sizeof snap->key, job->key)) {
        free(snap);
        v->broken = reply->flags & LAYERS_SWITCHED;
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory to remember the snapshot");
    }
    layers_store_size(layer, reply->layer_bytes, reply->layer_files);
    layers_done_stack(&snap->stack, v, layer);
    layer->named = 1;
    snap->next = v->layers->snaps;
    v->layers->snaps = snap;
    if (reply->flags & LAYERS_SWITCHED) {
        layers_done_live(v, job->req.live_next, &snap->stack);
    } else {
        v->copied = reply->flags & LAYERS_LINKABLE ? layer : NULL;
    }
    layers_store_sum(&snap->stack, NULL, &job->result.bytes, &job->result.files);
    job->result.added_bytes = layer->bytes - reply->linked_bytes;
    return 0;
}

static int layers_done_volume(struct layers_job *job, const struct layers_reply *reply, int *fds,
                              size_t nfds, struct err *err) {
    struct layers_volume *v = job->v;
    bool format = (job->req.flags & LAYERS_FORMAT) != 0;
    /* A disk file that did not take the places of the jail's directories is none of its own. */
    if ((reply->flags & LAYERS_OWN) && v->own->root_fd < 0 && nfds > (format ? 1 : 0) &&
        !(format && reply->code != 0)) {
        v->own->root_fd = fd_steal(&fds[0]);
        v->own->in_file = format;
        v->view_fd = format ? fd_steal(&fds[1]) : -1;
        v->base_bytes = reply->base_bytes;
        v->base_inodes = reply->base_inodes;
    }
    if (reply->flags & LAYERS_BROKEN) {
        v->broken = true;
    }
    if (job->req.op == LAYERS_OP_SNAPSHOT) {
        return layers_done_snapshot(job, reply, err);
    }
    if (reply->code == 0 && (reply->flags & LAYERS_SWITCHED)) {
        layers_done_live(v, job->req.live_next, &job->stack);
    }
    return 0;
}

void layers_done_take(struct layers_job *job, const struct layers_reply *reply, int *fds,
                      size_t nfds) {
    static const struct layers_reply died = {
        .flags = LAYERS_BROKEN,
        .code = EIO,
        .text = "the process that worked on the files of the sandbox died; the sandbox cannot go "
                "on",
    };
    struct layers_volume *v = job->v;
    struct err err = {0};
    if (job->req.op == LAYERS_OP_MERGE) {
        layers_compact_done(job, reply);
        return;
    }
    if (job->done == NULL || v == NULL) {
        return; /* nobody waits, or it was answered */
    }
    if (reply == NULL) {
        reply = &died;
    }
    job->result.code = reply->code;
    (void)snprintf(job->result.text, sizeof job->result.text, "%s",
                   reply->code != 0 ? reply->text : "");
    if (layers_done_volume(job, reply, fds, nfds, &err) != 0) {
        job->result.code = err.code;
        (void)snprintf(job->result.text, sizeof job->result.text, "%s", err.text);
    }
    job->result.depth = v->stack.depth;
    layers_done *done = job->done;
    v->busy = false;
    job->done = NULL;
    job->v = NULL; /* whatever happens to the volume in the callback, this job ends by itself */
    done(job->arg, &job->result);
}
