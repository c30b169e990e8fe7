/* The tree that is there, made of the one that was there at the last sync and of what the upper
 * layer of an overlay says was written since. Pure. */
#pragma once

#include "err.h"
#include "sync_index.h"
#include "sync_tree.h"

/* `upper` is what the operation of that name told, finished; `out` an empty tree. `tight`: no row
 * of the index is loose, whatever it says. 0: out is as `scan` would tell it. 1: that cannot be
 * told from the layer alone: a scan is needed. */
int sync_upper_tree(const struct sync_index *index, bool tight, const struct sync_tree *upper,
                    struct sync_tree *out, struct err *err);
