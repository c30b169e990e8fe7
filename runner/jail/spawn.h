/* The birth of process 1 of a jail.
 *
 * clone(2) with CLONE_VM and a small stack of its own: copying the runner's address space would
 * cost more than all namespaces together. Until it execs, the child shares memory with the runner,
 * so it makes raw system calls only and touches nothing but its own struct spawn. It is born into
 * the template mount namespace of its image (the runner visits that namespace for the moment of the
 * clone), so the host's mount tree is never in the jail's. It waits for its id maps, which only the
 * runner may write, becomes user 0 of its user namespace, and executes pinfold-init from a sealed
 * memfd: no path of the host is used and /proc/self/exe leads to nothing that could be overwritten.
 * A jail that has one id only (SPAWN_IDS_ONE) has no user 0: process 1 is its user 1000 and keeps
 * its capabilities over exec as ambient ones. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "netns.h"

#define SPAWN_STACK_SIZE 16384

/* How many outside ids a jail has decides which ids exist inside. */
#define SPAWN_IDS_ALL 65536u /* 0 … 65535 */
#define SPAWN_IDS_FEW 5u     /* 0, 1, 2, 1000, 65534: those that mean something to us */
#define SPAWN_IDS_ONE 1u     /* 1000: process 1 cannot be told from a command by its id */

/* Owned by the jail; must stay until the child has executed init (its first message) or is reaped.
 */
struct spawn {
    int init_fd;
    int control_fd;
    int runner_fd;      /* pidfd of the runner */
    uint32_t go;        /* futex: 0 wait, 1 go on, 2 give up */
    uint32_t ids;       /* SPAWN_IDS_… */
    int32_t fail_code;  /* errno of the step that failed before exec, else 0 */
    uint32_t fail_step; /* enum in spawn.c */
    _Alignas(16) char stack[SPAWN_STACK_SIZE];
};

struct spawn_config {
    int template_ns;                  /* mount namespace to be born into */
    int home_ns;                      /* the runner's own mount namespace */
    int net_ns;                       /* network namespace to be born into; -1: a new one */
    const struct netns_set *networks; /* where net_ns is from; else may be NULL */
    int init_fd;                      /* sealed memfd with pinfold-init */
    int control_fd;                   /* becomes INITMSG_FD of init; borrowed */
    uint32_t id_base;                 /* the first outside id; with all, that of inside id 0 */
    uint32_t id_count;                /* SPAWN_IDS_… */
};

/* Returns 0 with *pid and *pidfd (owned by the caller: waitid() it). `s` is filled here. On failure
 * nothing is left behind. If the runner cannot return to its own mount namespace the process ends:
 * it must not go on in a jail's world. */
int spawn_init(struct spawn *s, const struct spawn_config *cfg, pid_t *pid, int *pidfd,
               struct err *err);

/* After the child died early: which step, "" when it got as far as exec. */
const char *spawn_failed_step(const struct spawn *s);

/* What to do when namespaces or mounts are refused with this errno, to be appended to a sentence;
 * "" when nobody can tell. */
const char *spawn_remedy(int code);

/* Reads the program `path` into a sealed memfd that is executable. -1 on error. */
int spawn_load(const char *path, struct err *err);
