/* Writes the files of a request into /workspace, as the jail's user and within its limits. */
#pragma once

#include <stddef.h>

/* Reads a bundle from `fd` (a memfd, position anywhere) and creates its files below /workspace with
 * their modes; parents are made, 0755; a file that is there is replaced. No link is followed.
 * Returns 0, or -1 with errno and in path[size] the file that could not be written. */
int unpack_bundle(int fd, char *path, size_t size);
