#include "image_layout.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "image_apart.h"
#include "image_blob.h"
#include "image_choose.h"
#include "image_import.h"
#include "image_layer.h"
#include "image_oci.h"
#include "image_peek.h"
#include "image_stage.h"
#include "image_tree.h"
#include "str.h"

#define IMAGE_LAYOUT_FILES 4096u /* of an archive of layers */

/* One import. */
struct image_layout {
    const struct image_layout_source *source;
    const struct image_bounds *bounds;
    struct image_stage stage;
    struct image_blobs blobs;
    struct image_count *count;
    struct image_oci_manifest manifest;
    struct image_oci_config config;
    struct image_oci_saved saved;
    struct image_oci_index index;
};

/* Documents are parsed by a process without rights. */

static int image_layout_do_index(const void *in, size_t len, void *out, struct err *err) {
    return image_oci_parse_index(in, len, out, err);
}

static int image_layout_do_manifest(const void *in, size_t len, void *out, struct err *err) {
    return image_oci_parse_manifest(in, len, out, err);
}

static int image_layout_do_config(const void *in, size_t len, void *out, struct err *err) {
    return image_oci_parse_config(in, len, out, err);
}

struct image_layout_saved_in {
    const struct buf *text;
    const char *tag;
};

static int image_layout_do_saved(const void *in, size_t len, void *out, struct err *err) {
    const struct image_layout_saved_in *x = in;

    (void)len;
    return image_oci_parse_saved(x->text->data, x->text->len, x->tag, out, err);
}

static int image_layout_unsound(struct err *err) {
    return err_set(err, ERR_PROTOCOL, 0, "the reader of the image gave a wrong answer");
}

/* Reads the whole of `fd` into `text`. */
static int image_layout_text(int fd, struct buf *text, struct err *err) {
    buf_init(text, IMAGE_OCI_TEXT_MAX);
    if (image_blob_text(fd, text, err) == 0 && buf_append(text, "", 1, err) == 0) {
        text->len--;
        return 0;
    }
    buf_done(text);
    return -1;
}

static int image_layout_parse(int fd, image_apart_fn *fn, void *out, size_t size, struct err *err) {
    struct buf text;
    int rc;

    if (image_layout_text(fd, &text, err) < 0)
        return -1;
    rc = image_apart(fn, text.data, text.len, out, size, err);
    buf_done(&text);
    return rc;
}

static int image_layout_take_index(struct image_layout *l, int fd, struct err *err) {
    if (image_layout_parse(fd, image_layout_do_index, &l->index, sizeof(l->index), err) < 0)
        return -1;
    return image_oci_is_sound_index(&l->index) ? 0 : image_layout_unsound(err);
}

static int image_layout_small(const struct image_oci_blob *blob, struct err *err) {
    if (blob->size <= IMAGE_OCI_TEXT_MAX)
        return 0;
    return err_set(err, ERR_INVALID, 0, "the document sha256:%s has more than %zu bytes", blob->hex,
                   IMAGE_OCI_TEXT_MAX);
}

/* From the index to the manifest of the image. */
static int image_layout_find(struct image_layout *l, struct image_oci_blob *found,
                             struct err *err) {
    const struct image_blob_wish top = {.path = "index.json", .max = IMAGE_OCI_TEXT_MAX};
    const char *tag = l->source->tag;
    fd_cleanup int fd = image_blob_open(&l->blobs, &top, err);

    for (int depth = 0; depth < IMAGE_OCI_NESTING_MAX && fd >= 0; depth++) {
        if (image_layout_take_index(l, fd, err) < 0 ||
            image_choose(&l->index, tag, found, err) < 0 || image_layout_small(found, err) < 0)
            return -1;
        if (found->kind == IMAGE_OCI_MANIFEST)
            return 0;
        /* Below the tag there are the machines. */
        tag = "";
        fd_close(&fd);
        fd = image_blob_get(&l->blobs, found, err);
    }
    return fd < 0 ? -1
                  : err_set(err, ERR_INVALID, 0, "the indexes of the image are nested too deep");
}

static int image_layout_take_config(struct image_layout *l, int fd, uint32_t layers,
                                    struct err *err) {
    if (image_layout_parse(fd, image_layout_do_config, &l->config, sizeof(l->config), err) < 0)
        return -1;
    if (!image_oci_is_sound_config(&l->config))
        return image_layout_unsound(err);
    if (l->config.layers != layers)
        return err_set(err, ERR_INVALID, 0,
                       "the configuration of the image names %u layers, its manifest %u",
                       l->config.layers, layers);
    return image_choose_check(&l->config, err);
}

static int image_layout_put(struct image_layout *l, int fd, uint32_t number, struct err *err) {
    struct image_layer layer = {.fd = fd, .ratio = l->source->ratio};
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read layer %u", number);
    layer.packed = (uint64_t)st.st_size;
    if (image_layer_apply(&layer, l->stage.root, l->bounds, l->count, err) < 0)
        return err_wrap(err, "layer %u", number);
    return 0;
}

