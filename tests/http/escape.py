"""What is tried from inside a jail, as data: C probes, paths, names. test_escape.py runs them.

A C probe is the body of `static long f(void)`: it returns -1 with errno when it was refused.
Each runs in a child of its own. The last column lists what is right: errno names, SIGSYS, or OK
for what must work."""

GONE = "EPERM ENOSYS SIGSYS"
REFUSED = "EPERM EACCES ENOSYS EINVAL ENOENT ESRCH ENODEV ENOTTY SIGSYS"
FAMILY = "EPERM EACCES EAFNOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT ENOSYS SIGSYS"

# key, what, case, C, right
# fmt: off
PROBES = [
    # Terminals: a slave of our own as controlling terminal, so that only the filter can refuse.
    ("tiocsti", "TIOCSTI on an own terminal", 75, "return terminal(0x5412UL);",
     "EPERM ENOTTY EIO SIGSYS"),
    ("tiocsti_high", "TIOCSTI with high bits set", 75, "return terminal(0x100005412UL);",
     "EPERM ENOTTY EIO SIGSYS"),
    ("tioclinux", "TIOCLINUX", 75, "return terminal(0x541cUL);", "EPERM ENOTTY EIO EINVAL SIGSYS"),
    ("tioclinux_high", "TIOCLINUX with high bits set", 75, "return terminal(0x10000541cUL);",
     "EPERM ENOTTY EIO EINVAL SIGSYS"),
    ("tiocsetd", "loading a line discipline", 75,
     "int n = 2, fd = posix_openpt(O_RDWR | O_NOCTTY); return ioctl(fd, TIOCSETD, &n);",
     "EPERM EINVAL SIGSYS"),
    # Namespaces
    ("unshare_user", "unshare(CLONE_NEWUSER)", 79, "return unshare(CLONE_NEWUSER);",
     GONE + " ENOSPC"),
    ("unshare_ns", "unshare(CLONE_NEWNS)", 79, "return unshare(CLONE_NEWNS);", GONE),
    ("unshare_net", "unshare(CLONE_NEWNET)", 79, "return unshare(CLONE_NEWNET);", GONE),
    ("unshare_pid", "unshare(CLONE_NEWPID)", 79, "return unshare(CLONE_NEWPID);", GONE),
    ("unshare_cgroup", "unshare(CLONE_NEWCGROUP)", 79, "return unshare(CLONE_NEWCGROUP);", GONE),
    ("unshare_both", "unshare(user and mount at once)", 79,
     "return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET);", GONE + " ENOSPC"),
    ("clone_user", "clone(CLONE_NEWUSER)", 79,
     "long r = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); if (r == 0) _exit(0); "
     "return r;",
     GONE + " ENOSPC"),
    ("clone_pid", "clone(CLONE_NEWPID)", 79,
     "long r = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0); if (r == 0) _exit(0); "
     "return r;",
     GONE),
    ("clone3", "clone3 is unknown, so that libc falls back", 170,
     "unsigned long a[11] = {0}; a[4] = SIGCHLD; long r = syscall(435, a, sizeof(a)); if (r == "
     "0) _exit(0);"
     "return r;", "ENOSYS"),
    ("clone3_user", "clone3(CLONE_NEWUSER)", 79,
     "unsigned long a[11] = {CLONE_NEWUSER}; a[4] = SIGCHLD; long r = syscall(435, a, sizeof(a));"
     "if (r == 0) _exit(0); return r;", "ENOSYS"),
    ("setns_user", "setns to init's user namespace", 79,
     "int fd = open(\"/proc/1/ns/user\", O_RDONLY); if (fd < 0) return -1; return setns(fd, 0);",
     REFUSED),
    ("setns_mnt", "setns to the own mount namespace", 79,
     "int fd = open(\"/proc/self/ns/mnt\", O_RDONLY); if (fd < 0) return -1; return setns(fd, 0);",
     REFUSED),
    ("setns_pidfd", "setns by a pidfd", 79,
     "int fd = (int)syscall(434, 1, 0); if (fd < 0) return -1; return setns(fd, CLONE_NEWNS);",
     REFUSED),
    # Mounts and devices
    ("mount_tmpfs", "mounting a tmpfs", 92, "return mount(\"x\", \"/tmp\", \"tmpfs\", 0, \"\");",
     GONE),
    ("mount_proc", "mounting a proc", 92, "return mount(\"x\", \"/tmp\", \"proc\", 0, \"\");",
     GONE),
    ("mount_bind", "a bind mount", 92, "return mount(\"/usr\", \"/tmp\", 0, MS_BIND, 0);", GONE),
    ("mount_overlay", "an overlay", 92,
     "return mount(\"x\", \"/tmp\", \"overlay\", 0, \"lowerdir=/usr:/tmp\");", GONE),
    ("mount_remount", "making the root writable", 100,
     "return mount(0, \"/\", 0, MS_REMOUNT | MS_BIND, 0);", GONE),
    ("mount_remount_usr", "making /usr writable", 100,
     "return mount(0, \"/usr\", 0, MS_REMOUNT | MS_BIND, 0);", GONE),
    ("mount_shared", "changing the propagation", 97,
     "return mount(0, \"/\", 0, MS_SHARED | MS_REC, 0);", GONE),
    ("mount_cgroup", "mounting a cgroup hierarchy", 78,
     "return mount(\"x\", \"/tmp\", \"cgroup\", 0, \"memory\");", GONE),
    ("mount_cgroup2", "mounting cgroup2", 78,
     "return mount(\"x\", \"/tmp\", \"cgroup2\", 0, \"\");", GONE),
    ("umount_proc", "unmounting /proc", 92, "return umount2(\"/proc\", MNT_DETACH);", GONE),
    ("umount_mask", "unmounting a mask below /proc", 92,
     "return umount2(\"/proc/kcore\", MNT_DETACH);",
     GONE + " EINVAL"),
    ("pivot_root", "pivot_root", 92, "return syscall(SYS_pivot_root, \"/tmp\", \"/tmp\");", GONE),
    ("chroot", "chroot", 92, "return chroot(\"/tmp\");", GONE),
    ("move_mount", "move_mount", 92,
     "return syscall(429, AT_FDCWD, \"/usr\", AT_FDCWD, \"/tmp\", 0);", GONE),
    ("open_tree", "open_tree as a clone", 92, "return syscall(428, AT_FDCWD, \"/usr\", 1);", GONE),
    ("fsopen", "fsopen", 92, "return syscall(430, \"tmpfs\", 0);", GONE),
    ("fsmount", "fsmount", 92, "return syscall(432, 0, 0, 0);", GONE),
    ("fspick", "fspick", 92, "return syscall(433, AT_FDCWD, \"/\", 0);", GONE),
    ("mount_setattr", "mount_setattr", 92,
     "unsigned long a[4] = {0, 1, 0, 0}; return syscall(442, AT_FDCWD, \"/usr\", 0, a, "
     "sizeof(a));", GONE),
    ("mknod_block", "making a block device", 92,
     "return mknod(\"b\", S_IFBLK | 0666, makedev(8, 0));",
     "EPERM EACCES SIGSYS"),
    ("mknod_char", "making a character device", 92,
     "return mknod(\"c\", S_IFCHR | 0666, makedev(1, 1));",
     "EPERM EACCES SIGSYS"),
    ("handle", "open_by_handle_at", 92,
     "struct { struct file_handle h; char b[64]; } f; int m; f.h.handle_bytes = 64;"
     "if (name_to_handle_at(AT_FDCWD, \"/usr\", &f.h, &m, 0) < 0) return -1;"
     "int d = open(\"/usr\", O_RDONLY); return open_by_handle_at(d, &f.h, O_RDONLY);",
     GONE + " EOPNOTSUPP ESTALE EACCES"),
    ("swapon", "swapon", 92, "return swapon(\"/tmp/x\", 0);", GONE),
    ("quotactl", "quotactl", 92, "return syscall(SYS_quotactl, 0x80000100, \"/dev/vda\", 0, 0);",
     GONE),
    # Other doors of the kernel
    ("io_uring_setup", "io_uring_setup", 82, "char p[256] = {0}; return syscall(425, 1, p);",
     "ENOSYS EPERM"),
    ("io_uring_enter", "io_uring_enter", 82, "return syscall(426, 0, 0, 0, 0, 0, 0);",
     "ENOSYS EPERM"),
    ("io_uring_register", "io_uring_register", 82, "return syscall(427, 0, 0, 0, 0);",
     "ENOSYS EPERM"),
    ("bpf", "bpf", 83, "char a[128] = {0}; return syscall(SYS_bpf, 0, a, sizeof(a));", GONE),
    ("perf", "perf_event_open", 83,
     "char a[128] = {0}; a[4] = 112; return syscall(SYS_perf_event_open, a, 0, -1, -1, 0);",
     GONE + " EACCES"),
    ("userfaultfd", "userfaultfd", 83, "return syscall(SYS_userfaultfd, 1);", GONE),
    ("userfaultfd_dev", "userfaultfd by its device", 83,
     "return open(\"/dev/userfaultfd\", O_RDWR);",
     "ENOENT EACCES EPERM"),
    ("keyctl_get", "keyctl: the session keyring", 83, "return syscall(SYS_keyctl, 0, -3, 0);",
     GONE),
    ("keyctl_join", "keyctl: join a keyring by name", 83,
     "return syscall(SYS_keyctl, 1, \"pinfold\");", GONE),
    ("add_key", "add_key", 83, "return syscall(SYS_add_key, \"user\", \"k\", \"v\", 1, -4);", GONE),
    ("request_key", "request_key", 83, "return syscall(SYS_request_key, \"user\", \"k\", 0, 0);",
     GONE),
    ("kexec", "kexec_load", 83, "return syscall(SYS_kexec_load, 0, 0, 0, 0);", GONE),
    ("kexec_file", "kexec_file_load", 83, "return syscall(320, -1, -1, 0, 0, 0);", GONE),
    ("init_module", "init_module", 83, "return syscall(SYS_init_module, \"\", 0, \"\");", GONE),
    ("finit_module", "finit_module", 83, "return syscall(SYS_finit_module, 0, \"\", 0);", GONE),
    ("delete_module", "delete_module", 83, "return syscall(SYS_delete_module, \"nosuch\", 0);",
     GONE),
    ("syslog", "reading the kernel log", 93,
     "char b[64]; return syscall(SYS_syslog, 3, b, sizeof(b));", GONE),
    ("iopl", "iopl", 83, "return syscall(SYS_iopl, 3);", GONE),
    ("ioperm", "ioperm", 83, "return syscall(SYS_ioperm, 0, 1, 1);", GONE),
    ("reboot", "reboot", 83, "return syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef, 0);",
     GONE),
    ("acct", "acct", 83, "return syscall(SYS_acct, \"/tmp/x\");", GONE),
    ("settime", "setting the clock", 83,
     "struct timespec t = {1, 0}; return clock_settime(CLOCK_REALTIME, &t);",
     GONE),
    ("adjtimex", "adjusting the clock", 83,
     "struct timex t = {.modes = ADJ_FREQUENCY}; return adjtimex(&t);", GONE),
    ("sethostname", "sethostname", 101, "return sethostname(\"x\", 1);", GONE),
    ("setdomainname", "setdomainname", 101, "return setdomainname(\"x\", 1);", GONE),
    ("fanotify", "fanotify_init with a mark on the mount", 83,
     "int fd = (int)syscall(SYS_fanotify_init, 0, 0); if (fd < 0) return -1;"
     "return syscall(SYS_fanotify_mark, fd, 0x11, 0x20UL, AT_FDCWD, \"/usr\");", GONE + " EINVAL"),
    ("kcmp", "kcmp with init", 96, "return syscall(SYS_kcmp, getpid(), 1, 0, 0, 0);",
     GONE + " ESRCH"),
    ("pidfd_getfd", "taking a descriptor of init", 96,
     "int fd = (int)syscall(434, 1, 0); if (fd < 0) return -1; return syscall(438, fd, 3, 0);",
     REFUSED),
    ("new_call", "a system call that does not exist yet", 170, "return syscall(600);", "ENOSYS"),
    # Another ABI
    ("i386_getpid", "int 0x80: getpid", 80, "return i386(20, 0, 0, 0);", "ENOSYS SIGSYS"),
    ("i386_unshare", "int 0x80: unshare", 80, "return i386(310, CLONE_NEWUSER, 0, 0);",
     "ENOSYS SIGSYS"),
    ("i386_mount", "int 0x80: mount", 80, "return i386(21, 0, 0, 0);", "ENOSYS SIGSYS"),
    ("i386_ptrace", "int 0x80: ptrace", 80, "return i386(26, 16, 1, 0);", "ENOSYS SIGSYS"),
    ("i386_socket", "int 0x80: socketcall", 80, "return i386(102, 1, 0, 0);", "ENOSYS SIGSYS"),
    ("x32_mount", "x32: mount", 81, "return syscall(0x40000000 + SYS_mount, 0, 0, 0, 0, 0);",
     "ENOSYS SIGSYS"),
    ("x32_unshare", "x32: unshare", 81, "return syscall(0x40000000 + SYS_unshare, CLONE_NEWUSER);",
     "ENOSYS SIGSYS"),
    ("x32_ptrace", "x32: ptrace", 81, "return syscall(0x40000000 + 521, 16, 1, 0, 0);",
     "ENOSYS SIGSYS"),
    ("x32_getpid", "x32: getpid", 81, "return syscall(0x40000000 + SYS_getpid);", "ENOSYS SIGSYS"),
    # Other processes
    ("ptrace_init", "attaching to process 1", 96, "return ptrace(PTRACE_ATTACH, 1, 0, 0);",
     "EPERM SIGSYS"),
    ("ptrace_seize", "seizing process 1", 96, "return ptrace(PTRACE_SEIZE, 1, 0, 0);",
     "EPERM EIO SIGSYS"),
    ("vm_readv", "process_vm_readv of process 1", 96,
     "char b[8]; struct iovec l = {b, 8}, r = {(void *)0x400000, 8};"
     "return process_vm_readv(1, &l, 1, &r, 1, 0);", "EPERM ENOSYS SIGSYS"),
    ("vm_writev", "process_vm_writev of process 1", 96,
     "char b[8] = \"x\"; struct iovec l = {b, 8}, r = {(void *)0x400000, 8};"
     "return process_vm_writev(1, &l, 1, &r, 1, 0);", "EPERM ENOSYS SIGSYS"),
    ("mem_write", "writing /proc/1/mem", 96, "return open(\"/proc/1/mem\", O_RDWR);",
     "EACCES EPERM ENOENT"),
    ("exe_write", "opening /proc/1/exe for writing", 76, "return open(\"/proc/1/exe\", O_WRONLY);",
     "EACCES EPERM ETXTBSY ENOENT"),
    ("init_fd", "a descriptor of process 1", 96, "return open(\"/proc/1/fd/3\", O_RDWR);",
     "EACCES EPERM ENOENT"),
    ("init_root", "the root of process 1", 96, "return open(\"/proc/1/root/etc\", O_RDONLY);",
     "EACCES EPERM ENOENT"),
    ("init_cwd", "the cwd of process 1", 96, "return open(\"/proc/1/cwd\", O_RDONLY);",
     "EACCES EPERM ENOENT"),
    ("init_environ", "the environment of process 1", 88,
     "return open(\"/proc/1/environ\", O_RDONLY);",
     "EACCES EPERM ENOENT"),
    ("kill_init", "killing process 1", 95, "return kill(1, SIGKILL);",
     "OK EPERM ESRCH"),
    ("prlimit_init", "the limits of process 1", 96,
     "struct rlimit r = {0, 0}; return prlimit(1, RLIMIT_NOFILE, &r, 0);", "EPERM SIGSYS"),
    ("sched_init", "the scheduling of process 1", 96, "return setpriority(PRIO_PROCESS, 1, 19);",
     "EPERM EACCES SIGSYS"),
    # Power over oneself
    ("setuid", "setuid(0)", 90, "return setuid(0);", "EPERM EINVAL"),
    ("setresuid", "becoming process 1's user", 90, "return setresuid(2, 2, 2);", "EPERM EINVAL"),
    ("setgid", "setgid(0)", 90, "return setgid(0);", "EPERM EINVAL"),
    ("setgroups", "setgroups", 90, "gid_t g = 0; return setgroups(1, &g);", "EPERM SIGSYS"),
    ("capset", "capset", 90,
     "unsigned int h[2] = {0x20080522, 0}, d[6] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u};"
     "return syscall(SYS_capset, h, d);", "EPERM SIGSYS"),
    ("capbset", "reading the bounding set: it is empty", 90,
     "for (int i = 0; i < 41; i++) if (prctl(PR_CAPBSET_READ, i) == 1) { errno = EEXIST; return "
     "0; }"
     "errno = EPERM; return -1;", "EPERM"),
    ("ambient", "raising an ambient capability", 90,
     "return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0);", "EPERM EINVAL SIGSYS"),
    ("new_privs", "no_new_privs is on", 90,
     "if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return 0; errno = EINVAL; return -1;", "OK"),
    ("seccomp", "a filter is on", 102,
     "if (prctl(PR_GET_SECCOMP) == 2) return 0; errno = EINVAL; return -1;", "OK"),
    ("nofile", "raising the limit of open files", 32,
     "struct rlimit r; getrlimit(RLIMIT_NOFILE, &r); r.rlim_max++; r.rlim_cur = r.rlim_max;"
     "return setrlimit(RLIMIT_NOFILE, &r);", "EPERM"),
    ("core", "raising the core limit", 51,
     "struct rlimit r = {1 << 20, 1 << 20}; return setrlimit(RLIMIT_CORE, &r);", "EPERM"),
    ("mlock", "locking much memory", 31,
     "char *p = mmap(0, 64 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); return mlock(p, 64 << "
     "20);",
     "ENOMEM EPERM EAGAIN"),
    # Sockets
    ("raw_icmp", "a raw socket", 87, "return socket(AF_INET, SOCK_RAW, 1);", FAMILY),
    ("packet", "a packet socket", 87, "return socket(AF_PACKET, SOCK_RAW, 0x300);", FAMILY),
    ("vsock", "a vsock: it knows no network namespace", 87, "return socket(40, SOCK_STREAM, 0);",
     FAMILY),
    ("alg", "the kernel's crypto by socket", 83, "return socket(38, SOCK_SEQPACKET, 0);", FAMILY),
    ("key", "a key socket", 83, "return socket(15, SOCK_RAW, 2);", FAMILY),
    ("can", "a CAN socket", 83, "return socket(29, SOCK_RAW, 1);", FAMILY),
    ("tipc", "a TIPC socket", 83, "return socket(30, SOCK_STREAM, 0);", FAMILY),
    ("bluetooth", "a bluetooth socket", 83, "return socket(31, SOCK_RAW, 1);", FAMILY),
    ("xdp", "an XDP socket", 83, "return socket(44, SOCK_RAW, 0);", FAMILY),
    ("nfnetlink", "netfilter by netlink", 83,
     "int fd = socket(AF_NETLINK, SOCK_RAW, 12); if (fd < 0) return -1;"
     "char m[20] = {20, 0, 0, 0, 0, 10, 5, 0}; return send(fd, m, 20, 0) == 20 ? answer(fd) : -1;",
     FAMILY + " ECONNREFUSED EINVAL"),
    ("abstract", "the host's abstract socket", 85, "return unix_connect(\"\\0\" ABSTRACT, 1);",
     "ECONNREFUSED EPERM"),
    # What must work
    ("works_thread", "threads", 170,
     "pthread_t t; int r = pthread_create(&t, 0, idle, 0); if (r) { errno = r; return -1; }"
     "return pthread_join(t, 0);", "OK"),
    ("works_fork", "fork and wait", 170, "pid_t p = fork(); if (p == 0) _exit(0); int s;"
     "return waitpid(p, &s, 0) == p ? 0 : -1;", "OK"),
    ("works_pty", "an own terminal", 180, "return posix_openpt(O_RDWR | O_NOCTTY) < 0 ? -1 : 0;",
     "OK"),
    ("works_inotify", "inotify", None, "int fd = inotify_init1(0);"
     "return inotify_add_watch(fd, \"/workspace\", IN_CREATE) < 0 ? -1 : 0;", "OK"),
    ("works_memfd", "memfd_create", None, "return memfd_create(\"x\", 0) < 0 ? -1 : 0;", "OK"),
    ("works_tcp", "a TCP socket on loopback", 174,
     "return socket(AF_INET, SOCK_STREAM, 0) < 0 ? -1 : 0;",
     "OK"),
    ("works_own_ptrace", "tracing an own child", 182,
     "pid_t p = fork(); if (p == 0) { pause(); _exit(0); } long r = ptrace(PTRACE_SEIZE, p, 0, 0);"
     "int e = errno; kill(p, SIGKILL); errno = e; return r;", "OK"),
    ("works_fifo", "a FIFO", None, "return mkfifo(\"/workspace/fifo\", 0600);", "OK"),
    ("works_affinity", "setting the own affinity", None,
     "cpu_set_t s; sched_getaffinity(0, sizeof(s), &s); return sched_setaffinity(0, sizeof(s), "
     "&s);", "OK"),
    ("works_personality", "no address randomisation for debuggers", 182,
     "return personality(0x40000) < 0 ? -1 : 0;", "OK"),
]

