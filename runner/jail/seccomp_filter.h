/* The system call filter of a jail, as the bytes that seccomp(2) takes. (The file is not called
 * seccomp.h because libseccomp's own header is.)
 *
 * It is an allow-list. What is not on it is answered ENOSYS, as by a kernel that does not have the
 * call, so that libc and runtimes take the older way: that covers clone3, io_uring and every call
 * that is newer than this program. A table of well-known privileged calls is answered EPERM, as
 * their manual pages say. A call of another architecture (i386 through int 0x80, x32) is never
 * made: it goes to the filter's listener, the runner, which ends the process with SIGSYS and notes
 * the call as evidence. Only code that looks for a way round the filter makes one. The listener
 * also hears of each socket behind which is memory that no cgroup counts (netlink, datagrams), and
 * of each listen(): see jail_sockets.c. It lets the call go on, or says ENOBUFS. Of some options of
 * sockets (groups that are joined, TCP that is opened fast) it is only told, see netns.h: these go
 * on whatever there is.
 *
 * libseccomp builds the program. Of the same rules one is made that is a quarter as long
 * (seccomp_graph.h), and it is the one that jails get if it answers as the library's does
 * (seccomp_same()); if not, they get the library's.
 *
 * Process 1 of the jail loads it after its own set-up; unshare(CLONE_NEWCGROUP) and
 * setns(fd, CLONE_NEWCGROUP), exactly these, pass because process 1 needs them afterwards; the
 * command has no capability for them. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>

#include "buf.h"
#include "err.h"
#include "policy.h"

struct seccomp_program {
    struct sock_filter *insns; /* owned */
    unsigned short len;        /* number of instructions; a struct sock_fprog in all but name */
    bool longer;               /* the library's: the shorter one could not be made, or differs */
};

/* Builds the program for a policy's set of system calls, for the architecture this program runs on.
 * `shares_user`: process 1 will be the command's own user (jail_shares_user()), so the kernel does
 * not keep a command from setting its limits. On success the caller owns *out (seccomp_done()). */
int seccomp_build(enum policy_syscalls set, bool shares_user, struct seccomp_program *out,
                  struct err *err);

/* The same set, with a shared user, as a profile that container engines read (JSON), appended to
 * `out`. It is there before process 1 loads the program itself, which it therefore lets it do. */
int seccomp_profile(enum policy_syscalls set, struct buf *out, struct err *err);

/* Releases it. Accepts NULL and a zeroed struct. */
void seccomp_done(struct seccomp_program *program);
