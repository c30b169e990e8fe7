/* The image that stands for "host", pinned: what its name meant when the runner started is what
 * containers are made of until it starts again, wherever the name leads meanwhile. */
#pragma once

#include <stdint.h>

#include "engine.h"
#include "err.h"
#include "loop.h"

#define HOST_ID_SIZE (7 + 64 + 1) /* "sha256:", hex, NUL */

struct host_image {
    char id[HOST_ID_SIZE]; /* by which the engine finds it; "" = there is none */
    uint8_t sha256[32];    /* the same; zeros = there is none */
};

/* Asks the engine, which answers already, and turns the loop until it has said it. `name` is what
 * the operator calls the image. ERR_INVALID: the engine has none of that name. After a failure
 * `engine` must be freed before the loop goes on. */
int host_pin(struct engine *engine, struct loop *loop, const char *name, struct host_image *out,
             struct err *err);
