/* Images from a registry: fetched into STATE/images/.pull, compared with their digests, and then
 * imported like any layout. What was fetched before it broke off is kept for the next attempt. */
#pragma once

#include "err.h"
#include "image.h"
#include "image_fetch.h"
#include "image_layout.h"

struct image_pull {
    struct image_fetch fetch;
    uint64_t ratio; /* as of image_layout_source */
    /* Told what is fetched, one line each. May be NULL. */
    void (*say)(void *arg, const char *line);
    void *arg;
};

/* The caller holds STATE_LOCK_IMAGES. */
int image_pull(int images, const char *name, const struct image_pull *pull,
               const struct image_bounds *bounds, struct image *out, struct image_count *count,
               struct err *err);
