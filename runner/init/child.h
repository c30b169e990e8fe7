/* A child of process 1: waits in its cgroup as the jail's user, then becomes the command. */
#pragma once

#include <stdbool.h>

struct child_start {
    int sock;    /* to the runner */
    int signals; /* process 1's signalfd */
    int gate;    /* gets a byte when process 1 may join the child's control group's namespace; -1 */
    bool contained, one_id;
};

void child_main(const struct child_start *start) __attribute__((noreturn));
