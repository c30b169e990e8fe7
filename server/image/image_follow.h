/* Where an entry of a layer really goes when a layer below has a symbolic link on the way to it.
 *
 * "bin/sh" on top of a tree in which bin leads to usr/bin is usr/bin/sh, as in every engine. The
 * link is followed as whoever has the tree as root directory would follow it, so an absolute one
 * begins there again. It is followed once, by name, and what comes out is a path without links: who
 * writes there follows none (image_tree.h), so that a mistake here is refused there. */
#pragma once

#include "err.h"
#include "image_paths.h"

/* Replaces `path` (normalised) in place; its last name is not followed. ERR_INVALID: there are too
 * many links, one climbs above the root, or one is of this very layer (`paths`): what that would
 * mean depends on the order of its entries. */
int image_follow(int root, struct image_paths *paths, char path[4096], struct err *err);
