/* Answers on stdout. */
#pragma once

#include <stddef.h>

struct json_t;

/* `value` with jansson's `flags`, and the end of the line. When memory is too short for all of it
 * the process ends, with a sentence and CLIENT_EXIT_TROUBLE: half of it must not look like the
 * whole. That it could not be written is seen at the end of main(). NULL prints nothing. */
void print_json(const struct json_t *value, size_t flags);
