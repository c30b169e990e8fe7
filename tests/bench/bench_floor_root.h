/* The read-only root of the floor's jails, made once per worker. */
#pragma once

#include "err.h"

/* Moves the calling process into a mount namespace of its own whose root is what a jail sees: a
 * small tmpfs with /usr, a synthesised /etc, a minimal /dev, and empty directories to mount on.
 * There is no way back; it goes when the process and its children are gone. */
int bench_floor_root_enter(struct err *err);
