/* Theory of operation. Two tables of names (allowed, refused) and one table of rules that look at
 * arguments; what is in none of them falls to ENOSYS. For one system call the rules of the third
 * table never overlap with different actions, so that their order, which is libseccomp's to choose,
 * cannot matter.
 *
 * Arguments are 64-bit registers, and where the kernel reads an int from one, the upper half is the
 * caller's to fill. A rule that refuses must therefore look at the lower half only (a masked
 * comparison): TIOCSTI + 2^32 is TIOCSTI for the kernel.
 *
 * The binary tree (SCMP_FLTATR_CTL_OPTIMIZE 2) is not for the calls themselves: since Linux 5.11 a
 * bitmap answers those that are always allowed. It is for loading: the kernel makes that bitmap by
 * running the program once per system call number, which takes ten times longer over a flat list,
 * and each jail loads it. */
#include "seccomp_filter.h"

#include <errno.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "seccomp_json.h"

#define SECCOMP_LOW 0xffffffffu /* the half that an int argument is read from */
#define SECCOMP_ACT_ABSENT SCMP_ACT_ERRNO(ENOSYS)
#define SECCOMP_ACT_DENY SCMP_ACT_ERRNO(EPERM)
#define SECCOMP_ACT_OPTION SCMP_ACT_ERRNO(ENOPROTOOPT)

/* clone() has no room for CLONE_NEWTIME: that bit is part of the exit signal there. */
#define SECCOMP_CLONE_NEW                                                                          \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

enum seccomp_sets {
    SECCOMP_IN_DEFAULT = 1 << POLICY_SYSCALLS_DEFAULT,
    SECCOMP_IN_STRICT = 1 << POLICY_SYSCALLS_STRICT,
    SECCOMP_IN_BOTH = SECCOMP_IN_DEFAULT | SECCOMP_IN_STRICT,
    /* One of these, too: is process 1 the command's own user? */
    SECCOMP_USERS_APART = 1 << 8,
    SECCOMP_USER_SHARED = 1 << 9,
    /* And one of these: is it loaded by process 1, or by an engine before that begins? */
    SECCOMP_PROGRAM = 1 << 10,
    SECCOMP_PROFILE = 1 << 11,
};

/* Allowed whatever the arguments, in both sets. Names with a blank between two. */
static const char *const seccomp_allowed[] = {
    /* files and directories */
    "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat openat2 "
    "creat close close_range lseek stat lstat fstat newfstatat statx access faccessat faccessat2 "
    "getdents getdents64 getcwd chdir fchdir rename renameat mkdir mkdirat rmdir link "
    "linkat symlink symlinkat unlink unlinkat readlink readlinkat truncate ftruncate fallocate "
    "chmod fchmod fchmodat chown fchown lchown fchownat umask utime utimes futimesat utimensat "
    "statfs fstatfs getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr "
    "llistxattr flistxattr removexattr lremovexattr fremovexattr",
    /* descriptors */
    "fcntl flock dup dup2 dup3 pipe pipe2 readahead "
    "sendfile splice tee copy_file_range inotify_init inotify_init1 "
    "inotify_add_watch inotify_rm_watch",
    /* waiting */
    "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait "
    "epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime "
    "timerfd_gettime",
    /* memory */
    "munmap mremap mprotect mincore madvise brk mlock mlock2 munlock mlockall "
    "munlockall pkey_alloc pkey_free pkey_mprotect membarrier",
    /* processes and threads */
    "fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid "
    "getpgrp setpgid getsid setsid arch_prctl set_tid_address set_robust_list "
    "get_robust_list rseq futex futex_waitv restart_syscall getrlimit setrlimit "
    "getrusage times getpriority setpriority ioprio_get ioprio_set sched_yield sched_getaffinity "
    "sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler "
    "sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min "
    "sched_rr_get_interval getcpu pidfd_open pidfd_send_signal",
    /* ids: with no capability they can only give up what is left */
    "getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid setregid "
    "setresuid setresgid setfsuid setfsgid setgroups capget capset",
    /* signals and time */
    "kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend "
    "rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack pause alarm getitimer "
    "setitimer nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time "
    "timer_create timer_settime timer_gettime timer_getoverrun timer_delete",
    /* sockets that exist (which can be made: the third table) */
    "connect bind accept accept4 shutdown getsockname getpeername getsockopt sendto "
    "recvfrom sendmsg recvmsg sendmmsg recvmmsg",
    /* the system, and sandboxes of the program's own, which can only narrow this one */
    "uname sysinfo getrandom landlock_create_ruleset landlock_add_rule landlock_restrict_self",
};

