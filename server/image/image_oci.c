#include "image_oci.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "image_ref.h"
#include "str.h"

#define IMAGE_OCI_NAME_KEY "org.opencontainers.image.ref.name"
#define IMAGE_OCI_CONTAINERD_KEY "io.containerd.image.name"

static const struct {
    const char *type;
    enum image_oci_kind kind;
} image_oci_types[] = {
    {"application/vnd.oci.image.index.v1+json", IMAGE_OCI_INDEX},
    {"application/vnd.docker.distribution.manifest.list.v2+json", IMAGE_OCI_INDEX},
    {"application/vnd.oci.image.manifest.v1+json", IMAGE_OCI_MANIFEST},
    {"application/vnd.docker.distribution.manifest.v2+json", IMAGE_OCI_MANIFEST},
    {"application/vnd.oci.image.config.v1+json", IMAGE_OCI_CONFIG},
    {"application/vnd.docker.container.image.v1+json", IMAGE_OCI_CONFIG},
    {"application/vnd.oci.image.layer.v1.tar", IMAGE_OCI_LAYER},
    {"application/vnd.oci.image.layer.v1.tar+gzip", IMAGE_OCI_LAYER},
    {"application/vnd.oci.image.layer.v1.tar+zstd", IMAGE_OCI_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar", IMAGE_OCI_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar.gzip", IMAGE_OCI_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar.zstd", IMAGE_OCI_LAYER},
};

static int image_oci_wrong(struct err *err, const char *what, const char *why) {
    return err_set(err, ERR_INVALID, 0, "%s of the image %s", what, why);
}

/* NULL when it is no JSON. */
static json_t *image_oci_load(const char *text, size_t len, const char *what, struct err *err) {
    json_t *root = NULL;
    if (len <= IMAGE_OCI_TEXT_MAX)
        root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (root == NULL)
        image_oci_wrong(err, what, len <= IMAGE_OCI_TEXT_MAX ? "is not JSON" : "is too long");
    return root;
}

/* Printable ASCII into a fixed place: nothing else is needed, and it will be shown. False when it
 * is something else. */
static bool image_oci_take_text(const json_t *value, char *out, size_t size) {
    const char *text = json_string_value(value);
    if (text == NULL)
        return value == NULL;
    for (const char *p = text; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return false;
    return str_copy(out, size, text);
}

static int image_oci_take_digest(const json_t *value, char hex[65], const char *what,
                                 struct err *err) {
    const char *text = json_string_value(value);
    uint8_t bytes[32];
    if (text == NULL)
        return image_oci_wrong(err, what, "names no digest");
    if (strncmp(text, "sha256:", 7) != 0 || !image_ref_hex(text + 7, bytes))
        return image_oci_wrong(err, what, "has a digest that is not sha256 with 64 hex digits");
    memcpy(hex, text + 7, 65);
    return 0;
}

static int image_oci_take_kind(const json_t *value, uint32_t *kind) {
    const char *type = json_string_value(value);
    for (size_t i = 0; type != NULL && i < sizeof(image_oci_types) / sizeof(image_oci_types[0]);
         i++)
        if (strcmp(type, image_oci_types[i].type) == 0) {
            *kind = image_oci_types[i].kind;
            return 0;
        }
    return -1;
}

/* 1 = taken, 0 = of a media type that is not `a` or `b`. */
static int image_oci_take_blob(const json_t *value, enum image_oci_kind a, enum image_oci_kind b,
                               struct image_oci_blob *out, struct err *err) {
    static const char *const names[] = {"the index", "the manifest", "the configuration",
                                        "a layer"};
    const char *what = names[a];
    const json_t *size = json_object_get(value, "size");
    struct image_oci_blob blob = {0};
    if (!json_is_object(value))
        return image_oci_wrong(err, what, "has no descriptor");
    if (image_oci_take_kind(json_object_get(value, "mediaType"), &blob.kind) < 0 ||
        (blob.kind != (uint32_t)a && blob.kind != (uint32_t)b))
        return 0;
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return image_oci_wrong(err, what, "names no size");
    blob.size = (uint64_t)json_integer_value(size);
    if (image_oci_take_digest(json_object_get(value, "digest"), blob.hex, what, err) < 0)
        return -1;
    *out = blob;
    return 1;
}

/* Index. */

static int image_oci_take_entry(const json_t *value, struct image_oci_index *out, struct err *err) {
    struct image_oci_entry e = {0};
    const json_t *notes = json_object_get(value, "annotations");
    const json_t *ref = json_object_get(notes, IMAGE_OCI_NAME_KEY);
    const json_t *platform = json_object_get(value, "platform");
    /* Signatures, attestations and the like are none of ours. */
    int rc = image_oci_take_blob(value, IMAGE_OCI_INDEX, IMAGE_OCI_MANIFEST, &e.blob, err);
    if (rc <= 0)
        return rc;
    if (ref == NULL)
        ref = json_object_get(notes, IMAGE_OCI_CONTAINERD_KEY);
    if (!image_oci_take_text(json_object_get(platform, "os"), e.os, sizeof(e.os)) ||
        !image_oci_take_text(json_object_get(platform, "architecture"), e.machine,
                             sizeof(e.machine)) ||
        !image_oci_take_text(ref, e.ref, sizeof(e.ref)))
        return image_oci_wrong(err, "the index", "has a name that is too long or not plain text");
    if (out->count == IMAGE_OCI_ENTRIES_MAX)
        return image_oci_wrong(err, "the index", "lists more than 256 manifests");
    out->entries[out->count++] = e;
    return 0;
}

static int image_oci_schema(const json_t *root, const char *what, struct err *err) {
    if (!json_is_object(root) || json_integer_value(json_object_get(root, "schemaVersion")) != 2)
        return image_oci_wrong(err, what, "is not of schema version 2");
    return 0;
}

int image_oci_parse_index(const char *text, size_t len, struct image_oci_index *out,
                          struct err *err) {
    json_t *root = image_oci_load(text, len, "the index", err);
    json_t *list = json_object_get(root, "manifests");
    int rc = root == NULL ? -1 : image_oci_schema(root, "the index", err);
    memset(out, 0, sizeof(*out));
    if (rc == 0 && !json_is_array(list))
        rc = image_oci_wrong(err, "the index", "lists no manifests");
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
        rc = image_oci_take_entry(json_array_get(list, i), out, err);
    json_decref(root);
    return rc;
}

/* Manifest. */

static int image_oci_take_layers(const json_t *list, struct image_oci_manifest *out,
                                 struct err *err) {
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > IMAGE_OCI_LAYERS_MAX)
        return image_oci_wrong(err, "the manifest", "must list 1 to 256 layers");
    for (size_t i = 0; i < count; i++) {
        int rc = image_oci_take_blob(json_array_get(list, i), IMAGE_OCI_LAYER, IMAGE_OCI_LAYER,
                                     &out->layer[i], err);
        if (rc == 0)
            return image_oci_wrong(err, "a layer",
                                   "is of a kind that is not supported: not a tar, encrypted, or "
                                   "to be fetched from elsewhere");
        if (rc < 0)
            return -1;
    }
    out->layers = (uint32_t)count;
    return 0;
}

int image_oci_parse_manifest(const char *text, size_t len, struct image_oci_manifest *out,
                             struct err *err) {
    json_t *root = image_oci_load(text, len, "the manifest", err);
    int rc = root == NULL ? -1 : image_oci_schema(root, "the manifest", err);
    memset(out, 0, sizeof(*out));
    if (rc == 0) {
        rc = image_oci_take_blob(json_object_get(root, "config"), IMAGE_OCI_CONFIG,
                                 IMAGE_OCI_CONFIG, &out->config, err);
        if (rc == 0)
            rc = image_oci_wrong(err, "the manifest",
                                 "is not one of an image: its configuration "
                                 "is of another kind");
        rc = rc < 0 ? -1 : 0;
    }
    if (rc == 0)
        rc = image_oci_take_layers(json_object_get(root, "layers"), out, err);
    json_decref(root);
    return rc;
}

/* Configuration. */

static int image_oci_take_diffs(const json_t *list, struct image_oci_config *out, struct err *err) {
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > IMAGE_OCI_LAYERS_MAX)
        return image_oci_wrong(err, "the configuration", "must name 1 to 256 layers");
    for (size_t i = 0; i < count; i++)
        if (image_oci_take_digest(json_array_get(list, i), out->diff[i], "the configuration", err) <
            0)
            return -1;
    out->layers = (uint32_t)count;
    return 0;
}

