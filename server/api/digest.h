/* SHA-256 of contents. */
#pragma once

#include <stdint.h>

#include "err.h"

#define DIGEST_SIZE 32

/* Of what the file `fd` holds from `offset` on, to its end but at most `max` bytes; when `to` is
 * not -1, they are appended to it. Its position stays. *size (may be NULL): the bytes that there
 * were. */
int digest_file(int fd, uint64_t offset, uint64_t max, int to, uint8_t digest[DIGEST_SIZE],
                uint64_t *size, struct err *err);