/* Allowed in the default set, refused in the strict one: debuggers, shared memory and queues by
 * key, and the corners of the kernel that a program which is judged does not need. */
static const char *const seccomp_allowed_default[] = {
    "ptrace process_vm_readv process_vm_writev seccomp vmsplice shmat shmdt shmctl semget "
    "semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend "
    "mq_timedreceive mq_notify mq_getsetattr",
};

/* EPERM, as for any user without the capability. The rest of what is closed needs no name: it is
 * answered ENOSYS like a call that does not exist, so that the caller takes the older way. Among
 * that is clone3 (its flags are in memory, where a filter cannot see them), io_uring (work that no
 * filter sees), the key rings (not all of them have a namespace), memory policies, asynchronous I/O
 * of the first kind (one count for the whole host), kcmp, memfd_secret, modify_ldt. */
static const char *const seccomp_denied[] = {
    /* mounts and roots */
    "mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick "
    "mount_setattr open_by_handle_at quotactl quotactl_fd swapon swapoff fanotify_init "
    "fanotify_mark",
    /* kernel code and its insides */
    "init_module finit_module delete_module create_module kexec_load kexec_file_load bpf "
    "perf_event_open userfaultfd lookup_dcookie syslog",
    /* other processes' descriptors */
    "pidfd_getfd",
    /* the machine */
    "reboot acct iopl ioperm vhangup nfsservctl sethostname setdomainname settimeofday "
    "clock_settime clock_adjtime adjtimex",
};

struct seccomp_rule {
    const char *name;
    uint32_t sets; /* mask of enum seccomp_sets */
    uint32_t action;
    unsigned count; /* comparisons, all of which must hold */
    struct scmp_arg_cmp cmp[3];
};

#define SECCOMP_EQ(n, v)                                                                           \
    { .arg = (n), .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)(v) }
#define SECCOMP_NE(n, v)                                                                           \
    { .arg = (n), .op = SCMP_CMP_NE, .datum_a = (scmp_datum_t)(v) }
#define SECCOMP_LT(n, v)                                                                           \
    { .arg = (n), .op = SCMP_CMP_LT, .datum_a = (scmp_datum_t)(v) }
#define SECCOMP_GT(n, v)                                                                           \
    { .arg = (n), .op = SCMP_CMP_GT, .datum_a = (scmp_datum_t)(v) }
#define SECCOMP_MASKED(n, mask, v)                                                                 \
    {                                                                                              \
        .arg = (n), .op = SCMP_CMP_MASKED_EQ, .datum_a = (scmp_datum_t)(mask),                     \
        .datum_b = (scmp_datum_t)(v)                                                               \
    }
#define SECCOMP_INT(n, v) SECCOMP_MASKED(n, SECCOMP_LOW, v)