int image_oci_parse_config(const char *text, size_t len, struct image_oci_config *out,
                           struct err *err) {
    json_t *root = image_oci_load(text, len, "the configuration", err);
    const json_t *rootfs = json_object_get(root, "rootfs");
    int rc = root == NULL ? -1 : 0;
    memset(out, 0, sizeof(*out));
    if (rc == 0 && (!image_oci_take_text(json_object_get(root, "os"), out->os, sizeof(out->os)) ||
                    !image_oci_take_text(json_object_get(root, "architecture"), out->machine,
                                         sizeof(out->machine)) ||
                    out->os[0] == '\0' || out->machine[0] == '\0'))
        rc = image_oci_wrong(err, "the configuration", "does not say for which machine it is");
    if (rc == 0)
        rc = image_oci_take_diffs(json_object_get(rootfs, "diff_ids"), out, err);
    json_decref(root);
    return rc;
}

int image_oci_kind_of(const char *text, size_t len, uint32_t *kind, struct err *err) {
    json_t *root = image_oci_load(text, len, "the manifest", err);
    int rc = root == NULL ? -1 : 0;
    if (rc == 0 && image_oci_take_kind(json_object_get(root, "mediaType"), kind) < 0) {
        if (json_is_array(json_object_get(root, "manifests")))
            *kind = IMAGE_OCI_INDEX;
        else if (json_is_array(json_object_get(root, "layers")))
            *kind = IMAGE_OCI_MANIFEST;
        else
            rc = image_oci_wrong(err, "the manifest",
                                 "is neither an index nor a manifest of schema version 2");
    }
    json_decref(root);
    return rc;
}

