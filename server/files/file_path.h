/* The path of a file in a sandbox, as the API's URLs and bodies name it. Pure; any bytes but NUL.
 */
#pragma once

#include <stddef.h>

#include "api_error.h"
#include "fileop.h"

#define FILE_PATH_SIZE (FILEOP_PATH_MAX + 1)

/* Brings what follows …/files/ into the form "/a/b": it is absolute in the sandbox, with or without
 * its first slash. Empty and "." components go; ".." takes the one before it away, as in any URL
 * (so without a look at symbolic links), and above the root it is an error. 0, or -1 with 400
 * `bad_path` or `name_too_long`. */
int file_path_clean(const char *text, char path[FILE_PATH_SIZE], struct api_error *error);