#define SECCOMP_RULE(name_, sets_, action_, ...)                                                   \
    {                                                                                              \
        .name = (name_), .sets = (sets_), .action = (action_),                                     \
        .count = sizeof((struct scmp_arg_cmp[]){__VA_ARGS__}) / sizeof(struct scmp_arg_cmp),       \
        .cmp = {                                                                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

#define SECCOMP_BOTH(name, action, ...) SECCOMP_RULE(name, SECCOMP_IN_BOTH, action, __VA_ARGS__)
#define SECCOMP_DEFAULT(name, action, ...)                                                         \
    SECCOMP_RULE(name, SECCOMP_IN_DEFAULT, action, __VA_ARGS__)

#define SECCOMP_NO_FLAG(name, flag)                                                                \
    SECCOMP_BOTH(name, SECCOMP_ACT_DENY, SECCOMP_MASKED(0, flag, flag))
/* Allowed without the bit, refused with it. */
#define SECCOMP_NO_BIT(name, sets, n, bit, code)                                                   \
    SECCOMP_RULE(name, sets, SCMP_ACT_ALLOW, SECCOMP_MASKED(n, bit, 0)),                           \
        SECCOMP_RULE(name, sets, SCMP_ACT_ERRNO(code), SECCOMP_MASKED(n, bit, bit))
#define SECCOMP_FILE_TYPE(name, n, action, type)                                                   \
    SECCOMP_BOTH(name, action, SECCOMP_MASKED(n, S_IFMT, type))
#define SECCOMP_NO_FAMILY(family)                                                                  \
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_EQ(0, family))
#define SECCOMP_FAMILY(family, protocol, action)                                                   \
    SECCOMP_DEFAULT("socket", action, SECCOMP_EQ(0, family), SECCOMP_EQ(2, protocol))
/* No protocol was named: streams are TCP. The others are the rest of the 16 types, by their last
 * bits. */
#define SECCOMP_TYPE(family, action, mask, type)                                                   \
    SECCOMP_DEFAULT("socket", action, SECCOMP_EQ(0, family), SECCOMP_MASKED(1, mask, type),        \
                    SECCOMP_EQ(2, 0))
#define SECCOMP_BY_TYPE(family)                                                                    \
    SECCOMP_TYPE(family, SCMP_ACT_ALLOW, 15, SOCK_STREAM),                                         \
        SECCOMP_TYPE(family, SCMP_ACT_NOTIFY, 15, 9), SECCOMP_TYPE(family, SCMP_ACT_NOTIFY, 7, 5), \
        SECCOMP_TYPE(family, SCMP_ACT_NOTIFY, 3, 3), SECCOMP_TYPE(family, SCMP_ACT_NOTIFY, 1, 0)
#define SECCOMP_NO_PROTOCOL(family, above)                                                         \
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(EPROTONOSUPPORT), SECCOMP_EQ(0, family),              \
                    SECCOMP_GT(2, above))

