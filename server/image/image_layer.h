/* One layer of an image on top of those below it.
 *
 * A layer is a tar of what changed. A file named ".wh.NAME" in it says that NAME of the layers
 * below is gone, ".wh..wh..opq" that everything in its directory is. Both speak of the layers below
 * only, wherever in the tar they stand; so the tar is read twice: for what is taken away, then for
 * what is put there.
 *
 * What is put below a symbolic link of the layers below goes where that leads (image_follow.h). A
 * whiteout follows none: engines write them by the real path, and where a directory has taken the
 * place of a link, its whiteouts are about the directory. */
#pragma once

#include "err.h"
#include "image_extract.h"

struct image_layer {
    int fd;          /* the tar, plain or packed; nobody else can change it */
    uint64_t packed; /* its bytes */
    uint64_t ratio;  /* it may unpack to that many times its size, and a little more */
};

/* Applies it below `root`. `count` goes on from the layers before; the bounds are for all of them
 * together. ERR_INVALID names the entry that is refused. */
int image_layer_apply(const struct image_layer *layer, int root, const struct image_bounds *bounds,
                      struct image_count *count, struct err *err);

/* The same from the records of a reader, for tests: first those that take away. */
int image_layer_apply_records(int whiteouts, int entries, const struct image_layer *layer, int root,
                              const struct image_bounds *bounds, struct image_count *count,
                              struct err *err);
