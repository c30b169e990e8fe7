/* Imported images: STATE/images/NAME/{manifest.json,rootfs/}. Names that begin with '.' are work in
 * progress. Images are read-only once they are there; only root changes the directory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define IMAGE_HOST "host" /* the name of the image that needs none */
#define IMAGE_LIST_MAX 4096
#define IMAGE_SHA256_SIZE 65

struct image {
    char name[64];
    char sha256[IMAGE_SHA256_SIZE]; /* of the archive */
    uint64_t files;                 /* entries */
    uint64_t bytes;                 /* lengths of all files together */
    uint64_t imported_at;           /* ms since the epoch */
};

struct image_list {
    struct image *items; /* owned; sorted by name */
    size_t count;
};

/* Reads the images below the directory `images` (STATE/images). One whose manifest cannot be read
 * is left out: `broken` (may be NULL) counts them. */
int image_list_read(int images, struct image_list *out, size_t *broken, struct err *err);
void image_list_done(struct image_list *list);

/* Reads one manifest. ERR_INVALID when there is no such image or its manifest is wrong. */
int image_read(int images, const char *name, struct image *out, struct err *err);
/* The manifest as JSON text with a newline; in memory that the caller frees. NULL on ENOMEM. */
char *image_manifest(const struct image *image);

/* Is it a name that an image may have? ERR_INVALID says why not. */
int image_check_name(const char *name, struct err *err);

/* Takes an image away: it is gone under its name at once, then its files are removed. The caller
 * holds STATE_LOCK_IMAGES. */
int image_remove(int images, const char *name, struct err *err);
/* Removes what an interrupted import or removal left. The caller holds STATE_LOCK_IMAGES. */
int image_sweep(int images, struct err *err);
