/* Steps at the start of a runner that are the same for all of them. Each main.c has the order,
 * which is the security policy. */
#pragma once

#include <sys/types.h>

#include "err.h"
#include "opt.h"
#include "seccomp_filter.h"
#include "selftest.h"
#include "supervise.h"

/* Parses the command line. *state is where the table puts --state, without which no runner starts;
 * no operand is taken. -> -1: go on; else the exit code: the help was printed (0), or what is wrong
 * (2). */
int start_parse(const char *program, const char *about, const struct opt *table, int argc,
                char **argv, const char *const *state);

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

/* Where a runner lives in the state directory. What it calls its own there has another name than
 * what other runners have. */
struct start_names {
    const char *state;                /* the directory's path */
    const char *program;              /* for messages */
    const char *lock, *disk, *mounts; /* names below `state` */
};

#define START_NAME_SIZE 48
struct start_state {
    int dir;           /* STATE, which is the current directory from then on */
    int lock;          /* held for the life of the program and of its shards */
    int images;        /* STATE/images; -1 = there are none */
    int disk;          /* files with the file systems of sandboxes; -1 = there can be none */
    char mounts[4200]; /* where a cgroup2 may be mounted, resolved */
    char name[START_NAME_SIZE]; /* one state directory, one name: so that a start finds its own
                                 * leftovers and nobody else's */
};

/* Opens the state directory, which must be root's and writable for nobody else, locks it, and makes
 * what is missing in it. Nothing in it is reached through a link. */
int start_state(const struct start_names *names, struct start_state *out, struct err *err);

/* The filters of both sets of system calls; `shares_user` as in seccomp_build(). A line of the log
 * says when they are the longer ones. */
int start_filters(struct log *log, bool shares_user, struct seccomp_program programs[2],
                  struct err *err);

/* Notes where base groups are, for supervise_config.base. */
void start_bases(struct supervise_config *cfg, const struct cgroup_host *cgroups);

/* Runs the self-test in a process of its own, so that the supervisor stays without threads, loops
 * and jails. *out lies in shared memory that is never given back; it is filled in, as far as there
 * are results, also on failure. */
int start_selftest(int (*fn)(void *arg, struct selftest_result *out, struct err *err), void *arg,
                   struct selftest_result **out, struct err *err);

/* How the start went: prints `results` (NULL: nobody asked for them, or there are none), and *err
 * when `rc` is -1. -> rc */
int start_tell(const char *program, int rc, const struct selftest_result *results,
               const struct err *err);
