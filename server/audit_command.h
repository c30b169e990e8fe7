/* The chain "cmd" of the audit log: what administrators did with the command line, in processes of
 * their own. Appended under a lock, brought to the disk at once. */
#pragma once

#include <stdint.h>

#include "audit_log.h"
#include "err.h"

/* Records that `command` ("user add", "token revoke", …) was done to `subject` (a name or an id,
 * never a token; NULL = none) by the caller. `server_dir` is STATE/server. As root, files that are
 * made get the owner of the directory. */
int audit_command_record(int server_dir, const char *command, const char *subject, struct err *err);
/* Records, signed, that everything of the chain "log" up to `through` was removed on purpose. */
int audit_command_pruned(int server_dir, const struct audit_mark *through, uint64_t first,
                         struct err *err);
