/* The compiled filters of both sets of system calls, for all tests of a file. */
#pragma once

#include "seccomp_filter.h"
#include "unit.h"

static struct seccomp_program programs[2]; /* by enum policy_syscalls */

static inline int seccomp_sets_up(void **state) {
    (void)state;
    struct err e = {0};
    for (int set = 0; set < 2; set++) {
        unit_works(seccomp_build((enum policy_syscalls)set, false, &programs[set], &e), e);
    }
    return 0;
}

static inline int seccomp_sets_down(void **state) {
    (void)state;
    seccomp_done(&programs[0]);
    seccomp_done(&programs[1]);
    return 0;
}
