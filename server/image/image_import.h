/* Makes an image from the archive of a root file system. */
#pragma once

#include "err.h"
#include "image.h"
#include "image_extract.h"

/* `images` is STATE/images, `tar` an open regular file. The image appears under its name when it is
 * complete and on disk, or not at all. The caller holds STATE_LOCK_IMAGES. ERR_INVALID: the archive
 * is refused, or the name is taken. Fills *out and *count. */
int image_import(int images, const char *name, int tar, const struct image_bounds *bounds,
                 struct image *out, struct image_count *count, struct err *err);

/* Unpacks the tar below `root`, an empty directory, as it is: a process without rights reads, this
 * one writes. */
int image_import_unpack(int tar, int root, const struct image_bounds *bounds,
                        struct image_count *count, struct err *err);
