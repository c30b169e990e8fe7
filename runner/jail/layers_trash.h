/* Removes trees that hostile programs made: by descriptors, through no link, however deep. */
#pragma once

#include "err.h"

/* Moves `name` of `dir` (one component) into `trash`, as `number`. Not there: nothing to do. */
int layers_trash_put(int dir, const char *name, int trash, const char *number, struct err *err);

/* Removes everything in the directory `trash`, best effort: what vanishes meanwhile, or cannot be
 * removed, is left. */
void layers_trash_empty(int trash);
