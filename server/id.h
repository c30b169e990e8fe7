/* Ids that cannot be guessed: a prefix and 24 of [a-z0-9], 124 bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define ID_RANDOM_CHARS 24u

/* Writes "<prefix>" and 24 random characters into out[size]. */
int id_make(char *out, size_t size, const char *prefix, struct err *err);
/* Is it "<prefix>" and 20 to 32 of [a-z0-9]? */
bool id_is(const char *text, const char *prefix);
