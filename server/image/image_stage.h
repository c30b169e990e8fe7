/* An image that is being made: a directory beside the images, which gets its name when it is
 * complete and on disk, or goes. */
#pragma once

#include "err.h"
#include "image.h"
#include "image_extract.h"

struct image_stage {
    int images; /* borrowed */
    int dir;    /* STATE/images/.import-… */
    int root;   /* its rootfs/ */
    char temp[48];
    struct image image; /* name is filled in; the rest is the caller's */
};

/* The caller holds STATE_LOCK_IMAGES. ERR_INVALID: the name cannot be, or is taken. Removes what
 * earlier ones left. image_stage_done() follows in any case when this returns 0. */
int image_stage_begin(int images, const char *name, struct image_stage *stage, struct err *err);
/* Mount targets, manifest, disk, name. */
int image_stage_finish(struct image_stage *stage, const struct image_count *count, struct err *err);
/* Removes what was not finished. */
void image_stage_done(struct image_stage *stage);

/* A new file of the stage's that has no name any more. -> fd */
int image_stage_file(const struct image_stage *stage, struct err *err);
