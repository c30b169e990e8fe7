#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "sync_internal.h"

/* A sync whose contents do not come is forgotten after this. */
#define SYNC_ROOT_PIN_MS ((uint64_t)10 * 60 * 1000)
/* Below this, looking at everything costs less than a layer. */
#define SYNC_ROOT_LAYER_MIN 1000u

/* A mount of its own: no program can remove or replace it. */
#define SYNC_ROOT_LAYERED "/workspace"

/* A layer that was asked for. */
struct sync_layer {
    struct sync_root *root; /* NULL: nobody wants to know any more */
    struct sync_op *op;     /* the sync that is told then */
    uint64_t started;       /* tasks, when it was asked for */
};

struct sync_root *sync_root_find(const struct sync_part *part, const char *path) {
    struct sync_root *root = part->roots;
    while (root != NULL && strcmp(root->path, path) != 0)
        root = root->next;
    return root;
}

bool sync_manifest_of(const struct sandbox *sb, const char *path, struct sync_manifest *out,
                      const char **root) {
    const struct sync_part *part = sandbox_part(sb, SANDBOX_SYNC);
    for (const struct sync_root *r = part != NULL ? part->roots : NULL; r != NULL; r = r->next) {
        size_t n = strlen(r->path);
        if (!r->manifest.known || strncmp(path, r->path, n) != 0 ||
            (path[n] != '/' && path[n] != '\0'))
            continue;
        *out = r->manifest;
        *root = r->path;
        return true;
    }
    return false;
}

struct sync_root *sync_root(struct sync_part *part, const char *path, struct api_error *error) {
    struct sync_root *root = sync_root_find(part, path);
    if (root != NULL)
        return root;
    if (part->root_count == SYNC_ROOTS_MAX) {
        api_error_set(error, 409, "too_many_roots", "/root",
                      "%u directories of this sandbox are synced already.", SYNC_ROOTS_MAX);
        return NULL;
    }
    root = calloc(1, sizeof(*root));
    if (root == NULL || (root->path = strdup(path)) == NULL) {
        free(root);
        api_error_memory(error);
        return NULL;
    }
    root->part = part;
    root->next = part->roots;
    part->roots = root;
    part->root_count++;
    return root;
}

void sync_root_unpin(struct sync_root *root) {
    struct sync_part *part = root->part;
    loop_timer_stop(sandbox_loop(part->sandbox), &root->unpin);
    blobs_unpin_all(part->means.blobs, sandbox_owner(part->sandbox), root->pins, root->pin_count);
    root->pins = NULL;
    root->pin_count = 0;
}

static void sync_root_late(void *arg) {
    sync_root_unpin(arg);
}

void sync_root_pin(struct sync_root *root, struct sync_op *op) {
    struct sync_part *part = root->part;
    sync_root_unpin(root);
    root->pins = op->pins;
    root->pin_count = op->pin_count;
    op->pins = NULL;
    op->pin_count = 0;
    loop_timer_at(sandbox_loop(part->sandbox), &root->unpin,
                  clock_mono_ns() + SYNC_ROOT_PIN_MS * CLOCK_NS_PER_MS, sync_root_late, root, NULL);
}

void sync_root_free(struct sync_root *root) {
    sync_root_unpin(root);
    if (root->asked != NULL)
        root->asked->root = NULL;
    free(root->path);
    free(root);
}

bool sync_root_has_layers(const struct sync_root *root) {
    return strcmp(root->path, SYNC_ROOT_LAYERED) == 0;
}

static void sync_root_layered(void *arg, int code) {
    struct sync_layer *layer = arg;
    struct sync_root *root = layer->root;
    if (root != NULL) {
        struct sandbox *sb = root->part->sandbox;
        root->asked = NULL;
        root->layer = code == 0 && sandbox_activity(sb).started == layer->started;
        root->layer_serial = sandbox_layer_serial(sb);
        root->tight = root->layer;
    }
    sync_finish(layer->op);
    free(layer);
}

/* How much a sync wrote. */
static size_t sync_root_made(const struct sync_plan *p) {
    size_t made = 0;
    for (size_t i = 0; i < p->count; i++)
        made += p->nodes[i].todo == SYNC_MAKE;
    return made;
}

bool sync_root_waits(const struct sync_op *op) {
    struct sandbox_activity now = sandbox_activity(op->part->sandbox);
    return now.running > 0 && op->began.running == 0 && op->want.snapshot &&
           now.started - op->began.started == op->own_tasks &&
           op->plan.count >= SYNC_ROOT_LAYER_MIN && sync_root_has_layers(op->root);
}

bool sync_root_layer(struct sync_root *root, struct sync_op *op) {
    struct sandbox *sb = root->part->sandbox;
    struct sandbox_activity now = sandbox_activity(sb);
    uint64_t serial = sandbox_layer_serial(sb);
    /* What was written since the sync is in the live layer when that began before the sync did. But
     * what is in no other layer leaves nothing there when it is removed: such rows are loose. */
    root->layer = op->layered && serial == op->layers;
    if (!op->known)
        root->tight = false;
    /* And when it begins afterwards, if no other task wrote anything meanwhile. */
    bool alone = op->began.running == 0 && now.running == 0 &&
                 now.started - op->began.started == op->own_tasks;
    if (!alone || !op->want.snapshot || !sync_root_has_layers(root) || root->asked != NULL ||
        op->plan.count < SYNC_ROOT_LAYER_MIN ||
        (root->layer && sync_root_made(&op->plan) < SYNC_ROOT_LAYER_MIN))
        return false;
    struct sync_layer *layer = calloc(1, sizeof(*layer));
    if (layer == NULL)
        return false;
    *layer = (struct sync_layer){.root = root, .op = op, .started = now.started};
    if (sandbox_boundary(sb, sync_root_layered, layer, NULL) < 0) {
        free(layer);
        return false;
    }
    root->asked = layer;
    return true;
}

size_t sync_root_count(int dir) {
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    size_t n = 0;
    if (list == NULL) {
        fd_close(&fd);
        return 0;
    }
    while ((entry = readdir(list)) != NULL)
        n += sync_index_is_name(entry->d_name);
    closedir(list);
    return n;
}

/* Index files are never written in place, so that both can have the same one. */
void sync_inherit(const struct sandbox *from, const struct sandbox *to) {
    int there = sandbox_dir(to);
    int fd = sandbox_dir(from) < 0 || there < 0
                 ? -1
                 : openat(sandbox_dir(from), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (list == NULL) {
        fd_close(&fd);
        return;
    }
    while ((entry = readdir(list)) != NULL)
        if (sync_index_is_name(entry->d_name) &&
            linkat(fd, entry->d_name, there, entry->d_name, 0) < 0)
            break; /* then it knows of no sync, and says so */
    closedir(list);
}
