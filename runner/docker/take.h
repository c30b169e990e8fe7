/* The control socket of a container's process 1, which made it and waits for us to take an end. */
#pragma once

#include <sys/types.h>

#include "err.h"

/* Opens process `pid`, which the engine says is process 1 of container `id`, and makes sure that it
 * is: its control groups are named after the container. -> pidfd */
int take_process(pid_t pid, const char *id, struct err *err);
/* -> descriptor; -1 with err->code EAGAIN: it is not there yet, ask again in a moment. */
int take_control(int pidfd, pid_t pid, struct err *err);