HEAD = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *idle(void *p) { return p; }

/* ioctl(request) on the slave of an own terminal that is the controlling terminal. */
static long terminal(unsigned long request)
{
    char c = 'i';
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || setsid() < 0)
        exit(9);
    int slave = open(ptsname(master), O_RDWR);
    if (slave < 0)
        exit(9);
    ioctl(slave, TIOCSCTTY, 0);
    errno = 0;
    return syscall(SYS_ioctl, slave, request, &c);
}

static long i386(long n, long a, long b, long c)
{
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c)
                     : "r8", "r9", "r10", "r11", "memory");
    r = (int)r;
    if (r < 0) {
        errno = (int)-r;
        return -1;
    }
    return r;
}

static long unix_connect(const char *name, int abstract)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = abstract ? 1 + strlen(name + 1) : strlen(name) + 1;
    memcpy(a.sun_path, name, len);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (void *)&a, (socklen_t)(2 + len));
}

/* The error in a netlink answer. */
static long answer(int fd)
{
    int m[64] = {0};
    if (recv(fd, m, sizeof(m), MSG_DONTWAIT) < 20)
        return -1;
    if ((m[1] & 0xffff) == 2 && m[4] < 0) {
        errno = -m[4];
        return -1;
    }
    return 0;
}
"""

MAIN = r"""
int main(void)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        int status;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(3);
            errno = 0;
            long r = table[i].f();
            printf("%s %s\n", table[i].name, r == -1 ? strerrorname_np(errno) : "OK");
            fflush(stdout);
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            printf("%s WAIT\n", table[i].name);
        else if (WIFSIGNALED(status))
            printf("%s SIG%s\n", table[i].name, sigabbrev_np(WTERMSIG(status)));
        else if (WEXITSTATUS(status))
            printf("%s SETUP\n", table[i].name);
    }
    return 0;
}
"""


def source(abstract):
    """The C program of all probes. `abstract` is the name of the host's abstract socket."""
    text = HEAD + '#define ABSTRACT "%s"\n' % abstract
    for key, _, _, body, _ in PROBES:
        text += "static long probe_%s(void) { %s }\n" % (key, body)
    text += "static const struct { const char *name; long (*f)(void); } table[] = {\n"
    text += "".join('    {"%s", probe_%s},\n' % (key, key) for key, *_ in PROBES)
    return text + "};\n" + MAIN


