/* A process that takes apart hostile bytes gives up every right first. Both kinds use it: readers
 * of images, which a command forks, and those of archives (tar_apart.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Descriptors that a process may keep. */
#define RIGHTS_KEEP_MAX 4

/* For a child after fork, before it reads the first byte: nothing stays open but `keep` (count of
 * them); root becomes nobody; no new privileges; not to be traced; it dies with its parent; no
 * file, socket or process can be had, nor more than `memory` bytes of address space and `seconds`
 * of processor time (0 = no such limit). From then on the kernel allows reading, writing, memory
 * and the end, and nothing else. -1 with errno: it must end. */
int rights_drop(const int *keep, size_t count, uint64_t memory, unsigned seconds);
