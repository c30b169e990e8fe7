/* The filter twice over: its program is run on made-up calls by a small interpreter (so that calls
 * which must never be made on a real machine can be asked for), and it is loaded for real. */
#include "seccomp_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/keyctl.h>
#include <linux/net.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf.h"
#include "seccomp_sets.h"
#include "unit.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define NOTIFY SECCOMP_RET_USER_NOTIF
#define FAIL(code) (SECCOMP_RET_ERRNO | (code))
#define HIGH (1ULL << 32) /* what a 32-bit argument does not have */

static uint32_t ask(enum policy_syscalls set, long nr, uint64_t a0, uint64_t a1, uint64_t a2) {
    struct seccomp_data d = {.nr = (int)nr, .arch = ARCH, .args = {a0, a1, a2, 0, 0, 0}};
    return interpret(&programs[set], &d);
}

struct verdict {
    const char *name;
    long nr;
    uint64_t args[3];
    uint32_t in_default, in_strict;
};

#define CALL(name, d, s, ...)                                                                      \
    { #name, SYS_##name, {__VA_ARGS__ }, d, s }
#define SAME(name, v, ...) CALL(name, v, v, __VA_ARGS__)

static const struct verdict verdicts[] = {
    SAME(read, ALLOW, 0),
    SAME(openat, ALLOW, 0),
    SAME(execve, ALLOW, 0),
    SAME(execveat, ALLOW, 0),
    SAME(futex, ALLOW, 0),
    SAME(rseq, ALLOW, 0),
    SAME(restart_syscall, ALLOW, 0),
    SAME(rt_sigreturn, ALLOW, 0),
    SAME(memfd_create, ALLOW, 0),
    SAME(memfd_create, ALLOW, 0, MFD_CLOEXEC | MFD_ALLOW_SEALING),
    SAME(memfd_create, FAIL(EINVAL), 0, MFD_HUGETLB),
    SAME(memfd_create, FAIL(EINVAL), 0, MFD_HUGETLB | MFD_CLOEXEC | HIGH),
    SAME(prctl, ALLOW, PR_SET_NAME),
    SAME(prctl, ALLOW, PR_SET_NO_NEW_PRIVS),
    SAME(prctl, ALLOW, PR_SCHED_CORE - 1),
    SAME(prctl, ALLOW, PR_SCHED_CORE + 1),
    SAME(prctl, ALLOW, 127),
    SAME(prctl, ALLOW, PR_SET_PTRACER),
    SAME(prctl, ALLOW, 0x53564d41), /* PR_SET_VMA, with which libc names its memory */
    SAME(prctl, FAIL(EINVAL), PR_SCHED_CORE),
    SAME(prctl, FAIL(EINVAL), PR_SCHED_CORE | HIGH),
    SAME(prctl, FAIL(EINVAL), PR_SET_SECCOMP, SECCOMP_MODE_FILTER),
    SAME(prctl, FAIL(EINVAL), PR_SET_SECCOMP | HIGH, SECCOMP_MODE_FILTER),
    SAME(prctl, ALLOW, PR_SET_SECCOMP, SECCOMP_MODE_STRICT),
    CALL(seccomp, FAIL(EINVAL), FAIL(EINVAL), SECCOMP_SET_MODE_FILTER),
    CALL(seccomp, FAIL(EINVAL), FAIL(EINVAL), SECCOMP_SET_MODE_FILTER | HIGH),
    CALL(seccomp, ALLOW, FAIL(ENOSYS), SECCOMP_GET_ACTION_AVAIL),
    SAME(fcntl, ALLOW, 0, F_DUPFD_CLOEXEC),
    SAME(fcntl, ALLOW, 0, F_GETPIPE_SZ),
    SAME(fcntl, ALLOW, 0, F_ADD_SEALS),
    SAME(fcntl, ALLOW, 0, 1038), /* F_SET_FILE_RW_HINT */
    SAME(fcntl, FAIL(EPERM), 0, F_SETPIPE_SZ),
    SAME(fcntl, FAIL(EPERM), 0, F_SETPIPE_SZ | HIGH),
    SAME(fcntl, FAIL(ENOSYS), 0, F_DUPFD_CLOEXEC | HIGH),
    SAME(landlock_create_ruleset, ALLOW, 0),
    SAME(pidfd_open, ALLOW, 0),
    SAME(setresuid, ALLOW, 0),
    SAME(capset, ALLOW, 0),
    SAME(fchmod, ALLOW, 3, 04755),
    SAME(sync, FAIL(0), 0),
    SAME(syncfs, FAIL(0), 3),

    CALL(ptrace, ALLOW, FAIL(EPERM), PTRACE_TRACEME),
    CALL(process_vm_readv, ALLOW, FAIL(EPERM), 1),
    CALL(process_vm_writev, ALLOW, FAIL(EPERM), 1),
    CALL(shmget, ALLOW, FAIL(EPERM), IPC_PRIVATE),
    SAME(shmget, FAIL(EPERM), IPC_PRIVATE, 1, SHM_HUGETLB | 0600),
    CALL(mq_open, ALLOW, FAIL(EPERM), 0),

    SAME(clone3, FAIL(ENOSYS), 0),
    SAME(io_uring_setup, FAIL(ENOSYS), 1),
    SAME(io_uring_enter, FAIL(ENOSYS), 1),
    SAME(io_uring_register, FAIL(ENOSYS), 1),
    SAME(io_setup, FAIL(ENOSYS), 1),
    SAME(keyctl, FAIL(ENOSYS), 0),
    SAME(add_key, FAIL(ENOSYS), 0),
    SAME(request_key, FAIL(ENOSYS), 0),
    SAME(memfd_secret, FAIL(ENOSYS), 0),
    SAME(kcmp, FAIL(ENOSYS), 0),
    SAME(mbind, FAIL(ENOSYS), 0),
    SAME(get_mempolicy, FAIL(ENOSYS), 0),
    SAME(move_pages, FAIL(ENOSYS), 0),

    SAME(bpf, FAIL(EPERM), 0),
    SAME(perf_event_open, FAIL(EPERM), 0),
    SAME(userfaultfd, FAIL(EPERM), 0),
    SAME(kexec_load, FAIL(EPERM), 0),
    SAME(kexec_file_load, FAIL(EPERM), 0),
    SAME(init_module, FAIL(EPERM), 0),
    SAME(finit_module, FAIL(EPERM), 0),
    SAME(delete_module, FAIL(EPERM), 0),
    SAME(mount, FAIL(EPERM), 0),
    SAME(umount2, FAIL(EPERM), 0),
    SAME(pivot_root, FAIL(EPERM), 0),
    SAME(chroot, FAIL(EPERM), 0),
    SAME(open_tree, FAIL(EPERM), 0),
    SAME(move_mount, FAIL(EPERM), 0),
    SAME(fsopen, FAIL(EPERM), 0),
    SAME(fsconfig, FAIL(EPERM), 0),
    SAME(fsmount, FAIL(EPERM), 0),
    SAME(fspick, FAIL(EPERM), 0),
    SAME(mount_setattr, FAIL(EPERM), 0),
    SAME(open_by_handle_at, FAIL(EPERM), 0),
    SAME(fanotify_init, FAIL(EPERM), 0),
    SAME(pidfd_getfd, FAIL(EPERM), 0),
    SAME(quotactl, FAIL(EPERM), 0),
    SAME(acct, FAIL(EPERM), 0),
    SAME(swapon, FAIL(EPERM), 0),
    SAME(swapoff, FAIL(EPERM), 0),
    SAME(reboot, FAIL(EPERM), 0xfee1dead),
    SAME(sethostname, FAIL(EPERM), 0),
    SAME(setdomainname, FAIL(EPERM), 0),
    SAME(settimeofday, FAIL(EPERM), 0),
    SAME(clock_settime, FAIL(EPERM), 0),
    SAME(adjtimex, FAIL(EPERM), 0),
    SAME(syslog, FAIL(EPERM), 0),
    SAME(vhangup, FAIL(EPERM), 0),
#ifdef __x86_64__
    SAME(iopl, FAIL(EPERM), 3),
    SAME(ioperm, FAIL(EPERM), 0),
    SAME(modify_ldt, FAIL(ENOSYS), 0),
    SAME(arch_prctl, ALLOW, 0x1002),
    SAME(mknod, ALLOW, 0, S_IFIFO | 0600),
    SAME(mknod, FAIL(EPERM), 0, S_IFCHR | 0600),
#endif

    SAME(unshare, ALLOW, CLONE_NEWCGROUP),
    SAME(unshare, ALLOW, CLONE_FS | CLONE_FILES),
    SAME(unshare, FAIL(EPERM), CLONE_NEWUSER),
    SAME(unshare, FAIL(EPERM), CLONE_NEWUSER | HIGH),
    SAME(unshare, FAIL(EPERM), CLONE_NEWNS),
    SAME(unshare, FAIL(EPERM), CLONE_NEWTIME),
    SAME(unshare, FAIL(EPERM), CLONE_NEWCGROUP | CLONE_NEWUSER),
    SAME(unshare, FAIL(ENOSYS), CLONE_NEWCGROUP | CLONE_FS),
    SAME(setns, ALLOW, 3, CLONE_NEWCGROUP),
    SAME(setns, FAIL(ENOSYS), 3, 0),
    SAME(setns, FAIL(ENOSYS), 3, CLONE_NEWUSER),
    SAME(setns, FAIL(ENOSYS), 3, CLONE_NEWCGROUP | CLONE_NEWNS),

    SAME(personality, ALLOW, PER_LINUX),
    SAME(personality, ALLOW, ADDR_NO_RANDOMIZE),
    SAME(personality, ALLOW, 0xffffffff),
    SAME(personality, FAIL(ENOSYS), READ_IMPLIES_EXEC),
    SAME(personality, FAIL(ENOSYS), PER_LINUX32),
    SAME(personality, FAIL(ENOSYS), READ_IMPLIES_EXEC | HIGH),

    SAME(mknodat, ALLOW, 3, 0, 0600),
    SAME(mknodat, ALLOW, 3, 0, S_IFREG | 0600),
    SAME(mknodat, ALLOW, 3, 0, S_IFIFO | 0600),
    SAME(mknodat, ALLOW, 3, 0, S_IFSOCK | 0600),
    SAME(mknodat, FAIL(EPERM), 3, 0, S_IFCHR | 0600),
    SAME(mknodat, FAIL(EPERM), 3, 0, S_IFBLK | 0600),
    SAME(mknodat, FAIL(EPERM), 3, 0, S_IFBLK | 0600 | HIGH),

    SAME(socketpair, ALLOW, AF_UNIX),
    SAME(socketpair, FAIL(EAFNOSUPPORT), AF_TIPC),
    SAME(socket, ALLOW, AF_UNIX, SOCK_STREAM),
    CALL(socket, ALLOW, FAIL(EAFNOSUPPORT), AF_INET, SOCK_STREAM),
    CALL(socket, ALLOW, FAIL(EAFNOSUPPORT), AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK),
    CALL(socket, NOTIFY, FAIL(EAFNOSUPPORT), AF_INET, SOCK_DGRAM | SOCK_CLOEXEC),
    CALL(socket, NOTIFY, FAIL(EAFNOSUPPORT), AF_INET6, SOCK_DGRAM, 17),
    CALL(socket, NOTIFY, FAIL(EAFNOSUPPORT), AF_NETLINK, SOCK_RAW, NETLINK_ROUTE),
    CALL(socket, NOTIFY, FAIL(EAFNOSUPPORT), AF_NETLINK, SOCK_RAW | HIGH, NETLINK_ROUTE),
    SAME(listen, NOTIFY, 3, 4096),
    CALL(socket, FAIL(EPROTONOSUPPORT), FAIL(EAFNOSUPPORT), AF_NETLINK, SOCK_RAW,
         NETLINK_NETFILTER),
    CALL(socket, FAIL(EPROTONOSUPPORT), FAIL(EAFNOSUPPORT), AF_INET, SOCK_STREAM, 132),
    SAME(socket, FAIL(EAFNOSUPPORT), AF_PACKET, SOCK_RAW),
    SAME(socket, FAIL(EAFNOSUPPORT), AF_VSOCK, SOCK_STREAM),
    SAME(socket, FAIL(EAFNOSUPPORT), AF_ALG, SOCK_SEQPACKET),
    SAME(socket, FAIL(EAFNOSUPPORT), AF_ALG | HIGH, SOCK_SEQPACKET),

    SAME(ioctl, ALLOW, 0, TIOCGWINSZ),
    SAME(ioctl, ALLOW, 0, FIONREAD),
    SAME(ioctl, ALLOW, 0, TIOCGPTN),
    SAME(ioctl, ALLOW, 0, TIOCGPTN | 0xffffffff00000000), /* a C int that was sign-extended */
    SAME(ioctl, FAIL(EPERM), 0, TIOCSTI),
    SAME(ioctl, FAIL(EPERM), 0, TIOCSTI | HIGH),
    SAME(ioctl, FAIL(EPERM), 0, TIOCLINUX),
    SAME(ioctl, FAIL(EPERM), 0, TIOCSETD),
};

static void test_verdicts(void **state) {
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(verdicts); i++) {
        const struct verdict *v = &verdicts[i];
        for (int set = 0; set < 2; set++) {
            uint32_t want = set == POLICY_SYSCALLS_STRICT ? v->in_strict : v->in_default;
            uint32_t got =
                ask((enum policy_syscalls)set, v->nr, v->args[0], v->args[1], v->args[2]);
            if (got != want) {
                fail_msg("%s(0x%llx, 0x%llx, 0x%llx) in set %d: 0x%x, not 0x%x", v->name,
                         (unsigned long long)v->args[0], (unsigned long long)v->args[1],
                         (unsigned long long)v->args[2], set, got, want);
            }
        }
    }
}