/* docker save. */

static bool image_oci_is_path(const char *text) {
    return text[0] != '\0' && text[0] != '/' && strstr(text, "..") == NULL;
}

static bool image_oci_has_tag(const json_t *image, const char *tag) {
    const json_t *tags = json_object_get(image, "RepoTags");
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const char *text = json_string_value(json_array_get(tags, i));
        const char *colon = text != NULL ? strrchr(text, ':') : NULL;
        if (text != NULL && (strcmp(text, tag) == 0 || (colon && strcmp(colon + 1, tag) == 0)))
            return true;
    }
    return false;
}

static const json_t *image_oci_find_saved(const json_t *root, const char *tag, struct err *err) {
    const json_t *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *image = json_array_get(root, i);
        if (tag[0] == '\0' || image_oci_has_tag(image, tag)) {
            found = image;
            count++;
        }
    }
    if (count == 1)
        return found;
    err_set(err, ERR_INVALID, 0, "%s; say which with :TAG",
            count == 0 ? "the archive has no image of that tag"
                       : "the archive has more than one image");
    return NULL;
}

/* "HEX.json" and "blobs/sha256/HEX" both name the digest. */
static bool image_oci_saved_id(const char *path, char hex[65]) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    uint8_t bytes[32];
    char id[65];
    snprintf(id, sizeof(id), "%.64s", name);
    if (!image_ref_hex(id, bytes) || (name[64] != '\0' && strcmp(name + 64, ".json") != 0))
        return false;
    memcpy(hex, id, sizeof(id));
    return true;
}

