/* Gives up root for good. */
#pragma once

#include "err.h"
#include "state.h"

/* Becomes `user`: no supplementary groups, no capability in any set, no_new_privs, not dumpable (so
 * that no other process of the same user may look into this one, and no core file holds tokens).
 * Then verifies that none of it can be undone. A process that is not root only does the rest.
 * With threads it must be called before the first of them is made. */
int drop_privileges(const struct state_user *user, struct err *err);
