/* An imported image becomes one of the engine's: its root file system, as it lies in the state
 * directory, is streamed to the engine as a tar. Layers, registries and their documents were dealt
 * with when it was imported; the engine only ever sees plain files that belong to root. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define LOAD_SECONDS 600 /* all of it together */

struct load_report {
    int32_t code;   /* errno, 0 = done */
    char text[256]; /* one sentence; from the engine in part: to be shown escaped */
};

/* It is refused when, after its last file was read, `image` is not what STATE/images has under
 * `name` any more, or has not the digest that ends `ref`: under the name of a digest the engine
 * gets that image, whole, or none. */
struct load_wish {
    const char *engine; /* its Unix socket */
    const char *prefix; /* of the API's paths: "/v1.41" */
    const char *ref;    /* what it is to be called: "NAME:TAG" */
    const char *name;
    int image; /* directory STATE/images/NAME */
};

/* Forks a process that sends `rootfs` of the image to the engine, and then one datagram, struct
 * load_report, on a socket of which the caller gets the other end in *sock. The child ends by
 * itself, at the latest after LOAD_SECONDS, and with the caller. */
int load_start(const struct load_wish *wish, int *sock, pid_t *child, struct err *err);
