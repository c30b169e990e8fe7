/* What it means for the user that the following of an execution stopped: one sentence, and our exit
 * status. */
#pragma once

#include "err.h"
#include "exec_stream.h"

#define EXEC_OUTCOME_PIPE 141 /* what a shell shows for a program that SIGPIPE ended */

/* After exec_stream_follow(): writes what output is left, then says what is to be said. */
int exec_outcome(struct exec_stream *s, enum exec_stop stop, struct err *err);