/* Whatever the flags: a namespace is allowed to nobody. */
static void test_clone_flags(void **state) {
    (void)state;
    const uint64_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    for (uint64_t high = 0; high <= HIGH; high += HIGH) {
        for (unsigned i = 0; i < 32; i++) {
            for (unsigned j = 0; j < 32; j++) {
                uint64_t flags = high | 1ULL << i | 1ULL << j;
                uint32_t want = flags & namespaces ? FAIL(EPERM) : ALLOW;
                assert_int_equal(ask(POLICY_SYSCALLS_DEFAULT, SYS_clone, flags, 0, 0), want);
            }
        }
    }
    assert_int_equal(ask(POLICY_SYSCALLS_STRICT, SYS_clone, CLONE_VM | CLONE_THREAD, 0, 0), ALLOW);
}

/* Whatever else is asked for: no page of the host's pool, which no cgroup counts. */
static void test_huge_pages(void **state) {
    (void)state;
    struct seccomp_data d = {.nr = SYS_mmap, .arch = ARCH};
    for (int set = 0; set < 2; set++) {
        for (unsigned bit = 0; bit < 64; bit++) {
            d.args[3] = 1ULL << bit | MAP_PRIVATE;
            assert_int_equal(interpret(&programs[set], &d),
                             d.args[3] & MAP_HUGETLB ? FAIL(ENOMEM) : ALLOW);
            d.args[3] |= MAP_HUGETLB;
            assert_int_equal(interpret(&programs[set], &d), FAIL(ENOMEM));
        }
    }
}

