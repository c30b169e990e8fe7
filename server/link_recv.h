/* Receiving from a runner shard: the table of what may come when, and what it does. */
#pragma once

#include "err.h"
#include "link.h"

/* Reads and handles what is there: 1 = there may be more, 0 = nothing now, -1 = the connection must
 * end. */
int link_recv(struct link *l, struct err *err);
