/* Which workspace a command means, and where in it one stands. */
#pragma once

#include <limits.h>

#include "err.h"

struct ws_place {
    char path[PATH_MAX];   /* of the workspace, resolved */
    char inside[PATH_MAX]; /* the current directory below it; "" = itself, or it is elsewhere */
};

/* `given`, or with NULL the first directory from the current one upwards that holds .pinfold or
 * .git (the home directory and the root are nobody's project), or else the current one. The root
 * directory is refused. Whatever works on a workspace asks here, so that all mean the same one. */
int ws_find(const char *given, struct ws_place *place, struct err *err);

/* A path as somebody types it in `place` ("./x", "x/", absolute) as the workspace names it. -1: it
 * leads out, or is the workspace itself. */
int ws_find_path(const struct ws_place *place, const char *typed, char path[PATH_MAX],
                 struct err *err);