# Files that a jail must not be able to write one byte to (case 93).
KNOBS = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
         "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/fs/suid_dumpable",
         "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/ns_last_pid",
         "/proc/sys/user/max_user_namespaces", "/proc/sys/fs/binfmt_misc/register",
         "/proc/sysrq-trigger", "/proc/irq/0/smp_affinity", "/proc/1/oom_score_adj", "/proc/1/mem",
         "/proc/acpi/wakeup", "/proc/scsi/scsi", "/proc/mtrr", "/proc/bus/pci/00/00.0",
         "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/release_agent",
         "/sys/fs/cgroup/memory/release_agent", "/proc/self/uid_map", "/proc/self/gid_map",
         "/proc/self/setgroups", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf",
         "/etc/ld.so.preload",
         "/usr/bin/ls", "/usr/x", "/etc/x", "/x", "/proc/x", "/dev/x", "/lib/x", "/var/x", "/run/x",
         "/home/x"]

# Files whose text names the host's state (case 93, 101).
SECRETS = ["/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/kmsg",
           "/proc/kallsyms", "/proc/sched_debug", "/proc/latency_stats", "/proc/timer_stats",
           "/proc/fs", "/proc/fs/jbd2", "/proc/scsi", "/proc/acpi", "/proc/asound", "/proc/bus",
           "/proc/driver", "/proc/irq", "/proc/vmallocinfo",
           "/proc/slabinfo", "/proc/pagetypeinfo", "/proc/kpagecount", "/proc/kpageflags",
           "/sys/kernel", "/sys/class", "/sys/fs/cgroup", "/sys/firmware", "/etc/shadow",
           "/etc/gshadow",
           "/var/log", "/var/lib", "/root", "/boot", "/run/systemd", "/opt", "/srv",
           "/media", "/mnt", "/dev/mem", "/dev/kmsg", "/dev/port", "/dev/kvm", "/dev/fuse",
           "/dev/vda",
           "/dev/sda", "/dev/loop0", "/dev/mapper", "/dev/net/tun", "/dev/rtc0", "/dev/input",
           "/dev/snd", "/dev/dri", "/dev/tty1", "/dev/console"]

# The whole of /dev (case 92).
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin",
           "stdout", "stderr", "mqueue"}
