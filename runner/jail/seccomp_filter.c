/* Theory of operation. Two tables of names (seccomp_names.c) and one table of rules that look at
 * arguments; what is in none of them falls to ENOSYS. For one system call the rules of the third
 * table never overlap with different actions, so that their order, which is the compiler's to
 * choose, cannot matter.
 *
 * Arguments are 64-bit registers, and where the kernel reads an int from one, the upper half is the
 * caller's to fill. A rule that refuses must therefore look at the lower half only (a masked
 * comparison): TIOCSTI + 2^32 is TIOCSTI for the kernel.
 *
 * The program is not libseccomp's (unless the two differ, see the header) but made by
 * seccomp_graph.c and seccomp_emit.c, because each jail loads one: the kernel translates every
 * instruction of it, several times over, and runs it once per system call number, to make a bitmap
 * of those that are always allowed. libseccomp asks for each number by itself and has no ranges,
 * and its program is about four times as long. */
#include "seccomp_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
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
#include "seccomp_names.h"
#include "seccomp_rules.h"

#define SECCOMP_LOW 0xffffffffu /* the half that an int argument is read from */
#define SECCOMP_ATTRIBUTE_MAX 1024
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

struct seccomp_line {
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
#define SECCOMP_SHORT(name)                                                                        \
    SECCOMP_BOTH(name, SCMP_ACT_ALLOW, SECCOMP_LT(3, SECCOMP_ATTRIBUTE_MAX + 1)),                  \
        SECCOMP_BOTH(name, SCMP_ACT_ERRNO(ENOSPC), SECCOMP_GT(3, SECCOMP_ATTRIBUTE_MAX))
#define SECCOMP_FILE_TYPE(name, n, action, type)                                                   \
    SECCOMP_BOTH(name, action, SECCOMP_MASKED(n, S_IFMT, type))
#define SECCOMP_FROM(n, first, count) SECCOMP_MASKED(n, ~(uint64_t)((count)-1), first)
#define SECCOMP_NO_FAMILY(first, count)                                                            \
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_FROM(0, first, count))
#define SECCOMP_TYPE(family, type, protocol, action)                                               \
    SECCOMP_DEFAULT("socket", action, SECCOMP_EQ(0, family), SECCOMP_MASKED(1, 15, type),          \
                    SECCOMP_EQ(2, protocol))
#define SECCOMP_NO_TYPE(family, bits, type)                                                        \
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(ESOCKTNOSUPPORT), SECCOMP_EQ(0, family),              \
                    SECCOMP_MASKED(1, bits, type), SECCOMP_EQ(2, 0))
/* For a type and a protocol that do not belong together the kernel starts modprobe twice, as the
 * host's root: only the pairs that there are get so far. A raw one is refused as by the kernel. */
#define SECCOMP_INTERNET(family, icmp)                                                             \
    SECCOMP_TYPE(family, SOCK_STREAM, 0, SCMP_ACT_ALLOW),                                          \
        SECCOMP_TYPE(family, SOCK_DGRAM, 0, SCMP_ACT_NOTIFY), SECCOMP_NO_TYPE(family, 15, 0),      \
        SECCOMP_NO_TYPE(family, 3, 3), SECCOMP_NO_TYPE(family, 4, 4),                              \
        SECCOMP_NO_TYPE(family, 8, 8),                                                             \
        SECCOMP_TYPE(family, SOCK_STREAM, IPPROTO_TCP, SCMP_ACT_ALLOW),                            \
        SECCOMP_TYPE(family, SOCK_DGRAM, IPPROTO_UDP, SCMP_ACT_NOTIFY),                            \
        SECCOMP_TYPE(family, SOCK_DGRAM, icmp, SCMP_ACT_NOTIFY),                                   \
        SECCOMP_TYPE(family, SOCK_RAW, icmp, SECCOMP_ACT_DENY)