static const struct seccomp_rule seccomp_rules[] = {
    /* clone: processes and threads, but no namespaces */
    SECCOMP_BOTH("clone", SCMP_ACT_ALLOW, SECCOMP_MASKED(0, SECCOMP_CLONE_NEW, 0)),
    SECCOMP_NO_FLAG("clone", CLONE_NEWNS),
    SECCOMP_NO_FLAG("clone", CLONE_NEWCGROUP),
    SECCOMP_NO_FLAG("clone", CLONE_NEWUTS),
    SECCOMP_NO_FLAG("clone", CLONE_NEWIPC),
    SECCOMP_NO_FLAG("clone", CLONE_NEWUSER),
    SECCOMP_NO_FLAG("clone", CLONE_NEWPID),
    SECCOMP_NO_FLAG("clone", CLONE_NEWNET),

    /* unshare: what is not a namespace; and the one that process 1 and its first child need after
     * the filter is there. A command lacks the capability for it. */
    SECCOMP_BOTH("unshare", SCMP_ACT_ALLOW,
                 SECCOMP_MASKED(0, SECCOMP_CLONE_NEW | CLONE_NEWTIME, 0)),
    SECCOMP_BOTH("unshare", SCMP_ACT_ALLOW, SECCOMP_INT(0, CLONE_NEWCGROUP)),
    SECCOMP_NO_FLAG("unshare", CLONE_NEWNS),
    SECCOMP_NO_FLAG("unshare", CLONE_NEWUTS),
    SECCOMP_NO_FLAG("unshare", CLONE_NEWIPC),
    SECCOMP_NO_FLAG("unshare", CLONE_NEWPID),
    SECCOMP_NO_FLAG("unshare", CLONE_NEWNET),
    SECCOMP_RULE("unshare", SECCOMP_PROGRAM, SECCOMP_ACT_DENY,
                 SECCOMP_MASKED(0, CLONE_NEWUSER, CLONE_NEWUSER)),
    SECCOMP_RULE("unshare", SECCOMP_PROGRAM, SECCOMP_ACT_DENY,
                 SECCOMP_MASKED(0, CLONE_NEWTIME, CLONE_NEWTIME)),
    /* setup_apart(), before the program is there */
    SECCOMP_RULE("unshare", SECCOMP_PROFILE, SCMP_ACT_ALLOW, SECCOMP_INT(0, CLONE_NEWUSER)),
    SECCOMP_RULE("unshare", SECCOMP_PROFILE, SCMP_ACT_ALLOW, SECCOMP_INT(0, CLONE_NEWTIME)),
    SECCOMP_BOTH("setns", SCMP_ACT_ALLOW, SECCOMP_INT(1, CLONE_NEWCGROUP)),

    /* personality: as it is, without address randomisation (gdb, sanitizers), and the question */
    SECCOMP_BOTH("personality", SCMP_ACT_ALLOW, SECCOMP_INT(0, PER_LINUX)),
    SECCOMP_BOTH("personality", SCMP_ACT_ALLOW, SECCOMP_INT(0, ADDR_NO_RANDOMIZE)),
    SECCOMP_BOTH("personality", SCMP_ACT_ALLOW, SECCOMP_INT(0, SECCOMP_LOW)),

    /* mknod: files, FIFOs and sockets, no devices */
    SECCOMP_FILE_TYPE("mknod", 1, SCMP_ACT_ALLOW, 0),
    SECCOMP_FILE_TYPE("mknod", 1, SCMP_ACT_ALLOW, S_IFREG),
    SECCOMP_FILE_TYPE("mknod", 1, SCMP_ACT_ALLOW, S_IFIFO),
    SECCOMP_FILE_TYPE("mknod", 1, SCMP_ACT_ALLOW, S_IFSOCK),
    SECCOMP_FILE_TYPE("mknod", 1, SECCOMP_ACT_DENY, S_IFCHR),
    SECCOMP_FILE_TYPE("mknod", 1, SECCOMP_ACT_DENY, S_IFBLK),
    SECCOMP_FILE_TYPE("mknodat", 2, SCMP_ACT_ALLOW, 0),
    SECCOMP_FILE_TYPE("mknodat", 2, SCMP_ACT_ALLOW, S_IFREG),
    SECCOMP_FILE_TYPE("mknodat", 2, SCMP_ACT_ALLOW, S_IFIFO),
    SECCOMP_FILE_TYPE("mknodat", 2, SCMP_ACT_ALLOW, S_IFSOCK),
    SECCOMP_FILE_TYPE("mknodat", 2, SECCOMP_ACT_DENY, S_IFCHR),
    SECCOMP_FILE_TYPE("mknodat", 2, SECCOMP_ACT_DENY, S_IFBLK),

    /* renameat2: a whiteout is a device, and hides a file of a layer under an overlay */
    SECCOMP_BOTH("renameat2", SCMP_ACT_ALLOW, SECCOMP_MASKED(4, RENAME_WHITEOUT, 0)),
    SECCOMP_BOTH("renameat2", SECCOMP_ACT_DENY,
                 SECCOMP_MASKED(4, RENAME_WHITEOUT, RENAME_WHITEOUT)),

    /* sync and its kin: what is writable ends with the jail and need not be flushed; but a file of
     * the host that is open for reading can be flushed too, which makes the host's disk work for
     * nothing. fadvise: would throw the host's files out of its cache. Answered 0. */
    SECCOMP_BOTH("sync", SCMP_ACT_ERRNO(0)),
    SECCOMP_BOTH("syncfs", SCMP_ACT_ERRNO(0)),
    SECCOMP_BOTH("fsync", SCMP_ACT_ERRNO(0)),
    SECCOMP_BOTH("fdatasync", SCMP_ACT_ERRNO(0)),
    SECCOMP_BOTH("sync_file_range", SCMP_ACT_ERRNO(0)),
    SECCOMP_BOTH("msync", SCMP_ACT_ERRNO(0)),
    SECCOMP_BOTH("fadvise64", SCMP_ACT_ERRNO(0)),

    /* Huge pages of the host's pool: where an administrator has set some aside (for a database, for
     * virtual machines), any process may take them, and no memory cgroup counts them. */
    SECCOMP_NO_BIT("mmap", SECCOMP_IN_BOTH, 3, MAP_HUGETLB, ENOMEM),
    SECCOMP_NO_BIT("memfd_create", SECCOMP_IN_BOTH, 1, MFD_HUGETLB, EINVAL),
    SECCOMP_NO_BIT("shmget", SECCOMP_IN_DEFAULT, 2, SHM_HUGETLB, EPERM),
    SECCOMP_RULE("shmget", SECCOMP_IN_STRICT, SECCOMP_ACT_DENY),

    /* prctl: everything up to now but PR_SCHED_CORE. Who has a core cookie of his own keeps all
     * others from the sibling of the processor that he is on, and so takes twice his share. */
    SECCOMP_BOTH("prctl", SCMP_ACT_ERRNO(EINVAL), SECCOMP_INT(0, PR_SCHED_CORE)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_LT(0, PR_SCHED_CORE)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SCHED_CORE + 1)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_MASKED(0, ~(uint64_t)63, 64)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SET_VMA)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SET_PTRACER)),

    /* prlimit: where process 1 and the child that waits are the command's own user, their limits
     * would be lowered for all that comes after. A process may set its own, and look at others'. */
    SECCOMP_RULE("prlimit64", SECCOMP_USERS_APART, SCMP_ACT_ALLOW),
    SECCOMP_RULE("prlimit64", SECCOMP_USER_SHARED, SCMP_ACT_ALLOW, SECCOMP_EQ(0, 0)),
    SECCOMP_RULE("prlimit64", SECCOMP_USER_SHARED, SCMP_ACT_ALLOW, SECCOMP_NE(0, 0),
                 SECCOMP_EQ(2, 0)),
    SECCOMP_RULE("prlimit64", SECCOMP_USER_SHARED, SECCOMP_ACT_DENY, SECCOMP_NE(0, 0),
                 SECCOMP_NE(2, 0)),

    /* socket: local ones; TCP, UDP and ping over IP; the kernel's routing answers (getifaddrs).
     * Other protocols load modules that few have read. These compare all 64 bits: what is too large
     * matches no permission. Behind those that are reported is memory that no cgroup counts:
     * jail_filter.c bounds how many there are. */
    SECCOMP_BOTH("socketpair", SCMP_ACT_ALLOW, SECCOMP_EQ(0, AF_UNIX)),
    SECCOMP_BOTH("socketpair", SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_NE(0, AF_UNIX)),
    SECCOMP_BOTH("socket", SCMP_ACT_ALLOW, SECCOMP_EQ(0, AF_UNIX)),
    SECCOMP_RULE("socket", SECCOMP_IN_STRICT, SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_NE(0, AF_UNIX)),
    SECCOMP_BY_TYPE(AF_INET),
    SECCOMP_FAMILY(AF_INET, 1, SCMP_ACT_NOTIFY),  /* ICMP */
    SECCOMP_FAMILY(AF_INET, 6, SCMP_ACT_ALLOW),   /* TCP */
    SECCOMP_FAMILY(AF_INET, 17, SCMP_ACT_NOTIFY), /* UDP */
    SECCOMP_NO_PROTOCOL(AF_INET, 17),
    SECCOMP_BY_TYPE(AF_INET6),
    SECCOMP_FAMILY(AF_INET6, 6, SCMP_ACT_ALLOW),
    SECCOMP_FAMILY(AF_INET6, 17, SCMP_ACT_NOTIFY),
    SECCOMP_FAMILY(AF_INET6, 58, SCMP_ACT_NOTIFY), /* ICMPv6 */
    SECCOMP_NO_PROTOCOL(AF_INET6, 58),
    SECCOMP_FAMILY(AF_NETLINK, 0, SCMP_ACT_NOTIFY), /* NETLINK_ROUTE */
    SECCOMP_NO_PROTOCOL(AF_NETLINK, 0),
    SECCOMP_BOTH("listen", SCMP_ACT_NOTIFY),
    SECCOMP_NO_FAMILY(0),
    SECCOMP_NO_FAMILY(3),
    SECCOMP_NO_FAMILY(4),
    SECCOMP_NO_FAMILY(5),
    SECCOMP_NO_FAMILY(6),
    SECCOMP_NO_FAMILY(7),
    SECCOMP_NO_FAMILY(8),
    SECCOMP_NO_FAMILY(9),
    SECCOMP_NO_FAMILY(11),
    SECCOMP_NO_FAMILY(12),
    SECCOMP_NO_FAMILY(13),
    SECCOMP_NO_FAMILY(14),
    SECCOMP_NO_FAMILY(15),
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_GT(0, AF_NETLINK)),
};

