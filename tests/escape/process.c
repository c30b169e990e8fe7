/* Process 1, its control socket, the warm pool's processes, descriptors, terminals, power over
 * oneself. */
#include "attempt.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FIRST "process 1"
#define CONTROL "control socket"
#define POOL "warm pool"
#define PTRACE "ptrace"
#define LEAKED "leaked descriptors"
#define EXE "/proc/self/exe"
#define POWER "capabilities"
#define SUID "set-uid"
#define TERMINALS "terminals"

/* Process 1 */

#define READS(name, path)                                                                          \
    ATTEMPT(FIRST, read_##name, "EACCES EPERM ENOENT", "reading " path) {                          \
        char room[64];                                                                             \
        int fd = (int)TRY(open(path, O_RDONLY | O_CLOEXEC));                                       \
        return fd < 0 ? -1 : TRY(read(fd, room, sizeof room));                                     \
    }
READS(mem, "/proc/1/mem")
READS(maps, "/proc/1/maps")
READS(auxv, "/proc/1/auxv")
READS(stack, "/proc/1/stack")
READS(syscall, "/proc/1/syscall")
READS(io, "/proc/1/io")

#define WRITES(name, path, text)                                                                   \
    ATTEMPT(FIRST, write_##name, REFUSED, "writing " path) {                                       \
        return TRY(escape_write(path, text));                                                      \
    }
WRITES(oom, "/proc/1/oom_score_adj", "1000")
WRITES(clear_refs, "/proc/1/clear_refs", "1")
WRITES(coredump, "/proc/1/coredump_filter", "255")
WRITES(comm, "/proc/1/comm", "x")
WRITES(timens, "/proc/1/timens_offsets", "monotonic 1000 0")
WRITES(autogroup, "/proc/1/autogroup", "19")

ATTEMPT(FIRST, affinity, "EPERM ESRCH", "the processors of process 1") {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    return TRY(sched_setaffinity(1, sizeof one, &one));
}

ATTEMPT(FIRST, scheduler, "EPERM ESRCH", "the scheduling class of process 1") {
    struct sched_param p = {0};
    return TRY(syscall(SYS_sched_setscheduler, 1, SCHED_IDLE, &p));
}

ATTEMPT(FIRST, io_class, "EPERM ESRCH", "the I/O class of process 1") {
    return TRY(syscall(SYS_ioprio_set, 1, 1, 3 << 13));
}

ATTEMPT(FIRST, robust_list, "EPERM ESRCH", "the addresses of process 1 by get_robust_list") {
    void *head;
    size_t len;
    return TRY(syscall(SYS_get_robust_list, 1, &head, &len));
}

ATTEMPT(FIRST, signal_queue, "EPERM ESRCH EINVAL", "a forged child's end, queued to process 1") {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGCHLD;
    info.si_code = CLD_EXITED;
    return TRY(syscall(SYS_rt_sigqueueinfo, 1, SIGCHLD, &info));
}

ATTEMPT(FIRST, pidfd_kill, "OK EPERM ESRCH EINVAL", "killing process 1 by a pidfd: it lives on") {
    int fd = (int)syscall(434, 1, 0);
    NEED(fd >= 0 || errno == EPERM || errno == ESRCH);
    return TRY(syscall(424, fd, SIGKILL, NULL, 0));
}

ATTEMPT(FIRST, tgkill, "OK EPERM ESRCH", "killing the thread of process 1: it lives on") {
    return TRY(syscall(SYS_tgkill, 1, 1, SIGKILL));
}

ATTEMPT(FIRST, same_group, "EPERM ESRCH", "joining the process group of process 1") {
    return TRY(setpgid(0, 1));
}

/* An orphan that ends at once. Its number, or -1. */
static pid_t orphan(void) {
    int ends[2];
    pid_t number = -1;
    NEED(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t child = fork();
        if (child == 0) {
            _exit(3);
        }
        _exit(write(ends[1], &child, sizeof child) == sizeof child ? 0 : 1);
    }
    (void)close(ends[1]);
    if (pid < 0 || read(ends[0], &number, sizeof number) != sizeof number) {
        number = -1;
    }
    (void)close(ends[0]);
    if (pid > 0) {
        (void)waitpid(pid, NULL, 0);
    }
    return number;
}

