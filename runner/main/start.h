/* Steps at the start of a runner that are the same for all of them. Each main.c has the order,
 * which is the security policy. */
#pragma once

#include <sys/types.h>

#include "err.h"
#include "seccomp_filter.h"
#include "selftest.h"
#include "supervise.h"

/* SIGTERM and SIGINT wait until the supervisor takes them. */
void start_hold_signals(void);

/* The user that may connect, by its name. */
int start_server_user(const char *name, uid_t *uid, gid_t *gid, struct err *err);

/* Loads pinfold-init: `path`, or (NULL) what lies beside this program. -> sealed memfd */
int start_init_program(const char *path, struct err *err);

/* From here on no mount of ours shows outside, and none of the host's events reach us. Directories
 * of which mounts are made (images) must be opened after this: the kernel copies mounts of the own
 * namespace only. -> descriptor of the new namespace */
int start_namespace(struct err *err);

/* Locks the file `name` of the state directory `dirfd` (`state`, for messages) for the life of
 * `program` and its shards. -> descriptor, to be kept */
int start_lock(int dirfd, const char *name, const char *state, const char *program,
               struct err *err);

/* The filters of both sets of system calls. */
int start_filters(struct seccomp_program programs[2], struct err *err);

/* Notes where base groups are, for supervise_config.base. */
void start_bases(struct supervise_config *cfg, const struct cgroup_host *cgroups);

/* Runs the self-test in a process of its own, so that the supervisor stays without threads, loops
 * and jails. *out lies in shared memory that is never given back; it is filled in, as far as there
 * are results, also on failure. */
int start_selftest(int (*fn)(void *arg, struct selftest_result *out, struct err *err), void *arg,
                   struct selftest_result **out, struct err *err);

/* For --check. */
void start_print(const struct selftest_result *result);
