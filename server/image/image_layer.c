#include "image_layer.h"

#include <unistd.h>

#include "fd.h"
#include "image_apart.h"
#include "image_paths.h"
#include "image_reader.h"

#define IMAGE_LAYER_SLACK ((uint64_t)64 * 1024 * 1024) /* small layers may be packed very well */

struct image_layer_read {
    struct image_bounds left;
    enum image_reader_what what;
};

static int image_layer_read(int in, int out, const void *arg) {
    const struct image_layer_read *r = arg;

    return image_reader_run(in, out, r->left.max_bytes, r->left.max_files, r->what);
}

/* Starts the reader. -> the end of its records */
static int image_layer_start(const struct image_layer *layer, enum image_reader_what what,
                             const struct image_bounds *left, pid_t *child, struct err *err) {
    const struct image_layer_read r = {*left, what};

    if (lseek(layer->fd, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot read the layer");
    return image_apart_start(image_layer_read, layer->fd, &r, child, err);
}

static uint64_t image_layer_bytes(const struct image_layer *layer) {
    uint64_t most = UINT64_MAX - IMAGE_LAYER_SLACK;

    if (layer->packed > 0 && layer->ratio < most / layer->packed)
        most = layer->ratio * layer->packed;
    return layer->packed > 0 ? most + IMAGE_LAYER_SLACK : IMAGE_LAYER_SLACK;
}

static int image_layer_put(int in, const struct image_layer *layer, int root,
                           const struct image_bounds *bounds, struct image_count *count,
                           struct err *err) {
    struct image_paths paths = {0};
    const struct image_extract_layer how = {.paths = &paths, .max_bytes = image_layer_bytes(layer)};
    int rc = image_extract_layer(in, root, bounds, &how, count, err);

    image_paths_done(&paths);
    return rc;
}

int image_layer_apply_records(int whiteouts, int entries, const struct image_layer *layer, int root,
                              const struct image_bounds *bounds, struct image_count *count,
                              struct err *err) {
    if (image_extract_whiteouts(whiteouts, root, bounds, err) < 0)
        return -1;
    return image_layer_put(entries, layer, root, bounds, count, err);
}

/* One reading of the layer. */
static int image_layer_pass(const struct image_layer *layer, enum image_reader_what what, int root,
                            const struct image_bounds *bounds, struct image_count *count,
                            struct err *err) {
    const struct image_bounds left = {bounds->max_bytes - count->bytes,
                                      bounds->max_files - count->files};
    struct err why = {0};
    pid_t child = -1;
    fd_cleanup int in = image_layer_start(layer, what, &left, &child, err);
    int rc;

    if (in < 0)
        return -1;
    if (what == IMAGE_READER_WHITEOUTS)
        rc = image_extract_whiteouts(in, root, bounds, err);
    else
        rc = image_layer_put(in, layer, root, bounds, count, err);
    fd_close(&in);
    if (image_apart_reap(child, &why) < 0 && rc < 0 && err != NULL)
        *err = why;
    return rc;
}

int image_layer_apply(const struct image_layer *layer, int root, const struct image_bounds *bounds,
                      struct image_count *count, struct err *err) {
    if (image_layer_pass(layer, IMAGE_READER_WHITEOUTS, root, bounds, count, err) < 0)
        return -1;
    return image_layer_pass(layer, IMAGE_READER_ENTRIES, root, bounds, count, err);
}
