/* Turns the records of an archive's reader into files below a directory. Trusts none of them. */
#pragma once

#include <stdint.h>

#include "err.h"

#define IMAGE_BYTES_DEFAULT ((uint64_t)8 * 1024 * 1024 * 1024)
#define IMAGE_FILES_DEFAULT 1000000u

struct image_bounds {
    uint64_t max_bytes; /* sum of the lengths of all files, holes included */
    uint64_t max_files; /* entries of any type */
};

struct image_paths;

/* One of several layers. */
struct image_extract_layer {
    struct image_paths *paths; /* of this layer so far */
    uint64_t max_bytes;        /* that it may unpack to */
};

struct image_count {
    uint64_t files;    /* entries that were written */
    uint64_t bytes;    /* sum of the lengths of the files */
    uint64_t left_out; /* devices below dev/, sockets */
};

/* Reads records from `in` to the END and writes below `root` (an empty directory of ours).
 * ERR_INVALID names the entry that is refused and why; ERR_PROTOCOL when the reader broke off. What
 * was written until then stays: the caller removes it. */
int image_extract(int in, int root, const struct image_bounds *bounds, struct image_count *count,
                  struct err *err);

/* The same for the entries of a layer on top of what is there: `count` goes on, an entry takes the
 * place of what was below it, whatever that was, and no path comes twice. */
int image_extract_layer(int in, int root, const struct image_bounds *bounds,
                        const struct image_extract_layer *layer, struct image_count *count,
                        struct err *err);
/* And for the whiteouts of a layer: takes away what they name. */
int image_extract_whiteouts(int in, int root, const struct image_bounds *bounds, struct err *err);
