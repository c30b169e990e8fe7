/* What the commands of the undo journal share. */
#pragma once

#include <stdbool.h>

#include "ws_find.h"

struct undo;

/* Opens the journal of a workspace as ws_find() finds it (*place); says what is wrong and returns
 * NULL. `reads` as in undo.h. *root (may be NULL) becomes a descriptor of the workspace, which is
 * the caller's. */
struct undo *undo_cmd_open(const char *workspace, bool reads, struct ws_place *place, int *root);
