/* Which paths of a layer have been there already. Paths are kept as keyed hashes of 128 bits: the
 * memory that a hostile layer can take is bounded, and it cannot make two paths collide. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum image_paths_kind {
    IMAGE_PATHS_NONE = 0,
    IMAGE_PATHS_ABOVE, /* a directory on the way to an entry */
    IMAGE_PATHS_DIR,   /* an entry that is a directory */
    IMAGE_PATHS_OTHER, /* any other entry */
};

struct image_paths_slot {
    uint64_t hash[2];
    uint64_t kind; /* 0 = free */
};

struct image_paths {
    struct image_paths_slot *slots; /* owned; a power of two of them */
    size_t count, size;
    unsigned char key[16];
};

/* A zeroed struct is empty. */
void image_paths_done(struct image_paths *p);

/* Enters a normalised path and the directories above it. ERR_INVALID: it was there and one of the
 * two is no directory, or something above it is none. */
int image_paths_enter(struct image_paths *p, const char *path, enum image_paths_kind kind,
                      struct err *err);

/* Was there such an entry? */
bool image_paths_is_entry(struct image_paths *p, const char *path);
