/* What a program switched on in the terminal that shows its output: the other screen, reports of
 * the mouse, a hidden cursor. When we leave before it switches them off again, we do.
 *
 * Only the private modes of ECMA-48 terminals (CSI ? n h, CSI ? n l) that would disturb the next
 * program; the bytes themselves are not changed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MODES_RESET_MAX 256
#define MODES_PARAMS 16

struct modes {
    uint32_t changed; /* a bit per row of the table: not as it is by default */
    enum { MODES_TEXT, MODES_ESC, MODES_CSI, MODES_PRIVATE } state;
    unsigned param[MODES_PARAMS];
    size_t count;
};

/* Bytes that go to the terminal, cut anywhere. Zeroed to begin with. */
void modes_feed(struct modes *m, const char *data, size_t len);
/* The sequences that put the changed ones back, NUL-terminated; "" when there are none. -> length
 */
size_t modes_reset(const struct modes *m, char dst[MODES_RESET_MAX]);