/* Limits of others: where they are other users the kernel decides, else nobody may set them. */
static void test_limits_of_others(void **state) {
    (void)state;
    static const uint64_t pids[] = {0, 1, 2, 4194304, 0xffffffff, HIGH, HIGH | 1};
    for (size_t i = 0; i < 4 * UNIT_COUNT(pids); i++) {
        struct seccomp_program shared = {0};
        struct seccomp_data d = {.nr = SYS_prlimit64, .arch = ARCH, .args = {pids[i / 4]}};
        struct err e = {0};
        unit_works(seccomp_build((enum policy_syscalls)(i / 2 % 2), true, &shared, &e), e);
        assert_false(shared.longer);       /* with the library of this host */
        d.args[2] = i % 2 == 0 ? 0 : HIGH; /* an address, whose lower half may be 0 */
        assert_int_equal(interpret(&programs[i / 2 % 2], &d), ALLOW);
        assert_int_equal(interpret(&shared, &d), d.args[0] && d.args[2] ? FAIL(EPERM) : ALLOW);
        seccomp_done(&shared);
    }
}

/* Every request of 16 bits, and a sample of the others, with all kinds of upper halves. */
static void test_ioctl_requests(void **state) {
    (void)state;
    static const uint64_t upper[] = {0, HIGH, 0xffffffff00000000, 0x8000000000000000};
    for (uint64_t low = 0; low < 0x10000; low++) {
        for (size_t i = 0; i < UNIT_COUNT(upper); i++) {
            bool refused = low == TIOCSTI || low == TIOCLINUX || low == TIOCSETD ||
                           low == SIOCGIFBR || low == SIOCSIFBR || low == SIOCBRADDBR ||
                           low == SIOCBRDELBR || low == SIOCGIFVLAN || low == SIOCSIFVLAN;
            uint32_t got = ask(POLICY_SYSCALLS_DEFAULT, SYS_ioctl, 0, upper[i] | low, 0);
            assert_int_equal(got, refused ? FAIL(EPERM) : ALLOW);
        }
    }
    for (uint64_t high = 0x10000; high <= 0xffff0000; high += 0x10000) {
        assert_int_equal(ask(POLICY_SYSCALLS_STRICT, SYS_ioctl, 0, high | TIOCSTI, 0), ALLOW);
    }
}

