/* The proof, at every start and through the ordinary path of a run, that each limit and each wall
 * holds on this host: a limit that cannot be enforced is refused, never skipped. */
#pragma once

#include <stdint.h>

#include "cgroup.h"
#include "err.h"
#include "jail.h"
#include "policy.h"
#include "wire.h"

#define SELFTEST_MAX 24

struct selftest_result {
    uint32_t count;
    struct wire_capability item[SELFTEST_MAX]; /* heads are not filled in */
};

struct selftest_config {
    struct cgroup_host *cgroups;
    int init_fd;
    int home_ns;
    const struct policy *policy;    /* "default" */
    const struct jail_maker *maker; /* NULL: native; else with its loop and an image */
    struct loop *loop;
    const char *image;
    const struct seccomp_program *bpf;
};

/* Makes a jail for each check, runs pinfold-init's built-in probe in it, and compares the end with
 * what must come out. Takes about a second. Returns 0 when every required item is enforced; -1
 * names the first that is not, with its remedy. *out is filled either way. */
int selftest_run(const struct selftest_config *cfg, struct selftest_result *out, struct err *err);
