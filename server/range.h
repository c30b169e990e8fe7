/* The Range header of a GET (RFC 9110, section 14): one range of bytes. Pure. */
#pragma once

#include <stdint.h>

enum range_result {
    RANGE_NONE, /* no header, or one that asks for something else than one range: send all */
    RANGE_PART, /* [*first, *last], both within the size */
    RANGE_UNSATISFIABLE, /* 416 */
};

/* `header` may be NULL; `size` is that of the whole. */
enum range_result range_parse(const char *header, uint64_t size, uint64_t *first, uint64_t *last);
