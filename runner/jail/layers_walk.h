/* Goes through a tree that hostile programs made, or still change: by descriptors, never through a
 * link, never onto another mount, in constant stack and with a constant number of descriptors,
 * however deep and wide it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "err.h"

/* Each returns 0, or -1 to stop the walk. `dir` is the directory that holds the entry. NULL = not
 * wanted. What vanishes meanwhile is skipped. */
struct layers_walk_ops {
    int (*entry)(void *arg, int dir, const char *name, const struct stat *st, struct err *err);
    int (*enter)(void *arg, int dir, const char *name, int child, struct err *err);
    int (*leave)(void *arg, int dir, const struct stat *st, struct err *err); /* `dir` itself */
};

/* Everything below `root`, which is not itself entered or left. `steady`: inode numbers of
 * directories stay what they are, so that the way up is checked with them. */
int layers_walk(int root, bool steady, const struct layers_walk_ops *ops, void *arg,
                struct err *err);

/* Bytes on disk and number of entries below `root`; files with several names count once. */
int layers_walk_count(int root, uint64_t *bytes, uint64_t *files, struct err *err);

/* Opens a directory below `dir` by one name. -1 with errno. */
int layers_walk_open(int dir, const char *name);