/* What a kernel would look for a module for, whatever the flags: only pairs of a type and a
 * protocol that belong together get so far. */
static void test_socket_types(void **state) {
    (void)state;
    static const uint64_t flags[] = {0, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC, HIGH};
    for (uint64_t i = 0; i < 2 * UNIT_COUNT(flags) * 16 * 300; i++) {
        uint64_t family = i % 2 == 0 ? AF_INET : AF_INET6;
        uint64_t icmp = family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6;
        uint64_t type = i / 2 % 16, protocol = i / 32 % 300, flag = flags[i / 32 / 300];
        bool stream = type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
        bool datagram =
            type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP || protocol == icmp);
        uint32_t got = ask(POLICY_SYSCALLS_DEFAULT, SYS_socket, family, type | flag, protocol);
        if (stream || datagram) {
            assert_int_equal(got, stream ? ALLOW : NOTIFY);
        } else {
            assert_int_equal(got & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ERRNO);
        }
    }
}

/* No cgroup counts an access list. */
static void test_attributes(void **state) {
    (void)state;
    static const long nrs[] = {SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr};
    static const uint64_t sizes[] = {0, 1024, 1025, 65536, HIGH, HIGH | 10, UINT64_MAX};
    for (size_t i = 0; i < UNIT_COUNT(nrs) * UNIT_COUNT(sizes) * 2; i++) {
        struct seccomp_data d = {.nr = (int)nrs[i % UNIT_COUNT(nrs)], .arch = ARCH};
        d.args[3] = sizes[i / UNIT_COUNT(nrs) / 2];
        assert_int_equal(interpret(&programs[i / UNIT_COUNT(nrs) % 2], &d),
                         d.args[3] <= 1024 ? ALLOW : FAIL(ENOSPC));
    }
}

