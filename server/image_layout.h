/* Images as layers: an OCI layout (a directory or a tar with oci-layout, index.json, blobs/), or
 * what `docker save` writes. Every blob is compared with its digest and size before it is looked
 * at, from a copy that nobody else can change. */
#pragma once

#include <stdbool.h>

#include "err.h"
#include "image.h"
#include "image_extract.h"

#define IMAGE_RATIO_DEFAULT 250u

struct image_layout_source {
    int fd;          /* a directory, or an archive */
    const char *tag; /* "" = there must be only one image */
    bool ours;       /* a directory that only we can change */
    uint64_t ratio;  /* a layer may unpack to that many times its size */
};

/* Makes an image of it, as image_import() does. The digest of the image is that of its manifest
 * (OCI) or of its configuration (`docker save`: the id that Docker shows). */
int image_layout_import(int images, const char *name, const struct image_layout_source *source,
                        const struct image_bounds *bounds, struct image *out,
                        struct image_count *count, struct err *err);
