/* A child of process 1: waits in its cgroup as the jail's user, then becomes the command. */
#pragma once

#include <stdbool.h>

/* Never returns. `sock` is the child's socket to the runner, `signals` process 1's signalfd. */
void child_main(int sock, int signals, bool contained, bool one_id) __attribute__((noreturn));
