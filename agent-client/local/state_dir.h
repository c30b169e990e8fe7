/* Where the client keeps what must not lie in a workspace: $XDG_STATE_HOME/pinfold, or
 * ~/.local/state/pinfold. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "err.h"

/* An O_DIRECTORY descriptor of the directory `below` ("" or "a/b") there. `make`: it and those
 * above it are made, with mode 0700. -1: ERR_SYSTEM with ENOENT when there is none; ERR_STATE when
 * the environment names no place. */
int state_dir_open(const char *below, bool make, struct err *err);
/* For people: the path of `name` in the directory `fd`; "" when it cannot be told. */
void state_dir_show(int fd, const char *name, char path[PATH_MAX]);
