/* pinfold-init: process 1 of a jail.
 *
 * Theory of operation. The runner clones this static program into new namespaces as user 0 of a new
 * user namespace. It then walks one ordered list of steps (setup.c) that builds what the jail sees,
 * and gives up its powers one by one. The first child is forked before the last of them goes,
 * because only a process with a capability can make itself a cgroup namespace. After SEAL process 1
 * has no capability, an id of its own (2), cannot be traced, and only forks, reaps and reports.
 *
 * Its real and effective ids are 2, its saved ids 1000: a child may therefore become user 1000
 * without any capability. No command may signal the child that waits for its turn
 * (setup_before_fork()), and nothing can end process 1 from inside: it is process 1 of its pid
 * namespace and installs no handler. When its control socket ends it exits, and the kernel ends the
 * whole jail. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "initmsg.h"

/* Serves the control socket until it ends. Returns the exit code. `contained`: as process 1 of a
 * container, which was made as the user of the commands and without any power over the host. It
 * makes a user namespace of its own for what it needs (setup_apart()), and the control socket
 * itself, whose other end the runner takes from it (INITMSG_FAR_FD). */
int init_run(bool contained);

/* Sends INITMSG_FAILED {stage, errno} on descriptor INITMSG_FD and exits. */
void init_fail(const char *stage, int code) __attribute__((noreturn));
