/* Network namespaces that jails leave as they found them.
 *
 * To make a network namespace and to take it down is a third of the work of a jail. So one in which
 * nothing has happened is given to the next jail, whoever's that is; every other is thrown away.
 * That nothing has happened is known in two ways, and both must say so:
 *
 * - The jail did not ask for what leaves something there. Its filter has the runner asked before
 *   a socket for datagrams or of netlink is made, a socket listens, a group is joined, or TCP is to
 *   be opened fast (jail_filter.c). Who has asked, whatever the answer was, is the last user of his
 *   namespace (`told`).
 * - The kernel has no socket there any more (`sockets: used 0` of /proc/net/sockstat, which counts
 *   those of every family, also one that travels in a message and has no process), and its counters
 *   (/proc/net/snmp, snmp6, netstat, rt6_stats, fib_triestat) are those of a new namespace: no
 *   packet was sent or received, no connection tried, no route missed.
 *
 * What is left are sockets of AF_UNIX, whose names end with them, and of TCP that neither listened
 * nor sent anything. Of these a route may stay that they looked up: of IPv6 the counters tell,
 * those of IPv4 are forgotten here. Metrics of peers, connections in TIME_WAIT, fragments,
 * conntrack: all of it comes with a packet. The devices, addresses and sysctls are those that
 * process 1 of the first jail made. Later ones have no power over the namespace: it belongs to the
 * user namespace of the first jail, in which nobody is any more. By that, by its number and by the
 * age of its addresses a program can tell that its namespace is older than its jail.
 *
 * A new one is made together with the jail (spawn.h) and taken over here once it is set up. Where
 * that may not be (a rootless runner, or one without CAP_SYS_PTRACE) each jail has a new one. Those
 * that nobody takes are closed after a moment. One thread, that of the loop. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"
#include "loop.h"

#define NETNS_KEPT 128u /* at most; more than a shard has warm jails */

struct netns_set;

/* `loop` is borrowed. NULL: none is used again, since this thread could not come home from one: the
 * host's network belongs to another user namespace than the one in which it is root. */
struct netns_set *netns_new(struct loop *loop);
void netns_free(struct netns_set *set); /* NULL allowed */

/* One that is as new, owned by the caller; -1: there is none. `set` may be NULL, here and below. */
int netns_take(struct netns_set *set);

/* The namespace of process `pid` (a child that was not waited for), which was made new and is set
 * up, owned by the caller; -1: it cannot be opened, or its counters cannot be read. The first one
 * shows what the counters of a new one say. */
int netns_adopt(struct netns_set *set, pid_t pid);

/* Takes *fd back from a jail all of whose processes are gone, and sets it to -1: it is kept if it
 * is as new, else closed. `told`: the jail asked for what leaves something. *fd may be -1. */
void netns_give(struct netns_set *set, int *fd, bool told);

/* This thread is born again in `fd`, for the moment of a clone(2); netns_leave() brings it home, or
 * ends the process: in the world of a jail it must not go on. */
int netns_enter(int fd, struct err *err);
void netns_leave(const struct netns_set *set);
