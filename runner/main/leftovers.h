/* What an earlier life of this state directory left: cgroups, which it recorded when it made them.
 * Mounts, namespaces and processes die with their processes. All paths are relative to STATE, the
 * working directory. */
#pragma once

#include "backend.h"
#include "err.h"
#include "log.h"

/* Removes every recorded group with what is in it, and stale sockets. Only what is recorded:
 * nothing is found by its name. The caller holds the lock, so nobody uses them. */
int leftovers_sweep(enum backend backend, struct log *log, struct err *err);
/* The same for one of them, which is waited for as long as *patience_ns. What was killed and does
 * not die (it waits for a disk that does not answer) stays, is logged, and is nobody's hindrance:
 * it has a group to itself. After one of these the others are not waited for. */
int leftovers_group(const char *path, uint64_t *patience_ns, struct log *log, struct err *err);
/* The name in front of the number in a shard's socket: run/NAME.N.sock. */
const char *leftovers_socket(enum backend backend);
/* Removes the shards' sockets. */
void leftovers_sockets(enum backend backend);
/* Records the groups that this life is going to use; before they are used. */
int leftovers_record(enum backend backend, char paths[][512], unsigned count, struct err *err);
