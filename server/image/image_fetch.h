/* Fetching from a registry, by a process of its own without rights: what comes over the network is
 * written to a descriptor that it was given, and is as trustworthy as the network. */
#pragma once

#include <stdint.h>

#include "err.h"
#include "image_registry.h"

struct image_fetch {
    const struct image_registry_ref *ref;
    const char *user;    /* "NAME:PASSWORD", or NULL */
    const char *ca_file; /* certificates to trust instead of the machine's, or NULL */
};

#define IMAGE_FETCH_DIGEST_MAX 72

/* Fetches into `fd`, a file of ours, from its end on: what is there already was fetched before. At
 * most `max` bytes in all. `what` is "manifests/TAG", "manifests/sha256:HEX" or "blobs/sha256:HEX".
 * Goes on where it was broken off, a few times. ERR_INVALID: the registry refuses, or sends more;
 * ERR_SYSTEM: it cannot be reached. */
int image_fetch(const struct image_fetch *f, const char *what, int fd, uint64_t max,
                struct err *err);