static int image_layout_oci(struct image_layout *l, struct err *err) {
    struct image_oci_blob found;
    fd_cleanup int manifest = -1;
    fd_cleanup int config = -1;

    if (image_layout_find(l, &found, err) < 0)
        return -1;
    manifest = image_blob_get(&l->blobs, &found, err);
    if (manifest < 0 || image_layout_parse(manifest, image_layout_do_manifest, &l->manifest,
                                           sizeof(l->manifest), err) < 0)
        return -1;
    if (!image_oci_is_sound_manifest(&l->manifest))
        return image_layout_unsound(err);
    (void)str_copy(l->stage.image.sha256, sizeof(l->stage.image.sha256), found.hex);
    if (image_layout_small(&l->manifest.config, err) < 0)
        return -1;
    config = image_blob_get(&l->blobs, &l->manifest.config, err);
    if (config < 0 || image_layout_take_config(l, config, l->manifest.layers, err) < 0)
        return -1;
    for (uint32_t i = 0; i < l->manifest.layers; i++) {
        fd_cleanup int layer = -1;

        if (l->manifest.layer[i].size > l->bounds->max_bytes)
            return err_set(err, ERR_INVALID, 0, "layer %u is larger than the image may be", i + 1);
        layer = image_blob_get(&l->blobs, &l->manifest.layer[i], err);
        if (layer < 0 || image_layout_put(l, layer, i + 1, err) < 0)
            return -1;
    }
    return 0;
}

/* docker save: the layers are plain tars, whose digests the configuration names. */
static int image_layout_saved(struct image_layout *l, struct err *err) {
    const struct image_blob_wish top = {.path = "manifest.json", .max = IMAGE_OCI_TEXT_MAX};
    struct image_blob_wish wish = {
        .path = l->saved.config, .hex = l->saved.hex, .max = IMAGE_OCI_TEXT_MAX};
    struct buf text;
    struct image_layout_saved_in in = {&text, l->source->tag};
    fd_cleanup int fd = image_blob_open(&l->blobs, &top, err);
    int rc;

    if (fd < 0 || image_layout_text(fd, &text, err) < 0)
        return -1;
    rc = image_apart(image_layout_do_saved, &in, sizeof(in), &l->saved, sizeof(l->saved), err);
    buf_done(&text);
    if (rc == 0 && !image_oci_is_sound_saved(&l->saved))
        rc = image_layout_unsound(err);
    if (rc < 0)
        return -1;
    (void)str_copy(l->stage.image.sha256, sizeof(l->stage.image.sha256), l->saved.hex);
    fd_close(&fd);
    fd = image_blob_open(&l->blobs, &wish, err);
    if (fd < 0 || image_layout_take_config(l, fd, l->saved.layers, err) < 0)
        return -1;
    for (uint32_t i = 0; i < l->saved.layers; i++) {
        fd_cleanup int layer = -1;

        wish = (struct image_blob_wish){
            .path = l->saved.layer[i], .hex = l->config.diff[i], .max = l->bounds->max_bytes};
        layer = image_blob_open(&l->blobs, &wish, err);
        if (layer < 0 || image_layout_put(l, layer, i + 1, err) < 0)
            return -1;
    }
    return 0;
}

/* An archive is unpacked first, as it is: files and directories of ours. -> fd */
static int image_layout_open(struct image_layout *l, struct err *err) {
    const struct image_bounds bounds = {l->bounds->max_bytes, IMAGE_LAYOUT_FILES};
    struct image_count count;
    fd_cleanup int dir = -1;

    if (mkdirat(l->stage.dir, "layout", 0700) < 0)
        return err_sys(err, "cannot make a directory for the layers");
    dir = image_tree_open_dir(l->stage.dir, "layout", err);
    if (dir < 0 || image_import_unpack(l->source->fd, dir, &bounds, &count, err) < 0)
        return -1;
    return fd_steal(&dir);
}

static int image_layout_fill(struct image_layout *l, enum image_peek_form form, struct err *err) {
    fd_cleanup int unpacked = -1;
    struct stat st;
    int rc;

    if (fstat(l->source->fd, &st) < 0)
        return err_sys(err, "cannot read the image");
    l->blobs =
        (struct image_blobs){.dir = l->source->fd, .ours = l->source->ours, .stage = &l->stage};
    if (!S_ISDIR(st.st_mode)) {
        unpacked = image_layout_open(l, err);
        if (unpacked < 0)
            return -1;
        l->blobs.dir = unpacked;
        l->blobs.ours = true;
    }
    rc = form == IMAGE_PEEK_OCI ? image_layout_oci(l, err) : image_layout_saved(l, err);
    if (rc == 0 && l->count->files == 0)
        rc = err_set(err, ERR_INVALID, 0, "the image holds no files");
    if (rc == 0 && unpacked >= 0)
        rc = image_tree_remove(l->stage.dir, "layout", err);
    return rc;
}

int image_layout_import(int images, const char *name, const struct image_layout_source *source,
                        const struct image_bounds *bounds, struct image *out,
                        struct image_count *count, struct err *err) {
    struct image_layout *l = calloc(1, sizeof(*l));
    enum image_peek_form form = IMAGE_PEEK_ROOTFS;
    int rc;

    if (l == NULL)
        return err_sys(err, "cannot read the image");
    *count = (struct image_count){0};
    l->source = source;
    l->bounds = bounds;
    l->count = count;
    rc = image_peek(source->fd, &form, err);
    if (rc == 0 && form == IMAGE_PEEK_ROOTFS)
        rc = err_set(err, ERR_INVALID, 0, "it is neither an OCI layout nor from docker save");
    if (rc == 0)
        rc = image_stage_begin(images, name, &l->stage, err);
    if (rc == 0) {
        rc = image_layout_fill(l, form, err);
        if (rc == 0)
            rc = image_stage_finish(&l->stage, count, err);
        if (rc == 0)
            *out = l->stage.image;
        image_stage_done(&l->stage);
    }
    free(l);
    return rc;
}