/* No call that does not exist yet is allowed, and none of another architecture survives. */
static void test_unknown(void **state) {
    (void)state;
    for (int set = 0; set < 2; set++) {
        for (long nr = 451; nr < 5000; nr++) {
            assert_int_equal(ask((enum policy_syscalls)set, nr, 0, 0, 0), FAIL(ENOSYS));
        }
        assert_int_equal(ask((enum policy_syscalls)set, -1, 0, 0, 0), FAIL(ENOSYS));
        for (int nr = 0; nr < 500; nr++) {
            struct seccomp_data d = {.nr = nr, .arch = AUDIT_ARCH_I386};
            assert_int_equal(interpret(&programs[set], &d), NOTIFY);
            d.arch = AUDIT_ARCH_ARM;
            assert_int_equal(interpret(&programs[set], &d), NOTIFY);
#ifdef __x86_64__
            d.arch = ARCH;
            d.nr = 0x40000000 + nr; /* x32 */
            assert_int_equal(interpret(&programs[set], &d), NOTIFY);
#endif
        }
    }
}

/* The strict set allows nothing that the default set does not. */
static void test_strict_is_narrower(void **state) {
    (void)state;
    static const uint64_t samples[] = {0,  1,      2,         3,          10,
                                       16, 0x5413, 0x2000000, 0xffffffff, UINT64_MAX};
    for (long nr = 0; nr < 500; nr++) {
        for (size_t i = 0; i < UNIT_COUNT(samples) * UNIT_COUNT(samples); i++) {
            uint64_t a0 = samples[i / UNIT_COUNT(samples)], a1 = samples[i % UNIT_COUNT(samples)];
            if (ask(POLICY_SYSCALLS_STRICT, nr, a0, a1, a0) == ALLOW) {
                assert_int_equal(ask(POLICY_SYSCALLS_DEFAULT, nr, a0, a1, a0), ALLOW);
            }
        }
    }
}

