#include "layers_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "fd.h"

struct layers_fs *layers_store_fs(struct layers *layers, struct layers_volume *owner,
                                  struct err *err) {
    struct layers_fs *fs = calloc(1, sizeof *fs);
    if (fs == NULL) {
        (void)err_sys(err, "remember a file system");
        return NULL;
    }
    fs->owner = owner;
    fs->id = ++layers->ids;
    fs->root_fd = -1;
    fs->next = layers->fs;
    layers->fs = fs;
    return fs;
}

void layers_store_fs_check(struct layers *layers, struct layers_fs *fs) {
    if (fs->owner != NULL || fs->layers > 0) {
        return;
    }
    for (struct layers_fs **p = &layers->fs; *p != NULL; p = &(*p)->next) {
        if (*p == fs) {
            *p = fs->next;
            break;
        }
    }
    /* Also when we never heard of its mount, if one was asked for: a worker may have died between
     * mounting and telling. */
    layers_aside_forget(layers, fs);
    fd_close(&fs->root_fd);
    free(fs);
}

struct layers_layer *layers_store_layer(struct layers_fs *fs, uint32_t number, struct err *err) {
    struct layers_layer *layer = calloc(1, sizeof *layer);
    if (layer == NULL) {
        (void)err_sys(err, "remember a layer");
        return NULL;
    }
    layer->fs = fs;
    layer->number = number;
    layer->refs = 1;
    fs->layers++;
    return layer;
}

void layers_store_ref(struct layers_layer *layer) {
    layer->refs++;
}

void layers_store_unref(struct layers *layers, struct layers_layer *layer) {
    if (layer == NULL || --layer->refs > 0) {
        return;
    }
    struct layers_fs *fs = layer->fs;
    if (fs->owner != NULL && fs->owner->copied == layer) {
        fs->owner->copied = NULL;
    }
    fs->layers--;
    fs->bytes -= layer->bytes;
    if (fs->owner != NULL || fs->layers > 0) {
        layers_aside_remove(layers, fs, layer->number);
    } else {
        layers_store_fs_check(layers, fs); /* the whole file system goes */
    }
    free(layer);
}

void layers_store_copy(struct layers_stack *to, const struct layers_stack *from) {
    *to = *from;
    for (uint32_t i = 0; i < to->depth; i++) {
        layers_store_ref(to->layer[i]);
    }
}

void layers_store_drop(struct layers *layers, struct layers_stack *stack) {
    struct layers_stack gone = *stack;
    stack->depth = 0;
    for (uint32_t i = 0; i < gone.depth; i++) {
        layers_store_unref(layers, gone.layer[i]);
    }
}

struct layers_snap *layers_store_find(const struct layers *layers, const char *key) {
    for (struct layers_snap *s = layers->snaps; s != NULL; s = s->next) {
        if (strcmp(s->key, key) == 0) {
            return s;
        }
    }
    return NULL;
}

void layers_store_sum(const struct layers_stack *stack, const struct layers_fs *except,
                      uint64_t *bytes, uint64_t *files) {
    uint64_t b = 0;
    uint64_t f = 0;
    for (uint32_t i = 0; i < stack->depth; i++) {
        if (except == NULL || stack->layer[i]->fs != except) {
            b += stack->layer[i]->bytes;
            f += stack->layer[i]->files;
        }
    }
    *bytes = b;
    *files = f;
}

void layers_store_size(struct layers_layer *layer, uint64_t bytes, uint64_t files) {
    layer->fs->bytes += bytes - layer->bytes;
    layer->bytes = bytes;
    layer->files = files;
}

static uint64_t layers_store_held_in(const struct layers_fs *fs, bool whole) {
    struct statfs st;
    int root = fs->root_fd < 0 && fs->owner != NULL ? fs->owner->jail.writable_fd : fs->root_fd;
    if (root < 0 || fstatfs(root, &st) != 0) {
        return fs->bytes;
    }
    uint64_t used = (st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
    return whole || used < fs->bytes ? used : fs->bytes;
}

uint64_t layers_store_held(const struct layers *layers, const struct layers_volume *but) {
    uint64_t sum = 0;
    for (const struct layers_fs *fs = layers->fs; fs != NULL; fs = fs->next) {
        /* Of a jail that is gone nothing else is left. */
        bool whole = fs->owner == NULL || (fs->owner != but && fs->owner->busy);
        if (whole || fs->layers > 0) {
            sum += layers_store_held_in(fs, whole);
        }
    }
    return sum;
}

static uint64_t layers_store_bits(uint32_t mask) {
    return (uint64_t)__builtin_popcount(mask & WIRE_WRITABLE_ALL);
}

uint64_t layers_store_overhead(const struct layers_volume *v) {
    uint64_t kept = layers_store_bits(v->jail.writable & LAYERS_KEPT);
    uint64_t n = 1 + layers_store_bits(v->jail.writable); /* the root and what process 1 made */
    if (v->own != NULL && v->own->root_fd >= 0) {
        /* layers, live, work, trash; of each layer its directories, and attributes */
        n += 4 + (uint64_t)v->own->layers * (2 + kept);
    }
    if (v->live != 0) {
        n += 2 + LAYERS_WORK_INODES; /* its directories are those of process 1, in another place */
    }
    return n;
}
