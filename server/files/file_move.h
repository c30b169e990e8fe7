/* The body of POST …/move: {"from": "/a", "to": "/b", "replace": false}; "from_base64" and
 * "to_base64" are for names that are not UTF-8. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "api_error.h"
#include "file_path.h"

/* 0, or -1 with 400 and the field. Absent: `replace` is false. */
int file_move_decode(const char *body, size_t len, char from[FILE_PATH_SIZE],
                     char to[FILE_PATH_SIZE], bool *replace, struct api_error *error);
