/* Which image a template was made of: how a change of what lies under its name is noticed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "err.h"

struct pool_image {
    ino_t ino; /* of its directory: one that was imported anew has another */
    struct timespec changed;
    uint8_t sha256[32]; /* of what its manifest names; zeros: "host" */
};

/* What lies under the name now; its digest is not read. "host" is always the same. ERR_INVALID with
 * ENOENT: nothing does. */
int pool_image_look(int images, const char *name, struct pool_image *out, struct err *err);
bool pool_image_same(const struct pool_image *a, const struct pool_image *b);
/* Reads the digest as well. */
int pool_image_pin(int images, const char *name, struct pool_image *out, struct err *err);
/* Did it change since? Then what was made of it meanwhile may be made of two. */
int pool_image_still(int images, const char *name, const struct pool_image *image, struct err *err);
