/* Copies a tree that a hostile program made into a layer: contents with their holes, owners, modes,
 * times, extended attributes, links, FIFOs, and what marks removed and replaced files in a live
 * directory. Sockets are left out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "layers.h"

/* Files that processes may change without the file's times telling. */
struct layers_mapped {
    bool all; /* it cannot be known which: any */
    ino_t *ino;
    size_t count, size;
};

struct layers_copy {
    int links;   /* an empty directory on the same file system as the copy: for files that have
                    several   names; its contents are to be removed afterwards */
    bool live;   /* the source is a live directory: its marks are kept, files can be linked later */
    bool steady; /* see layers_walk() */
    const struct layers_mapped *mapped; /* NULL = none */
    uint64_t linked_bytes;              /* out: in files that were linked to the earlier copy */
};

/* Copies directory `from` to a new directory `name` of `to`. `before` are directories of the same
 * place in layers of the file system that `to` is on. Live: there is at most one, the earlier copy,
 * and a file that has not changed since is linked to it. Else `from` is what an overlay makes of
 * them (and of others): a file that comes from one of them is linked. */
int layers_copy_tree(struct layers_copy *copy, int from, const int *before, size_t count, int to,
                     const char *name, struct err *err);

/* Makes an empty directory `name` of `to` with owner, mode, times and attributes of `from`. */
int layers_copy_dir(int from, int to, const char *name, struct err *err);
