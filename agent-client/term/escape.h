/* The way out of a raw terminal, as in ssh: at the start of a line, `~.` leaves and `~~` is one
 * `~`. Every other key goes through, unchanged and in order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct escape {
    bool inside; /* not at the start of a line */
    bool tilde;  /* a `~` at the start of a line is held back until the next key */
};

/* Filters the keys in[len] into out, which has room for len + 1 bytes; returns how many. *leave is
 * set when `~.` was typed: what came after it is dropped. */
size_t escape_feed(struct escape *e, const char *in, size_t len, char *out, bool *leave);