/* ---- for real ---- */

static int load(enum policy_syscalls set) {
    struct sock_fprog prog = {programs[set].len, programs[set].insns};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
               ? -1
               : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}

/* Runs `fn` under the filter in a child and returns its wait status. */
static int under(enum policy_syscalls set, int (*fn)(void)) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(20);
        _exit(load(set) == 0 ? fn() : 90);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static bool fails_with(long rc, int code) {
    return rc == -1 && errno == code;
}

static int real_refused(void) {
    char template[] = "/tmp/unit-seccomp-XXXXXX";
    int pty = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (!fails_with(unshare(CLONE_NEWUSER), EPERM)) {
        return 1;
    }
    if (!fails_with(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0), EPERM)) {
        return 2;
    }
    if (!fails_with(syscall(SYS_clone3, NULL, 0), ENOSYS)) {
        return 3;
    }
    if (!fails_with(syscall(SYS_io_uring_setup, 1, NULL), ENOSYS)) {
        return 4;
    }
    if (!fails_with(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -3, 0), ENOSYS)) {
        return 5;
    }
    if (!fails_with(syscall(SYS_bpf, 0, NULL, 0), EPERM)) {
        return 6;
    }
    if (!fails_with(syscall(SYS_userfaultfd, 0), EPERM)) {
        return 7;
    }
    if (!fails_with(syscall(SYS_mount, "none", "/nowhere", "tmpfs", 0, NULL), EPERM)) {
        return 8;
    }
    if (!fails_with(socket(AF_ALG, SOCK_SEQPACKET, 0), EAFNOSUPPORT)) {
        return 9;
    }
    if (!fails_with(renameat2(AT_FDCWD, "/none/a", AT_FDCWD, "/none/b", RENAME_WHITEOUT), EPERM) ||
        !fails_with(renameat2(AT_FDCWD, "/none/a", AT_FDCWD, "/none/b", RENAME_NOREPLACE),
                    ENOENT)) {
        return 14;
    }
    if (pty >= 0 && !fails_with(ioctl(pty, TIOCSTI, "i"), EPERM)) {
        return 10;
    }
    if (pty >= 0 && !fails_with(syscall(SYS_ioctl, pty, TIOCSTI | HIGH, "i"), EPERM)) {
        return 11;
    }
    if (!fails_with(mknod(template, S_IFCHR | 0600, 0x103), EPERM)) {
        return 12;
    }
    return fails_with(syscall(1000), ENOSYS) ? 0 : 13;
}

