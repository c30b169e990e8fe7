/* Any bytes as a document of a container image: parsing neither crashes nor fills in what is not
 * sound. The first byte says which document. */
#include "image_oci.h"

#include <stdlib.h>
#include <string.h>

#include "image_choose.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static void fuzz_index(const char *text, size_t len, struct err *err) {
    static const char *const tags[] = {"", "latest", "a:b"};
    struct image_oci_index *index = malloc(sizeof(*index));
    struct image_oci_blob found;
    fuzz_require(index != NULL);
    if (image_oci_parse_index(text, len, index, err) == 0) {
        fuzz_require(image_oci_is_sound_index(index));
        for (size_t i = 0; i < 3; i++)
            if (image_choose(index, tags[i], &found, err) == 0)
                fuzz_require(found.kind <= IMAGE_OCI_MANIFEST);
    }
    free(index);
}

static void fuzz_rest(uint8_t which, const char *text, size_t len, struct err *err) {
    struct image_oci_manifest *manifest = malloc(sizeof(*manifest));
    struct image_oci_config *config = malloc(sizeof(*config));
    struct image_oci_saved *saved = malloc(sizeof(*saved));
    fuzz_require(manifest != NULL && config != NULL && saved != NULL);
    if (which == 1 && image_oci_parse_manifest(text, len, manifest, err) == 0)
        fuzz_require(image_oci_is_sound_manifest(manifest));
    if (which == 2 && image_oci_parse_config(text, len, config, err) == 0)
        fuzz_require(image_oci_is_sound_config(config));
    if (which == 3 && image_oci_parse_saved(text, len, "", saved, err) == 0)
        fuzz_require(image_oci_is_sound_saved(saved));
    free(manifest);
    free(config);
    free(saved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    uint32_t kind = 99;
    char *text;
    if (size == 0)
        return 0;
    text = malloc(size);
    fuzz_require(text != NULL);
    memcpy(text, data + 1, size - 1);
    if ((data[0] & 3) == 0)
        fuzz_index(text, size - 1, &err);
    else
        fuzz_rest(data[0] & 3, text, size - 1, &err);
    if (image_oci_kind_of(text, size - 1, &kind, &err) == 0)
        fuzz_require(kind <= IMAGE_OCI_LAYER);
    free(text);
    return 0;
}
