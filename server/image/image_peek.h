/* What kind of image is it? */
#pragma once

#include "err.h"

enum image_peek_form {
    IMAGE_PEEK_ROOTFS, /* an archive: of a root file system, or of nothing that is known */
    IMAGE_PEEK_OCI,    /* a layout */
    IMAGE_PEEK_SAVED,  /* from docker save */
};

/* `fd` is a directory or a regular file. The names in an archive are read by a process without
 * rights, until one cannot be part of an archive of layers. What cannot be read counts as ROOTFS:
 * whoever unpacks it says why. */
int image_peek(int fd, enum image_peek_form *form, struct err *err);
