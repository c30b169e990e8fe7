/* What the commands `user` and `token` share: the store of a state directory, opened beside a
 * server that may be running. */
#pragma once

#include "accounts.h"
#include "state.h"
#include "store.h"

struct accounts_tool {
    struct state state;
    struct store *store;
    struct accounts *accounts;
};

/* As root, the process becomes the owner of STATE/server for good. */
int accounts_tool_open(struct accounts_tool *t, const char *path, struct err *err);
/* Says to a running server that there is something new, and to the audit log what was done
 * ("user add") to what (a name or an id). */
int accounts_tool_changed(const struct accounts_tool *t, const char *command, const char *subject,
                          struct err *err);
void accounts_tool_close(struct accounts_tool *t);

/* May there be one more user or token? */
int accounts_tool_room(const struct accounts_tool *t, struct err *err);