#define SECCOMP_NO_PROTOCOL(family, above)                                                         \
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(EPROTONOSUPPORT), SECCOMP_EQ(0, family),              \
                    SECCOMP_GT(2, above))

static const struct seccomp_line seccomp_lines[] = {
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

    /* fcntl: a pipe that is made larger takes from the share of the user who made it: of the
     * server, which made those that lead out, and so of all other jails. */
    SECCOMP_BOTH("fcntl", SCMP_ACT_ALLOW, SECCOMP_LT(1, F_SETPIPE_SZ)),
    SECCOMP_BOTH("fcntl", SCMP_ACT_ALLOW, SECCOMP_FROM(1, F_SETPIPE_SZ + 1, 8)),
    SECCOMP_BOTH("fcntl", SECCOMP_ACT_DENY, SECCOMP_INT(1, F_SETPIPE_SZ)),

    /* Attributes of files: what an access list holds (by its other form, system.posix_acl_access)
     * no cgroup counts, and in a file system in memory it stays as long as the file. Few are longer
     * than a hundred bytes. */
    SECCOMP_SHORT("setxattr"),
    SECCOMP_SHORT("lsetxattr"),
    SECCOMP_SHORT("fsetxattr"),

    /* prctl: everything up to now but PR_SCHED_CORE and filters. Who has a core cookie of his own
     * keeps all others from the sibling of the processor that he is on, and so takes twice his
     * share. */
    SECCOMP_BOTH("prctl", SCMP_ACT_ERRNO(EINVAL), SECCOMP_INT(0, PR_SCHED_CORE)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_LT(0, PR_SET_SECCOMP)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SET_SECCOMP + 1)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_FROM(0, 24, 8)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_FROM(0, 32, 16)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_FROM(0, 48, 8)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_FROM(0, 56, 4)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_FROM(0, 60, 2)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SCHED_CORE + 1)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_FROM(0, 64, 64)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SET_VMA)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SET_PTRACER)),

    /* Filters of the program's own: compiled programs have one share of memory for the whole host,
     * as for packets below. Answered as by a kernel that has none. */
    SECCOMP_BOTH("prctl", SCMP_ACT_ERRNO(EINVAL), SECCOMP_INT(0, PR_SET_SECCOMP),
                 SECCOMP_EQ(1, SECCOMP_MODE_FILTER)),
    SECCOMP_BOTH("prctl", SCMP_ACT_ALLOW, SECCOMP_EQ(0, PR_SET_SECCOMP),
                 SECCOMP_NE(1, SECCOMP_MODE_FILTER)),
    SECCOMP_BOTH("seccomp", SCMP_ACT_ERRNO(EINVAL), SECCOMP_INT(0, SECCOMP_SET_MODE_FILTER)),
    SECCOMP_DEFAULT("seccomp", SCMP_ACT_ALLOW, SECCOMP_EQ(0, SECCOMP_SET_MODE_STRICT)),
    SECCOMP_DEFAULT("seccomp", SCMP_ACT_ALLOW, SECCOMP_EQ(0, SECCOMP_GET_ACTION_AVAIL)),
    SECCOMP_DEFAULT("seccomp", SCMP_ACT_ALLOW, SECCOMP_EQ(0, SECCOMP_GET_NOTIF_SIZES)),

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
     * jail_sockets.c bounds how many there are. */
    SECCOMP_BOTH("socketpair", SCMP_ACT_ALLOW, SECCOMP_EQ(0, AF_UNIX)),
    SECCOMP_BOTH("socketpair", SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_NE(0, AF_UNIX)),
    SECCOMP_BOTH("socket", SCMP_ACT_ALLOW, SECCOMP_EQ(0, AF_UNIX)),
    SECCOMP_RULE("socket", SECCOMP_IN_STRICT, SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_NE(0, AF_UNIX)),
    SECCOMP_INTERNET(AF_INET, IPPROTO_ICMP),
    SECCOMP_NO_PROTOCOL(AF_INET, IPPROTO_UDP),
    SECCOMP_INTERNET(AF_INET6, IPPROTO_ICMPV6),
    SECCOMP_NO_PROTOCOL(AF_INET6, IPPROTO_ICMPV6),
    SECCOMP_DEFAULT("socket", SCMP_ACT_NOTIFY, SECCOMP_EQ(0, AF_NETLINK),
                    SECCOMP_EQ(2, 0)), /* NETLINK_ROUTE */
    SECCOMP_NO_PROTOCOL(AF_NETLINK, 0),
    SECCOMP_BOTH("listen", SCMP_ACT_NOTIFY),
    SECCOMP_NO_FAMILY(0, 1),
    SECCOMP_NO_FAMILY(3, 1),
    SECCOMP_NO_FAMILY(4, 4),
    SECCOMP_NO_FAMILY(8, 2),
    SECCOMP_NO_FAMILY(11, 1),
    SECCOMP_NO_FAMILY(12, 4),
    SECCOMP_DEFAULT("socket", SCMP_ACT_ERRNO(EAFNOSUPPORT), SECCOMP_GT(0, AF_NETLINK)),
};

