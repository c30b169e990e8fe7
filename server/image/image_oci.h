/* The documents of container images: OCI indexes, manifests and configurations (and Docker's, which
 * differ in their media types), and the manifest.json of `docker save`.
 *
 * Pure functions over hostile text. What they fill in has a fixed size and no pointers, so that it
 * can be made by a process without rights and handed over; whoever takes it from there asks
 * image_oci_is_sound_…() first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define IMAGE_OCI_TEXT_MAX ((size_t)4 * 1024 * 1024) /* bytes of a document */
#define IMAGE_OCI_ENTRIES_MAX 256u                   /* of an index */
#define IMAGE_OCI_LAYERS_MAX 256u
#define IMAGE_OCI_REF_SIZE 256
#define IMAGE_OCI_PATH_SIZE 256
#define IMAGE_OCI_WORD_SIZE 32
#define IMAGE_OCI_NESTING_MAX 4 /* indexes within indexes */

enum image_oci_kind { IMAGE_OCI_INDEX, IMAGE_OCI_MANIFEST, IMAGE_OCI_CONFIG, IMAGE_OCI_LAYER };

/* What a descriptor says: how to find a blob, and how to know that it is that one. */
struct image_oci_blob {
    char hex[65]; /* of its SHA-256, lower case */
    uint64_t size;
    uint32_t kind; /* enum image_oci_kind */
};

struct image_oci_entry {
    struct image_oci_blob blob;
    char os[IMAGE_OCI_WORD_SIZE], machine[IMAGE_OCI_WORD_SIZE]; /* "" = not said */
    char ref[IMAGE_OCI_REF_SIZE]; /* the tag that the index gives it, or "" */
};

struct image_oci_index {
    uint32_t count;
    struct image_oci_entry entries[IMAGE_OCI_ENTRIES_MAX];
};

struct image_oci_manifest {
    struct image_oci_blob config;
    uint32_t layers;
    struct image_oci_blob layer[IMAGE_OCI_LAYERS_MAX]; /* the lowest first */
};

struct image_oci_config {
    char os[IMAGE_OCI_WORD_SIZE], machine[IMAGE_OCI_WORD_SIZE];
    uint32_t layers;
    char diff[IMAGE_OCI_LAYERS_MAX][65]; /* SHA-256 of each layer, unpacked */
};

/* An image of `docker save`: paths within the archive. */
struct image_oci_saved {
    char hex[65]; /* the image's id: what the configuration must hash to */
    char config[IMAGE_OCI_PATH_SIZE];
    uint32_t layers;
    char layer[IMAGE_OCI_LAYERS_MAX][IMAGE_OCI_PATH_SIZE];
};

/* All: ERR_INVALID says which document is wrong, and where. `text` is `len` bytes of anything. */
int image_oci_parse_index(const char *text, size_t len, struct image_oci_index *out,
                          struct err *err);
int image_oci_parse_manifest(const char *text, size_t len, struct image_oci_manifest *out,
                             struct err *err);
int image_oci_parse_config(const char *text, size_t len, struct image_oci_config *out,
                           struct err *err);
/* `tag` "" = there must be only one image. */
int image_oci_parse_saved(const char *text, size_t len, const char *tag,
                          struct image_oci_saved *out, struct err *err);
/* What a document without a known media type is: by its members. */
int image_oci_kind_of(const char *text, size_t len, uint32_t *kind, struct err *err);

/* Numbers in range, texts that end, digests that are some. */
bool image_oci_is_sound_index(const struct image_oci_index *index);
bool image_oci_is_sound_manifest(const struct image_oci_manifest *manifest);
bool image_oci_is_sound_config(const struct image_oci_config *config);
bool image_oci_is_sound_saved(const struct image_oci_saved *saved);