/* Options of sockets, by level. Compiled programs for packets have one share of memory for the
 * whole host: when it is used up nobody unprivileged can load a filter, so that no jail could be
 * made. Flow labels are a few thousand for all; a protocol on top of TCP is a module. Error queues
 * and keys of connections are memory that no cgroup counts, nor are receive buffers of netlink and
 * of connections that nobody has accepted: they stay as large as the kernel makes them by itself.
 * Two are answered 0 and do nothing, since a program can do without but gives up where they are
 * refused: that (servers), and that ICMP errors are to be queued (glibc's resolver). */
static const struct seccomp_option {
    uint32_t level, option, action;
} seccomp_options[] = {
    {SOL_SOCKET, SO_RCVBUF, SCMP_ACT_ERRNO(0)},
    {SOL_SOCKET, SO_ATTACH_FILTER, SECCOMP_ACT_OPTION},
    {SOL_SOCKET, SO_ATTACH_BPF, SECCOMP_ACT_OPTION},
    {SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, SECCOMP_ACT_OPTION},
    {SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, SECCOMP_ACT_OPTION},
    {SOL_SOCKET, SO_TIMESTAMPING_OLD, SECCOMP_ACT_OPTION},
    {SOL_SOCKET, SO_TIMESTAMPING_NEW, SECCOMP_ACT_OPTION},
    {IPPROTO_TCP, TCP_ULP, SECCOMP_ACT_OPTION},
    {IPPROTO_TCP, TCP_MD5SIG, SECCOMP_ACT_OPTION},
    {IPPROTO_TCP, TCP_MD5SIG_EXT, SECCOMP_ACT_OPTION},
    {IPPROTO_TCP, 38 /* TCP_AO_ADD_KEY */, SECCOMP_ACT_OPTION},
    {IPPROTO_IPV6, 32 /* IPV6_FLOWLABEL_MGR */, SECCOMP_ACT_OPTION},
    {IPPROTO_IP, IP_RECVERR, SCMP_ACT_ERRNO(0)},
    {IPPROTO_IPV6, IPV6_RECVERR, SCMP_ACT_ERRNO(0)},
};
enum { SECCOMP_LEVELS = 512, SECCOMP_OPTIONS = 128 }; /* more than there are; powers of two */

