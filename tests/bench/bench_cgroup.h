/* The cgroups of the floor loop, by plain system calls: one directory per hierarchy, whatever the
 * host has (v1, v2 or both). */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "err.h"

#define BENCH_CGROUP_MAX 6
#define BENCH_CGROUP_PREFIX "pinfold-bench."

/* One hierarchy that is used: a directory of ours below its root. */
struct bench_cgroup_tree {
    int root;        /* of the hierarchy: the caller may have moved to another root directory */
    int base;        /* directory of ours in it, for the jails' directories */
    unsigned roles;  /* mask of the controllers it carries */
    char where[128]; /* mount point, for messages */
};

struct bench_cgroups {
    char name[64]; /* of our directory */
    size_t count;
    struct bench_cgroup_tree tree[BENCH_CGROUP_MAX];
};

/* The cgroups of one jail. */
struct bench_cgroup_jail {
    int dir[BENCH_CGROUP_MAX];
};

/* Finds the hierarchies and makes the base directory `name` in each. memory, pids and cpu must be
 * there, in v1 or v2. On failure nothing stays. */
int bench_cgroup_init(struct bench_cgroups *g, const char *name, struct err *err);
void bench_cgroup_done(struct bench_cgroups *g); /* removes the base directories */

/* The four things that a jail costs. */
int bench_cgroup_make(const struct bench_cgroups *g, struct bench_cgroup_jail *j, struct err *err);
int bench_cgroup_limit(const struct bench_cgroups *g, const struct bench_cgroup_jail *j,
                       struct err *err);
int bench_cgroup_attach(const struct bench_cgroups *g, const struct bench_cgroup_jail *j, pid_t pid,
                        struct err *err);
int bench_cgroup_remove(const struct bench_cgroups *g, struct bench_cgroup_jail *j,
                        struct err *err);

/* Removes directories of ours, named BENCH_CGROUP_PREFIX and a process id, whose process is gone.
 */
void bench_cgroup_sweep(void);