/* Options of sockets, by level. Compiled programs for packets have one share of memory for the
 * whole host: when it is used up nobody unprivileged can load a filter, so that no jail could be
 * made. Flow labels are a few thousand for all; a protocol on top of TCP is a module. Groups of
 * IPv6 are 300 bytes each, hundreds for each socket, in one list that is searched by each. Error
 * queues and keys of connections are memory that no cgroup counts, nor are receive buffers of
 * netlink and of connections that nobody has accepted: they stay as large as the kernel makes them
 * by itself. Two are answered 0 and do nothing, since a program can do without but gives up where
 * they are refused: that (servers), and that ICMP errors are to be queued (glibc's resolver). Of
 * groups that are joined, and of TCP that is opened fast, the runner is told: more may stay of them
 * than the socket (netns.h), as the namespace's key, or a connection that sends nothing. */
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
    {IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, SECCOMP_ACT_OPTION},
    {IPPROTO_IPV6, MCAST_JOIN_GROUP, SECCOMP_ACT_OPTION},
    {IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, SECCOMP_ACT_OPTION},
    {IPPROTO_IP, IP_ADD_MEMBERSHIP, SCMP_ACT_NOTIFY},
    {IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, SCMP_ACT_NOTIFY},
    {IPPROTO_IP, MCAST_JOIN_GROUP, SCMP_ACT_NOTIFY},
    {IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, SCMP_ACT_NOTIFY},
    {IPPROTO_IPV6, IPV6_JOIN_ANYCAST, SCMP_ACT_NOTIFY},
    {IPPROTO_TCP, TCP_FASTOPEN, SCMP_ACT_NOTIFY},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, SCMP_ACT_NOTIFY},
    {IPPROTO_IP, IP_RECVERR, SCMP_ACT_ERRNO(0)},
    {IPPROTO_IPV6, IPV6_RECVERR, SCMP_ACT_ERRNO(0)},
};
enum { SECCOMP_LEVELS = 512, SECCOMP_OPTIONS = 128 }; /* more than there are; powers of two */

/* ioctl requests that type into a terminal (TIOCSTI, and TIOCLINUX by pasting), put a line
 * discipline, which is a kernel module, on one, or ask any socket for bridges and VLANs, for which
 * anybody may have the kernel load the module. */
static const uint32_t seccomp_ioctls[] = {TIOCSTI,     TIOCLINUX,   TIOCSETD,
                                          SIOCGIFBR,   SIOCSIFBR,   SIOCBRADDBR,
                                          SIOCBRDELBR, SIOCGIFVLAN, SIOCSIFVLAN};

struct seccomp_builder {
    struct seccomp_rules *rules;
    uint32_t set;              /* one bit of each kind in enum seccomp_sets */
    struct seccomp_json *json; /* not NULL: a profile is written in place of the filter */
    struct err *err;
};

