/* The executions of one sandbox: the table by id, what is kept of finished ones, and their return
 * after a restart of the server.
 *
 * On disk, in the sandbox's directory: the journal (spool_log.h) and, for executions with more
 * output than fits there, a few files each (spool.h). What a client was told is on disk before he is
 * told; nothing is synced, since a sandbox does not survive its host. */
#pragma once

#include "err.h"

struct sandbox;
struct server;

/* Gives the sandbox its executions (SANDBOX_EXECS): call it when the directory is there, and before
 * adoption; again it does nothing. Reads the journal of a sandbox that is not new. */
int execs_attach(struct server *s, struct sandbox *sb, struct err *err);