static int image_oci_take_saved(const json_t *image, struct image_oci_saved *out, struct err *err) {
    const json_t *layers = json_object_get(image, "Layers");
    size_t count = json_array_size(layers);
    if (!image_oci_take_text(json_object_get(image, "Config"), out->config, sizeof(out->config)) ||
        !image_oci_is_path(out->config) || !image_oci_saved_id(out->config, out->hex))
        return image_oci_wrong(err, "manifest.json", "names no configuration");
    if (count == 0 || count > IMAGE_OCI_LAYERS_MAX)
        return image_oci_wrong(err, "manifest.json", "must list 1 to 256 layers");
    for (size_t i = 0; i < count; i++)
        if (!image_oci_take_text(json_array_get(layers, i), out->layer[i], sizeof(out->layer[i])) ||
            !image_oci_is_path(out->layer[i]))
            return image_oci_wrong(err, "manifest.json", "has a layer that is no path");
    out->layers = (uint32_t)count;
    return 0;
}

int image_oci_parse_saved(const char *text, size_t len, const char *tag,
                          struct image_oci_saved *out, struct err *err) {
    json_t *root = image_oci_load(text, len, "manifest.json", err);
    const json_t *image = root != NULL ? image_oci_find_saved(root, tag, err) : NULL;
    int rc;
    memset(out, 0, sizeof(*out));
    rc = image != NULL ? image_oci_take_saved(image, out, err) : -1;
    json_decref(root);
    return rc;
}

/* What another process filled in. */

static bool image_oci_ends(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static bool image_oci_is_blob(const struct image_oci_blob *b) {
    uint8_t bytes[32];
    return b->hex[64] == '\0' && image_ref_hex(b->hex, bytes) && b->kind <= IMAGE_OCI_LAYER;
}

bool image_oci_is_sound_index(const struct image_oci_index *index) {
    if (index->count > IMAGE_OCI_ENTRIES_MAX)
        return false;
    for (uint32_t i = 0; i < index->count; i++) {
        const struct image_oci_entry *e = &index->entries[i];
        if (!image_oci_is_blob(&e->blob) || !image_oci_ends(e->os, sizeof(e->os)) ||
            !image_oci_ends(e->machine, sizeof(e->machine)) ||
            !image_oci_ends(e->ref, sizeof(e->ref)))
            return false;
    }
    return true;
}

bool image_oci_is_sound_manifest(const struct image_oci_manifest *manifest) {
    if (!image_oci_is_blob(&manifest->config) || manifest->layers == 0 ||
        manifest->layers > IMAGE_OCI_LAYERS_MAX)
        return false;
    for (uint32_t i = 0; i < manifest->layers; i++)
        if (!image_oci_is_blob(&manifest->layer[i]))
            return false;
    return true;
}

bool image_oci_is_sound_config(const struct image_oci_config *config) {
    uint8_t bytes[32];
    if (!image_oci_ends(config->os, sizeof(config->os)) ||
        !image_oci_ends(config->machine, sizeof(config->machine)) || config->layers == 0 ||
        config->layers > IMAGE_OCI_LAYERS_MAX)
        return false;
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->diff[i][64] != '\0' || !image_ref_hex(config->diff[i], bytes))
            return false;
    return true;
}

bool image_oci_is_sound_saved(const struct image_oci_saved *saved) {
    uint8_t bytes[32];
    if (saved->hex[64] != '\0' || !image_ref_hex(saved->hex, bytes) ||
        !image_oci_ends(saved->config, sizeof(saved->config)) ||
        !image_oci_is_path(saved->config) || saved->layers == 0 ||
        saved->layers > IMAGE_OCI_LAYERS_MAX)
        return false;
    for (uint32_t i = 0; i < saved->layers; i++)
        if (!image_oci_ends(saved->layer[i], sizeof(saved->layer[i])) ||
            !image_oci_is_path(saved->layer[i]))
            return false;
    return true;
}
