/* Brings what STATE/server/tokens lists into the store.
 *
 * That file is the list of tokens of a state directory as `pinfold-server init` makes it. A line
 * that is not known yet becomes a user and a token; a token that came from there and is no longer
 * listed is revoked. One that was revoked stays so, whatever the file says. */
#pragma once

#include "accounts.h"
#include "store.h"

/* `dir` is the state directory (or AT_FDCWD). *changed is set when the store was written to: `a`,
 * which must have been loaded, is then to be loaded again. A file that is not there changes
 * nothing. */
int accounts_import(int dir, struct store *s, const struct accounts *a, bool *changed,
                    struct err *err);
