#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "scratch.h"

#define PROBE_LOOPS 1000000 /* no check runs for ever, whatever the host does */

static int probe_spin(void) {
    (void)fork(); /* two processes: the limit is on their sum */
    for (volatile unsigned long i = 0; i < 20000000000UL; i++) {
    }
    return 1;
}

static int probe_sleep(void) {
    (void)sleep(30);
    return 1;
}

static int probe_memory(void) {
    for (int i = 0; i < 16384; i++) { /* 64 GiB at most */
        char *p = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            return 1;
        }
        memset(p, 1, 4 << 20);
    }
    return 2;
}

static int probe_pids(void) {
    for (int i = 0; i < 64; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)pause();
            _exit(0);
        }
        if (pid < 0) {
            return errno == EAGAIN && i > 0 ? 0 : 1;
        }
    }
    return 2;
}

static int probe_disk(void) {
    const size_t size = 65536;
    char *block = scratch_new(size);
    int fd = open("/workspace/full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; fd >= 0 && i < PROBE_LOOPS; i++) {
        if (write(fd, block, size) < 0) {
            return errno == ENOSPC ? 0 : 1;
        }
    }
    return 2;
}

static int probe_inodes(void) {
    char path[64];
    for (int i = 0; i < PROBE_LOOPS; i++) {
        (void)snprintf(path, sizeof path, "/workspace/f%d", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) {
            return errno == ENOSPC ? 0 : 1;
        }
        (void)close(fd);
    }
    return 2;
}

static int probe_files(void) {
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max > 1) {
        return 1;
    }
    int fd = open("/workspace/large", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || fd < 0 || ftruncate(fd, 1L << 40) == 0 ||
        errno != EFBIG) {
        return 2;
    }
    for (int i = 0; i < PROBE_LOOPS; i++) {
        if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
            return errno == EMFILE ? 0 : 3;
        }
    }
    return 4;
}

static bool probe_refused(long result, int code) {
    return result < 0 && errno == code;
}

static int probe_seccomp(void) {
    if (!probe_refused(syscall(SYS_unshare, CLONE_NEWUSER), EPERM)) {
        return 1;
    }
    if (!probe_refused(syscall(SYS_clone3, NULL, 0), ENOSYS)) {
        return 2;
    }
    if (!probe_refused(syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL), EPERM)) {
        return 3;
    }
    if (syscall(SYS_io_uring_setup, 1, NULL) >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return 4;
    }
    if (syscall(SYS_bpf, 0, NULL, 0) >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return 5;
    }
    if (syscall(SYS_keyctl, 0, 0) >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return 6;
    }
    if (!probe_refused(syscall(100000), ENOSYS)) {
        return 7;
    }
    return 0;
}

static int probe_arch(void) {
#ifdef __x86_64__
    long result = 20; /* getpid of i386 */
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return 1;
#else
    return 0; /* no second system call table can be reached from user space here */
#endif
}

/* Engines list a user's own group as a supplementary one, too. */
static bool probe_alone(void) {
    gid_t group = 0;
    int n = getgroups(1, &group);
    return n == 0 || (n == 1 && group == INITMSG_UID_USER);
}

static int probe_identity(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[2];
    if (getuid() != INITMSG_UID_USER || geteuid() != INITMSG_UID_USER || getgid() != getegid() ||
        getgid() != INITMSG_UID_USER || !probe_alone()) {
        return 1;
    }
    if (syscall(SYS_capget, &head, data) != 0 || data[0].permitted || data[1].permitted) {
        return 2;
    }
    for (int cap = 0; cap <= CAP_AUDIT_READ; cap++) {
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) != 0) {
            return 3;
        }
    }
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
        return 4;
    }
    if (getpid() < 2 || setuid(0) == 0) {
        return 5;
    }
    return 0;
}

static int probe_connect(int family, const void *addr, socklen_t len) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    int code = connect(fd, addr, len) == 0 ? 0 : errno;
    (void)close(fd);
    return code;
}

static int probe_network(void) {
    struct sockaddr_in lo = {.sin_family = AF_INET, .sin_port = htons(1)};
    struct sockaddr_in out = {.sin_family = AF_INET, .sin_port = htons(1)};
    struct if_nameindex *names = if_nameindex();
    lo.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out.sin_addr.s_addr = htonl(0xC0000201); /* 192.0.2.1: reserved for documentation */
    if (names == NULL || names[0].if_index == 0 || names[1].if_index != 0) {
        return 1;
    }
    if (probe_connect(AF_INET, &lo, sizeof lo) != ECONNREFUSED) {
        return 2; /* lo is up: nobody listens, but the way is there */
    }
    if (probe_connect(AF_INET, &out, sizeof out) != ENETUNREACH) {
        return 3;
    }
    struct sockaddr_in6 lo6 = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
    lo6.sin6_addr = in6addr_loopback;
    int code = probe_connect(AF_INET6, &lo6, sizeof lo6);
    if (code != ECONNREFUSED && code != EAFNOSUPPORT) {
        return 4;
    }
    return 0;
}

static int probe_root(void) {
    static const char *const hidden[] = {
        "/root/.ssh", "/home/user/../../var/lib", "/run/lock", "/sys/kernel", "/opt/", "/srv/",
        "/boot"};
    int denied = open("/probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (denied >= 0 || (errno != EROFS && errno != EACCES)) {
        return 1;
    }
    if (open("/usr/probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0) {
        return 2;
    }
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        if (access(hidden[i], F_OK) == 0) {
            return 10 + (int)i;
        }
    }
    int fd = open("/workspace/mine", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 ? 0 : 3;
}

/* Process 1 has the saved id of commands, so that its children can become them, and no signal
 * reaches it; who has its real or effective id could change how it is scheduled, and signal what
 * waits. */
static int probe_apart(void) {
    return probe_refused(setpriority(PRIO_PROCESS, 1, 0), EPERM) ? 0 : 1;
}

static int (*const probe_table[INITMSG_PROBE_COUNT])(void) = {
    [INITMSG_PROBE_SPIN] = probe_spin,       [INITMSG_PROBE_SLEEP] = probe_sleep,
    [INITMSG_PROBE_MEMORY] = probe_memory,   [INITMSG_PROBE_PIDS] = probe_pids,
    [INITMSG_PROBE_DISK] = probe_disk,       [INITMSG_PROBE_INODES] = probe_inodes,
    [INITMSG_PROBE_FILES] = probe_files,     [INITMSG_PROBE_SECCOMP] = probe_seccomp,
    [INITMSG_PROBE_ARCH] = probe_arch,       [INITMSG_PROBE_IDENTITY] = probe_identity,
    [INITMSG_PROBE_NETWORK] = probe_network, [INITMSG_PROBE_ROOT] = probe_root,
    [INITMSG_PROBE_APART] = probe_apart,
};

int probe_run(enum initmsg_probe what) {
    if (what <= INITMSG_PROBE_NONE || what >= INITMSG_PROBE_COUNT || probe_table[what] == NULL) {
        return 99;
    }
    return probe_table[what]();
}
