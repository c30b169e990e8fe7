/* From a decoded spec to execve(2). Runs in the child, as the jail's user. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "spec.h"

/* Maps `size` bytes of a memfd privately and writable. NULL with errno. */
char *launch_map(int fd, size_t size);

/* Replaces the process by spec->argv, looked up in the PATH of spec->env when it has no slash; with
 * `shell`, by bash (or sh where there is no bash) running argv[0] as a script. Returns only on
 * failure, with errno and in path[size] what could not be executed: the file itself, or the
 * interpreter that its first line or its ELF header names and that isn't there. */
void launch_exec(struct spec *spec, bool shell, char *path, size_t size);