/* ioctl requests that type into a terminal (TIOCSTI, and TIOCLINUX by pasting) or put a line
 * discipline, which is a kernel module, on one. */
static const uint32_t seccomp_ioctls[] = {TIOCSTI, TIOCLINUX, TIOCSETD};

struct seccomp_builder {
    scmp_filter_ctx ctx;
    uint32_t set;              /* one bit of each kind in enum seccomp_sets */
    struct seccomp_json *json; /* not NULL: a profile is written in place of the filter */
    struct err *err;
};

static int seccomp_add(struct seccomp_builder *b, const char *name, uint32_t action, unsigned count,
                       const struct scmp_arg_cmp *cmp) {
    int nr = seccomp_syscall_resolve_name(name);
    if (nr == __NR_SCMP_ERROR) {
        return err_set(b->err, ERR_STATE, 0, "libseccomp does not know the system call %s", name);
    }
    if (nr < 0) {
        return 0; /* another architecture's: it cannot be made here */
    }
    if (b->json != NULL) {
        return seccomp_json_rule(b->json, name, action, (struct seccomp_json_args){count, cmp},
                                 b->err);
    }
    int rc = seccomp_rule_add_array(b->ctx, action, nr, count, cmp);
    return rc == 0 ? 0
                   : err_set(b->err, ERR_SYSTEM, -rc, "add the rule for system call %s: %s", name,
                             strerror(-rc));
}

/* The tables of names: strings of names with a blank between two. */
static int seccomp_add_names(struct seccomp_builder *b, uint32_t action, const char *const *lists,
                             size_t count) {
    char name[32];
    for (size_t i = 0; i < count; i++) {
        for (const char *p = lists[i]; *p != '\0';) {
            size_t len = strcspn(p, " ");
            if (len == 0 || len >= sizeof name) {
                return err_set(b->err, ERR_STATE, 0, "a name in the filter's table is malformed");
            }
            memcpy(name, p, len);
            name[len] = '\0';
            if (seccomp_add(b, name, action, 0, NULL) != 0) {
                return -1;
            }
            p += p[len] == ' ' ? len + 1 : len;
        }
    }
    return 0;
}

