/* Which image it is: the digest that the manifest of an imported image names. */
#pragma once

#include <stdint.h>

#include "err.h"

/* Reads IMAGES/NAME/manifest.json. ERR_INVALID when there is no such image (code ENOENT), or its
 * manifest names no digest. The directory and the file must belong to root (or the reader) and not
 * be writable by others: what is verified once must stay what it was. */
int image_pin_read(int images, const char *name, uint8_t sha256[32], struct err *err);