static void *thread(void *arg) {
    *(int *)arg = 1;
    return NULL;
}

static int real_allowed(void) {
    char path[] = "/tmp/unit-seccomp-XXXXXX";
    pthread_t id;
    int ran = 0, pair[2], status = 0;
    if (pthread_create(&id, NULL, thread, &ran) != 0 || pthread_join(id, NULL) != 0 || !ran) {
        return 1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        _exit(7);
    }
    if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7) {
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || write(pair[0], "x", 1) != 1) {
        return 3;
    }
    int fd = mkstemp(path);
    if (fd < 0 || unlink(path) != 0 || mkfifo(path, 0600) != 0 || unlink(path) != 0) {
        return 4;
    }
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || munmap(p, 4096) != 0) {
        return 5;
    }
    sync();
    if (syncfs(fd) != 0 || personality(0xffffffff) < 0) {
        return 6;
    }
    status = 0;
    pid = fork();
    if (pid == 0) {
        (void)execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 7;
}

static int real_default(void) {
    int status = 0;
    /* What is reported, and heard by nobody here, is not made. */
    if (socket(AF_INET, SOCK_STREAM, 0) < 0 ||
        !fails_with(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), ENOSYS)) {
        return 1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
        ptrace(PTRACE_CONT, pid, NULL, NULL) != 0) {
        return 2;
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? 0 : 3;
}

static int real_strict(void) {
    return fails_with(socket(AF_INET, SOCK_STREAM, 0), EAFNOSUPPORT) &&
                   fails_with(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM)
               ? 0
               : 1;
}

static void test_real(void **state) {
    (void)state;
    for (int set = 0; set < 2; set++) {
        assert_int_equal(under((enum policy_syscalls)set, real_refused), 0);
        assert_int_equal(under((enum policy_syscalls)set, real_allowed), 0);
    }
    assert_int_equal(under(POLICY_SYSCALLS_DEFAULT, real_default), 0);
    assert_int_equal(under(POLICY_SYSCALLS_STRICT, real_strict), 0);
}

#ifdef __x86_64__
static int foreign_i386(void) {
    long nr = 20; /* getpid there */
    __asm__ volatile("int $0x80" : "+a"(nr) : : "memory", "r8", "r9", "r10", "r11");
    return nr == -ENOSYS ? 0 : 1;
}

static int foreign_x32(void) {
    return syscall(0x40000000 + SYS_getpid) < 0 && errno == ENOSYS ? 0 : 1;
}

/* Without a listener, as here, the kernel answers ENOSYS itself; the call is not made either way.
 */
static void test_foreign(void **state) {
    (void)state;
    for (int set = 0; set < 2; set++) {
        assert_int_equal(under((enum policy_syscalls)set, foreign_i386), 0);
        assert_int_equal(under((enum policy_syscalls)set, foreign_x32), 0);
    }
}
#endif

static void test_bounds(void **state) {
    (void)state;
    struct seccomp_program p = {0};
    struct err e;
    unit_fails(seccomp_build((enum policy_syscalls)7, false, &p, &e), e, ERR_INVALID);
    assert_null(p.insns);
    assert_in_range(programs[0].len, 100, 330); /* each jail loads it: its length is its cost */
    assert_in_range(programs[1].len, 100, 330);
    seccomp_done(&p);
    seccomp_done(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_clone_flags),
        cmocka_unit_test(test_ioctl_requests),
        cmocka_unit_test(test_socket_types),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_huge_pages),
        cmocka_unit_test(test_limits_of_others),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_strict_is_narrower),
        cmocka_unit_test(test_real),
#ifdef __x86_64__
        cmocka_unit_test(test_foreign),
#endif
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, seccomp_sets_up, seccomp_sets_down);
}