/* A dead one has its number until it is buried. Five seconds are more than a busy machine takes. */
static bool is_buried(pid_t pid) {
    for (int i = 0; i < 5000; i++) {
        if (kill(pid, 0) != 0 && errno == ESRCH) {
            return true;
        }
        (void)poll(NULL, 0, 1);
    }
    return false;
}

ATTEMPT(FIRST, reaper_orphans, "EPERM", "5,000 orphans for process 1 to bury; the run ends") {
    escape_reached("fork() of 5000 grandchildren");
    for (int i = 1; i <= 5000; i++) {
        pid_t pid = orphan();
        if (pid < 0) {
            errno = EAGAIN;
            return -1;
        }
        if (i % 20 == 0 && !is_buried(pid)) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
    errno = EPERM;
    return -1;
}

/* The control socket: process 1 speaks to the runner by it, nobody else may. */

ATTEMPT(CONTROL, no_socket, "EBADF", "a message on any descriptor that was inherited") {
    int saved = EBADF;
    long best = -1;
    escape_reached("send(3…1023)");
    for (int fd = 3; fd < 1024 && best < 0; fd++) {
        best = send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        saved = best < 0 && errno != EBADF ? errno : saved;
    }
    errno = saved;
    return best;
}

static long control_reopen(const char *mode) {
    char path[64];
    int saved = ENOENT;
    for (int fd = 0; fd < 64; fd++) {
        (void)snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
        int got = open(path, (mode[0] == 'w' ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_CLOEXEC);
        if (got >= 0) {
            return got;
        }
        saved = errno != ENOENT ? errno : saved;
    }
    errno = saved;
    return -1;
}

ATTEMPT(CONTROL, reopen_read, "EACCES EPERM ENOENT", "opening descriptors of process 1 to read") {
    return TRY(control_reopen("r"));
}

ATTEMPT(CONTROL, reopen_write, "EACCES EPERM ENOENT", "opening descriptors of process 1 to write") {
    return TRY(control_reopen("w"));
}

ATTEMPT(CONTROL, fdinfo, "EACCES EPERM ENOENT", "what descriptors process 1 has") {
    DIR *d = (DIR *)TRY((long)opendir("/proc/1/fd"));
    return d == NULL ? -1 : 0;
}

static long control_take(int from, int to) {
    int self = (int)syscall(434, 1, 0);
    int saved = errno;
    for (int fd = from; self >= 0 && fd < to; fd++) {
        long got = syscall(438, self, fd, 0);
        if (got >= 0) {
            return got;
        }
        saved = errno;
    }
    errno = saved;
    return -1;
}

ATTEMPT(CONTROL, take_each, "EPERM ENOSYS ESRCH EBADF", "pidfd_getfd of 64 of its descriptors") {
    return TRY(control_take(0, 64));
}

ATTEMPT(CONTROL, connect_names, "ECONNREFUSED ENOENT EACCES EPERM",
        "connecting to any socket that /proc/net/unix names") {
    char line[512];
    FILE *f = fopen("/proc/net/unix", "r");
    int saved = ENOENT;
    escape_reached("connect() to each name in /proc/net/unix");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *name = strpbrk(line, "@/");
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        if (name == NULL) {
            continue;
        }
        size_t len = strcspn(name, "\n");
        len = len < sizeof a.sun_path ? len : sizeof a.sun_path - 1;
        memcpy(a.sun_path, name, len);
        if (name[0] == '@') {
            a.sun_path[0] = '\0';
        }
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (connect(fd, (void *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) ==
            0) {
            return 0;
        }
        saved = errno == EPROTOTYPE ? ECONNREFUSED : errno;
        close(fd);
    }
    errno = saved;
    return -1;
}

/* sock_diag knows sockets by inode, across mount namespaces. */
ATTEMPT(CONTROL, unix_diag, FAMILY, "listing Unix sockets by sock_diag") {
    return TRY(socket(AF_NETLINK, SOCK_RAW, 4));
}

/* The warm pool: a jail waits with a child that will be the command. No step's process may be
 * touched by what an earlier step left running. */

static long pool_each(long (*one)(int pid)) {
    DIR *d = opendir("/proc");
    struct dirent *e;
    long best = -1;
    int me = getpid(), parent = getppid();
    NEED(d != NULL);
    while (best < 0 && (e = readdir(d)) != NULL) {
        int pid = (int)strtol(e->d_name, NULL, 10);
        if (pid > 0 && pid != me && pid != parent) {
            best = one(pid) >= 0 ? 0 : -1;
        }
    }
    closedir(d);
    errno = best < 0 ? EPERM : 0;
    return best;
}

static long pool_trace(int pid) {
    return ptrace(PTRACE_SEIZE, pid, 0, 0);
}

static long pool_mem(int pid) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", pid);
    return open(path, O_RDWR | O_CLOEXEC);
}

static long pool_stop(int pid) {
    return pid == 1 ? -1 : kill(pid, SIGSTOP);
}

static long pool_limits(int pid) {
    struct rlimit none = {0, 0};
    return prlimit(pid, RLIMIT_NOFILE, &none, NULL);
}

static long pool_nice(int pid) {
    return setpriority(PRIO_PROCESS, (id_t)pid, 19);
}

static long pool_cwd(int pid) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/cwd", pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

#define WARM(name, what)                                                                           \
    ATTEMPT(POOL, warm_##name, "EPERM", what) {                                                    \
        escape_reached(#name " of every process in /proc that is not ours");                       \
        return pool_each(pool_##name);                                                             \
    }
WARM(trace, "tracing what waits in the jail")
WARM(mem, "opening the memory of what waits in the jail")
WARM(stop, "stopping what waits in the jail")
WARM(limits, "limits of what waits in the jail")
WARM(nice, "the niceness of what waits in the jail")
WARM(cwd, "the directory of what waits in the jail")

/* Other processes: ptrace */

ATTEMPT(PTRACE, trace_parent, "EPERM ESRCH", "tracing process 1 as its child: PTRACE_TRACEME") {
    /* The parent of the run's first process is process 1; asking it to trace us must not work out
     * to more than a stop that it survives. */
    return TRY(ptrace(PTRACE_ATTACH, 1, 0, 0));
}

ATTEMPT(PTRACE, vm_read_many, "EPERM ENOSYS ESRCH EFAULT",
        "process_vm_readv of processes 1 to 63") {
    char room[16];
    struct iovec here = {room, sizeof room}, there = {(void *)0x400000, sizeof room};
    long best = -1;
    int saved = ESRCH, me = getpid(), parent = getppid();
    escape_reached("process_vm_readv(1…63)");
    for (int pid = 1; pid < 64 && best < 0; pid++) {
        if (pid != me && pid != parent) {
            best = syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
            saved = best < 0 && errno != ESRCH ? errno : saved;
        }
    }
    errno = saved;
    return best;
}

ATTEMPT(PTRACE, trace_setoptions, "ESRCH EPERM", "options on a process that we do not trace") {
    return TRY(ptrace(PTRACE_SETOPTIONS, 1, 0, 0x100000));
}

/* A tracer may change the system call of its child after the filter has looked: since 4.8 the
 * filter looks again. */
ATTEMPT(PTRACE, trace_change_call, CLOSED, "changing a traced child's call behind the filter") {
#ifdef __x86_64__
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        syscall(SYS_kill, getpid(), SIGSTOP);
        errno = 0;
        long r = syscall(SYS_getppid);
        _exit(r == -EPERM || (r == -1 && (errno == EPERM || errno == ENOSYS)) ? 7 : 0);
    }
    NEED(pid > 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    if (TRY(ptrace(PTRACE_SYSCALL, pid, 0, 0)) != 0) {
        int saved = errno; /* the strict set: it stopped untraced */
        kill(pid, SIGKILL);
        errno = saved == ESRCH ? EPERM : saved;
        return -1;
    }
    NEED(waitpid(pid, &status, 0) == pid);
    escape_reached("ptrace(PTRACE_POKEUSER, orig_rax, SYS_unshare)");
    NEED(ptrace(PTRACE_POKEUSER, pid, 8 * 15, SYS_unshare) == 0);
    NEED(ptrace(PTRACE_POKEUSER, pid, 8 * 14, CLONE_NEWUSER) == 0);
    NEED(ptrace(PTRACE_CONT, pid, 0, 0) == 0 && waitpid(pid, &status, 0) == pid);
    errno = WIFEXITED(status) && WEXITSTATUS(status) == 7 ? EPERM : 0;
    return errno == EPERM ? -1 : 0;
#else
    escape_reached("not for this processor");
    errno = ENOSYS;
    return -1;
#endif
}

/* Descriptors */

ATTEMPT(LEAKED, only_three, "EBADF", "any descriptor beyond 0, 1 and 2") {
    struct stat st;
    escape_reached("fstat(3…65535)");
    for (int fd = 3; fd < 65536; fd++) {
        if (fstat(fd, &st) == 0) {
            return fd;
        }
    }
    errno = EBADF;
    return -1;
}

static long leaked_directory(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : -1;
}

ATTEMPT(LEAKED, no_directory, "ENOTDIR EBADF", "0, 1 or 2 as a directory of the host") {
    escape_reached("openat(0…2, \"..\")");
    for (int fd = 0; fd < 3; fd++) {
        if (leaked_directory(fd) == 0) {
            return 0;
        }
    }
    return openat(0, "..", O_RDONLY | O_CLOEXEC);
}

ATTEMPT(LEAKED, output_as_input, "EACCES EPERM EINVAL ENXIO ENOENT OK",
        "reading the own output back: it is ours, and nobody else's") {
    return TRY(open("/proc/self/fd/1", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

ATTEMPT(LEAKED, descriptor_socket, "ENOTSOCK EBADF", "sending a descriptor out by 0, 1 or 2") {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {(char[1]){"x"[0]}, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room};
    m.msg_controllen = sizeof room;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    escape_reached("sendmsg(0…2, SCM_RIGHTS)");
    for (int fd = 0; fd < 3; fd++) {
        if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            return 0;
        }
    }
    return -1;
}

ATTEMPT(LEAKED, input_write, "EBADF EACCES EPERM OK ENXIO",
        "writing into the standard input: nobody reads it but us") {
    return TRY(open("/proc/self/fd/0", O_WRONLY | O_NONBLOCK | O_CLOEXEC));
}

/* The program itself */

ATTEMPT(EXE, own_exe_write, "ETXTBSY EACCES EPERM EROFS OK",
        "writing the own program: it is a copy of ours in this jail") {
    return TRY(open("/proc/self/exe", O_WRONLY | O_CLOEXEC));
}

ATTEMPT(EXE, init_exe_read, "EACCES EPERM ENOENT", "reading the program of process 1") {
    return TRY(open("/proc/1/exe", O_RDONLY | O_CLOEXEC));
}

ATTEMPT(EXE, init_exe_path, "EACCES EPERM ENOENT", "a path descriptor of it") {
    return TRY(open("/proc/1/exe", O_PATH | O_CLOEXEC));
}

ATTEMPT(EXE, init_exe_run, "EACCES EPERM ENOENT", "starting it a second time, to write it then") {
    return TRY(execl("/proc/1/exe", "x", (char *)NULL));
}

ATTEMPT(EXE, init_map_files, "EACCES EPERM ENOENT", "its mappings in /proc/1/map_files") {
    return TRY((long)opendir("/proc/1/map_files") == 0 ? -1 : 0);
}

/* Power over oneself */

#define BECOMES(name, what, ...)                                                                   \
    ATTEMPT(POWER, become_##name, "EPERM EINVAL", what) {                                          \
        return TRY(syscall(__VA_ARGS__));                                                          \
    }
BECOMES(root_real, "setreuid(0, 0)", SYS_setreuid, 0, 0)
BECOMES(root_group, "setregid(0, 0)", SYS_setregid, 0, 0)
BECOMES(root_res, "setresuid(0, 0, 0)", SYS_setresuid, 0, 0, 0)
BECOMES(root_resgid, "setresgid(0, 0, 0)", SYS_setresgid, 0, 0, 0)
BECOMES(init_user, "the user of process 1", SYS_setresuid, 1, 1, 1)
BECOMES(host_user, "the user nobody of the host", SYS_setresuid, 65534, 65534, 65534)

ATTEMPT(POWER, fsuid, "EPERM", "setfsuid(0)") {
    escape_reached("setfsuid(0)");
    syscall(SYS_setfsuid, 0);
    errno = EPERM;
    return syscall(SYS_setfsuid, -1) == 0 ? 0 : -1;
}

ATTEMPT(POWER, keep_caps, "EPERM", "keeping capabilities across a change of user") {
    (void)prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    unsigned h[2] = {0x20080522, 0}, d[6] = {1, 1, 1, 0, 0, 0};
    return TRY(syscall(SYS_capset, h, d));
}

ATTEMPT(POWER, secure_bits, "EPERM EINVAL", "securebits") {
    return TRY(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
}

ATTEMPT(POWER, inherit_all, "EPERM", "the whole inheritable set") {
    unsigned h[2] = {0x20080522, 0}, d[6] = {0, 0, ~0u, 0, 0, ~0u};
    return TRY(syscall(SYS_capset, h, d));
}

ATTEMPT(POWER, chown_root, "EPERM EINVAL", "giving a file to root") {
    int fd = open("/workspace/c", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    NEED(fd >= 0);
    return TRY(fchown(fd, 0, 0));
}

/* Set-uid */

ATTEMPT(SUID, file_capability, "EPERM EOPNOTSUPP EINVAL", "a file with cap_sys_admin") {
    unsigned cap[5] = {0x02000001, 1u << 21, 0, 0, 0};
    int fd = open("/workspace/f", O_RDWR | O_CREAT | O_CLOEXEC, 0755);
    NEED(fd >= 0);
    return TRY(fsetxattr(fd, "security.capability", cap, sizeof cap, 0));
}

static long suid_effective(const char *path) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, "s", "--user", (char *)NULL);
        _exit(9);
    }
    NEED(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    errno = EPERM;
    return WEXITSTATUS(status) == 0 ? -1 : 0;
}

ATTEMPT(SUID, suid_copy, "EPERM", "a set-uid copy of this program") {
    char room[4096];
    long n;
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int out = open("/workspace/s", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    NEED(in >= 0 && out >= 0);
    while ((n = read(in, room, sizeof room)) > 0) {
        NEED(write(out, room, (size_t)n) == n);
    }
    NEED(fchmod(out, 06755) == 0);
    close(out);
    return TRY(suid_effective("/workspace/s"));
}

ATTEMPT(SUID, suid_root_owner, "EPERM EINVAL", "the same, owned by root") {
    int out = open("/workspace/r", O_WRONLY | O_CREAT | O_CLOEXEC, 04755);
    NEED(out >= 0);
    return TRY(syscall(SYS_fchown, out, 0, -1));
}

/* Terminals */

ATTEMPT(TERMINALS, no_terminal, "ENXIO ENOENT EIO EACCES", "the controlling terminal") {
    return TRY(open("/dev/tty", O_RDWR | O_CLOEXEC));
}

#define TERMINAL(name, request)                                                                    \
    ATTEMPT(TERMINALS, tty_##name, "ENOTTY EPERM EIO EINVAL ENXIO", #request " on 0, 1 and 2") {   \
        char c = 'i';                                                                              \
        escape_reached("ioctl(0…2, " #request ")");                                                \
        for (int fd = 0; fd < 3; fd++) {                                                           \
            if (syscall(SYS_ioctl, fd, request, &c) == 0) {                                        \
                return 0;                                                                          \
            }                                                                                      \
        }                                                                                          \
        return -1;                                                                                 \
    }
TERMINAL(sti, 0x5412)
TERMINAL(steal, 0x540e)
TERMINAL(console, 0x541d)

/* N_TTY is what the terminal has already: only a filter refuses it. */
static long terminal_discipline(unsigned long request) {
    int none = 0;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    NEED(master >= 0);
    return syscall(SYS_ioctl, master, request, &none);
}

ATTEMPT(TERMINALS, discipline, "EPERM", "a line discipline for an own terminal") {
    return TRY(terminal_discipline(0x5423));
}

ATTEMPT(TERMINALS, discipline_high, "EPERM", "the same with high bits in the request") {
    return TRY(terminal_discipline(0x100005423));
}

ATTEMPT(TERMINALS, foreign_pts, "ENOENT EACCES EIO ENXIO", "terminals of the host in /dev/pts") {
    char path[64];
    escape_reached("open(\"/dev/pts/0…255\")");
    for (int i = 0; i < 256; i++) {
        (void)snprintf(path, sizeof path, "/dev/pts/%d", i);
        int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0) {
            return fd;
        }
    }
    return -1;
}