static int seccomp_put(struct seccomp_rules *rules, const struct seccomp_rule *rule,
                       struct err *err) {
    if (rules->count == SECCOMP_RULES_MAX) {
        return err_set(err, ERR_LIMIT, 0, "the system call filter has too many rules");
    }
    rules->v[rules->count++] = *rule;
    return 0;
}

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
    struct seccomp_rule rule = {.nr = nr, .action = action, .count = count};
    for (unsigned i = 0; i < count; i++) {
        rule.cmp[i] = cmp[i];
    }
    return seccomp_put(b->rules, &rule, b->err);
}

static int seccomp_add_names(struct seccomp_builder *b, uint32_t action, const char *const *lists) {
    char name[32];
    for (; *lists != NULL; lists++) {
        for (const char *p = *lists; *p != '\0';) {
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
    for (size_t i = 0; i < sizeof seccomp_lines / sizeof seccomp_lines[0]; i++) {
        const struct seccomp_line *r = &seccomp_lines[i];
        if ((r->sets & b->set) && seccomp_add(b, r->name, r->action, r->count, r->cmp) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Allows every ioctl request whose upper `32 - bits` bits equal those of `prefix`, save the refused
 * ones. libseccomp has no "masked not equal", so the complement is put together from prefixes, as
 * in a routing table: 60 rules that do not overlap, each on the lower 32 bits alone. */
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

static int seccomp_fill(struct seccomp_builder *b) {
    uint32_t action = (b->set & SECCOMP_IN_STRICT) != 0 ? SECCOMP_ACT_DENY : SCMP_ACT_ALLOW;
    if (seccomp_add_names(b, SCMP_ACT_ALLOW, seccomp_names_allowed) != 0 ||
        seccomp_add_names(b, action, seccomp_names_default) != 0 ||
        seccomp_add_names(b, SECCOMP_ACT_DENY, seccomp_names_denied) != 0) {
        return -1;
    }
    return seccomp_add_rules(b) != 0 || seccomp_add_options(b, 1, 0, SECCOMP_LEVELS) != 0
               ? -1
               : seccomp_add_ioctls(b, 0, 32);
}

static uint32_t seccomp_set(enum policy_syscalls set, bool shares_user) {
    return 1u << set |
           (shares_user ? (uint32_t)SECCOMP_USER_SHARED : (uint32_t)SECCOMP_USERS_APART);
}

struct seccomp_rules *seccomp_rules_new(enum policy_syscalls set, bool shares_user,
                                        struct err *err) {
    if (set != POLICY_SYSCALLS_DEFAULT && set != POLICY_SYSCALLS_STRICT) {
        (void)err_set(err, ERR_INVALID, EINVAL, "there is no such set of system calls");
        return NULL;
    }
    struct seccomp_rules *rules = calloc(1, sizeof *rules);
    if (rules == NULL) {
        (void)err_sys(err, "making the system call filter");
        return NULL;
    }
    struct seccomp_builder b = {
        .rules = rules, .set = seccomp_set(set, shares_user) | SECCOMP_PROGRAM, .err = err};
    if (seccomp_fill(&b) != 0) {
        free(rules);
        return NULL;
    }
    return rules;
}

int seccomp_build(enum policy_syscalls set, bool shares_user, struct seccomp_program *out,
                  struct err *err) {
    struct seccomp_program built = {0}, shorter = {0};
    struct err why;
    struct seccomp_rules *rules = seccomp_rules_new(set, shares_user, err);
    if (rules == NULL || seccomp_library(rules, &built, err) != 0) {
        free(rules);
        return -1;
    }
    /* The library is the judge of the shorter one: any doubt, and its own is taken. */
    bool same =
        seccomp_compile(rules, &shorter, &why) == 0 && seccomp_same(rules, &built, &shorter);
    seccomp_done(same ? &built : &shorter);
    free(rules);
    *out = same ? shorter : built;
    out->longer = !same;
    return 0;
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
