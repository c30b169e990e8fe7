/* Rootless mode: the same runner, as root of a user namespace of its own instead of the host's.
 *
 * rootless_enter() is one more step at the start of the ordered list in main.c; what comes after it
 * is the same code, with these differences, each of which the code asks for by name:
 *
 *   ids        jails get those of the user's range in /etc/subuid and /etc/subgid, five each
 *              (SPAWN_IDS_FEW); without a range all have one (SPAWN_IDS_ONE), and then a command
 *              can signal what waits beside it in its jail: "separate_ids" is not enforced
 *   devices    the host's own nodes are bound, since none can be made (rootfs.h)
 *   cgroups    a delegated group of a cgroup2 tree, with the controllers it has (cgroup.h)
 *   layers     no snapshots, no disk files: they need powers over the host's file systems
 *   server     runs as the same user: ids of others have no name here
 *
 * Nothing is weaker without being said: what cannot be enforced keeps the runner from starting,
 * unless the operator names it in --allow-missing (selftest.h). */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "jail.h"

struct rootless {
    uid_t uid;      /* the user outside */
    uint32_t sub;   /* first of its subordinate user ids; 0 = there are none for us */
    uint32_t count; /* how many are used */
    char why[200];  /* why there is only one id, "" = there are more */
    struct jail_ids ids;
};

/* A range of FILE (/etc/subuid, /etc/subgid: "user:first:count") that belongs to the user, by name
 * or by number, and has at least `need` ids: the first such. False when there is none. */
bool rootless_range(const char *text, const char *user, uid_t uid, uint32_t need, uint32_t *first);

/* Makes a user namespace and becomes its root. `need`: ids that jails may use at once at most. Call
 * it while there is one thread, before mounts and cgroups and after what only the host's ids tell
 * (who owns the policies). */
int rootless_enter(struct rootless *r, uint32_t need, struct err *err);
