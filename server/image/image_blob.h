/* Blobs: bytes that are known by their digest. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "image_oci.h"
#include "image_stage.h"

/* Where they are. */
struct image_blobs {
    int dir;   /* of the layout; borrowed */
    bool ours; /* only we can change what is in it; else it is copied first */
    const struct image_stage *stage;
};

/* Opens the file `path` of the layout; of at most `max` bytes. Compares it with the digest `hex`
 * (NULL = none is known) and, when `exact`, with the size `max`. -> a descriptor at its beginning
 * that nobody else writes to. */
struct image_blob_wish {
    const char *path, *hex;
    uint64_t max;
    bool exact;
};
int image_blob_open(const struct image_blobs *b, const struct image_blob_wish *wish,
                    struct err *err);
/* The blob of a descriptor: blobs/sha256/HEX. */
int image_blob_get(const struct image_blobs *b, const struct image_oci_blob *blob, struct err *err);
/* The whole of a small one. */
int image_blob_text(int fd, struct buf *out, struct err *err);
