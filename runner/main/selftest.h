/* The proof, at every start and through the ordinary path of a run, that each limit and each wall
 * holds on this host: a limit that cannot be enforced is refused, never skipped. */
#pragma once

#include <stdbool.h>
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

/* What the operator is ready to do without. */
struct selftest_allowed {
    uint32_t roles;    /* of enum cgroup_role: mem_bytes, pids, cpus_milli */
    bool separate_ids; /* ids of process 1 that no command has */
};

/* Reads "mem_bytes,pids,…"; NULL is nothing. Everything else is never given up. */
int selftest_allow(const char *list, struct selftest_allowed *out, struct err *err);

struct selftest_config {
    struct cgroup_host *cgroups;
    int init_fd;
    int home_ns;
    const struct policy *policy;    /* "default" */
    const struct jail_maker *maker; /* NULL: native; else with its loop and an image */
    struct loop *loop;
    const char *image;
    const struct seccomp_program *bpf;
    struct jail_ids ids;
    bool rootless;
    struct selftest_allowed allowed;
};

/* Makes a jail for each check, runs pinfold-init's built-in probe in it, and compares the end with
 * what must come out. Takes about a second. Returns 0 when every item is enforced or given up; -1
 * names the first that is neither, with its remedy. *out is filled either way. */
int selftest_run(const struct selftest_config *cfg, struct selftest_result *out, struct err *err);