static int seccomp_add_rules(struct seccomp_builder *b) {
    for (size_t i = 0; i < sizeof seccomp_rules / sizeof seccomp_rules[0]; i++) {
        const struct seccomp_rule *r = &seccomp_rules[i];
        if ((r->sets & b->set) && seccomp_add(b, r->name, r->action, r->count, r->cmp) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Allows every ioctl request whose upper `32 - bits` bits equal those of `prefix`, save the refused
 * ones. libseccomp has no "masked not equal", so the complement is put together from prefixes, as
 * in a routing table: 40 rules that do not overlap, each on the lower 32 bits alone. */
static int seccomp_add_ioctls(struct seccomp_builder *b, uint32_t prefix, unsigned bits) {
    uint32_t mask = bits == 32 ? 0 : ~(uint32_t)0 << bits;
    size_t refused = 0;
    for (size_t i = 0; i < sizeof seccomp_ioctls / sizeof seccomp_ioctls[0]; i++) {
        refused += (seccomp_ioctls[i] & mask) == prefix;
    }
    if (refused == 0 || bits == 0) {
        const struct scmp_arg_cmp cmp = SECCOMP_MASKED(1, mask, prefix);
        return seccomp_add(b, "ioctl", refused ? SECCOMP_ACT_DENY : SCMP_ACT_ALLOW, 1, &cmp);
    }
    if (seccomp_add_ioctls(b, prefix, bits - 1) != 0) {
        return -1;
    }
    return seccomp_add_ioctls(b, prefix | (uint32_t)1 << (bits - 1), bits - 1);
}

/* What becomes of options among `size` levels (arg 1) or of a level (arg 2) from `first` on: the
 * answer to one that is in the table, or that all of them are allowed. */
static uint32_t seccomp_option(unsigned arg, uint32_t level, uint32_t first, uint32_t size) {
    const struct seccomp_option *o = seccomp_options;
    uint32_t action = SCMP_ACT_ALLOW;
    for (size_t i = sizeof seccomp_options / sizeof seccomp_options[0]; i > 0; i--, o++) {
        if (arg == 1 ? o->level - first < size : o->level == level && o->option - first < size) {
            action = o->action;
        }
    }
    return action;
}

/* setsockopt without the refused options: blocks of numbers, each as large as its place allows and
 * free of them. All 64 bits are compared: what is too large matches no permission. */
static int seccomp_add_options(struct seccomp_builder *b, unsigned arg, uint32_t level,
                               uint32_t top) {
    int rc = 0;
    for (uint32_t first = 0, size = top; first < top && rc == 0; first += size) {
        size = first == 0 ? top : first & (~first + 1);
        while (size > 1 && seccomp_option(arg, level, first, size) != SCMP_ACT_ALLOW) {
            size /= 2;
        }
        const struct scmp_arg_cmp cmp[2] = {
            SECCOMP_MASKED(arg, ~(uint64_t)(size - 1), first),
            SECCOMP_EQ(1, level),
        };
        uint32_t action = seccomp_option(arg, level, first, size);
        if (arg == 1 && action != SCMP_ACT_ALLOW) {
            rc = seccomp_add_options(b, 2, first, SECCOMP_OPTIONS);
        } else {
            rc = seccomp_add(b, "setsockopt", action, arg, cmp);
        }
    }
    return rc;
}

static int seccomp_attr(struct seccomp_builder *b, enum scmp_filter_attr attr, uint32_t value,
                        const char *what) {
    int rc = seccomp_attr_set(b->ctx, attr, value);
    return rc == 0
               ? 0
               : err_set(b->err, ERR_SYSTEM, -rc, "set %s of the filter: %s", what, strerror(-rc));
}

static int seccomp_head(struct seccomp_builder *b) {
    if (seccomp_attr(b, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_NOTIFY, "the foreign action") != 0) {
        return -1;
    }
    return seccomp_attr(b, SCMP_FLTATR_CTL_OPTIMIZE, 2, "the binary tree");
}

static int seccomp_fill(struct seccomp_builder *b) {
    if (b->json == NULL && seccomp_head(b) != 0) {
        return -1;
    }
    size_t also = sizeof seccomp_allowed_default / sizeof seccomp_allowed_default[0];
    uint32_t action = (b->set & SECCOMP_IN_STRICT) != 0 ? SECCOMP_ACT_DENY : SCMP_ACT_ALLOW;
    if (seccomp_add_names(b, SCMP_ACT_ALLOW, seccomp_allowed,
                          sizeof seccomp_allowed / sizeof seccomp_allowed[0]) != 0 ||
        seccomp_add_names(b, action, seccomp_allowed_default, also) != 0 ||
        seccomp_add_names(b, SECCOMP_ACT_DENY, seccomp_denied,
                          sizeof seccomp_denied / sizeof seccomp_denied[0]) != 0) {
        return -1;
    }
    return seccomp_add_rules(b) != 0 || seccomp_add_options(b, 1, 0, SECCOMP_LEVELS) != 0
               ? -1
               : seccomp_add_ioctls(b, 0, 32);
}

/* libseccomp writes programs to descriptors only. */
static int seccomp_export(scmp_filter_ctx ctx, struct seccomp_program *out, struct err *err) {
    struct stat st;
    fd_cleanup int fd = memfd_create("seccomp", MFD_CLOEXEC);
    if (fd < 0) {
        return err_sys(err, "make a memory file for the filter");
    }
    int rc = seccomp_export_bpf(ctx, fd);
    if (rc != 0) {
        return err_set(err, ERR_SYSTEM, -rc, "compile the filter: %s", strerror(-rc));
    }
    if (fstat(fd, &st) != 0) {
        return err_sys(err, "examine the compiled filter");
    }
    size_t size = (size_t)st.st_size;
    if (size == 0 || size % sizeof(struct sock_filter) != 0 ||
        size / sizeof(struct sock_filter) > BPF_MAXINSNS) {
        return err_set(err, ERR_LIMIT, 0, "the compiled filter has an impossible size: %zu bytes",
                       size);
    }
    struct sock_filter *insns = malloc(size);
    if (insns == NULL || pread(fd, insns, size, 0) != (ssize_t)size) {
        free(insns);
        return err_sys(err, "read the compiled filter");
    }
    out->insns = insns;
    out->len = (unsigned short)(size / sizeof(struct sock_filter));
    return 0;
}

static uint32_t seccomp_set(enum policy_syscalls set, bool shares_user) {
    return 1u << set |
           (shares_user ? (uint32_t)SECCOMP_USER_SHARED : (uint32_t)SECCOMP_USERS_APART);
}

int seccomp_build(enum policy_syscalls set, bool shares_user, struct seccomp_program *out,
                  struct err *err) {
    if (set != POLICY_SYSCALLS_DEFAULT && set != POLICY_SYSCALLS_STRICT) {
        return err_set(err, ERR_INVALID, EINVAL, "there is no such set of system calls");
    }
    struct seccomp_builder b = {.set = seccomp_set(set, shares_user) | SECCOMP_PROGRAM, .err = err};
    b.ctx = seccomp_init(SECCOMP_ACT_ABSENT);
    if (b.ctx == NULL) {
        return err_set(err, ERR_SYSTEM, ENOMEM, "start a system call filter");
    }
    int rc = seccomp_fill(&b);
    if (rc == 0) {
        rc = seccomp_export(b.ctx, out, err);
    }
    seccomp_release(b.ctx);
    return rc;
}

/* The 32-bit tables of the machine are let through as far as they are allowed: for their calls
 * there is the program's listener, which tells who made one. */
int seccomp_profile(enum policy_syscalls set, struct buf *out, struct err *err) {
#ifdef __x86_64__
    static const char archs[] = "\"SCMP_ARCH_X86_64\",\"SCMP_ARCH_X86\",\"SCMP_ARCH_X32\"";
#else
    static const char archs[] = "\"SCMP_ARCH_AARCH64\"";
#endif
    struct seccomp_json json = {.out = out, .comma = ""};
    struct seccomp_builder b = {
        .set = seccomp_set(set, true) | SECCOMP_PROFILE, .json = &json, .err = err};
    if (buf_printf(out, err,
                   "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":%d,"
                   "\"architectures\":[%s],\"syscalls\":[",
                   ENOSYS, archs) != 0 ||
        seccomp_fill(&b) != 0) {
        return -1;
    }
    return buf_puts(out, "]}", err);
}

void seccomp_done(struct seccomp_program *program) {
    if (program != NULL) {
        free(program->insns);
        program->insns = NULL;
        program->len = 0;
    }
}
