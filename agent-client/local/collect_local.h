/* Writes the files that a run brought back below a local directory.
 *
 * Names and contents come from inside a jail, so they are as hostile as the program that ran there:
 * no path leaves the directory, no link is followed on the way or replaced at its end, nothing
 * below a
 * `.git` is written (its hooks and settings run programs), modes are 0644 or 0755 less the umask.
 * Each file appears whole or not at all, and each is reported. */
#pragma once

#include <stddef.h>

#include "err.h"

struct json_t;

/* `files` is the array of the answer. The directory is made when missing. *failed counts those that
 * could not be written here; files that the run could not give are reported and not counted. -1
 * only when the directory cannot be used. */
int collect_local_write(const struct json_t *files, const char *dir, size_t *failed,
                        struct err *err);
