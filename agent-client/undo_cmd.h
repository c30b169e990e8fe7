/* What the commands of the undo journal share. */
#pragma once

struct undo;

/* Opens the journal of a workspace (NULL: the current directory); says what is wrong and returns
 * NULL. */
struct undo *undo_cmd_open(const char *workspace);
