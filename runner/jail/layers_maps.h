/* Which files do the processes of a jail have mapped shared? Writes through such a mapping may
 * leave no trace in the file's times. */
#pragma once

#include <sys/types.h>

#include "err.h"
#include "layers_copy.h"

/* Looks at process `init`, through `proc` (the host's /proc), and all that descend from it, which
 * must not run. `live`: the directory with home, var_tmp and workspace that the jail writes to.
 * Where something cannot be told, out->all is set. */
int layers_maps_find(int proc, pid_t init, int live, struct layers_mapped *out, struct err *err);
void layers_maps_done(struct layers_mapped *mapped);
