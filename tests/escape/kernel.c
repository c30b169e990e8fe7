/* Doors of the kernel that a program inside has no business with: namespaces, mounts, keys, other
 * architectures, and what has had holes before. Numbers stand where headers may lack the name. */
#include "attempt.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMESPACES "namespaces"
#define MOUNTS "mounts"
#define NEW_MOUNT "new mount interface"
#define ROOTS "pivot and chroot"
#define DEVICES "devices"
#define KEYS "keys"
#define OTHER_ARCH "other architectures"
#define KERNEL "kernel"

/* Namespaces */

static long clone_with(unsigned long flags) {
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        _exit(0);
    }
    return pid;
}

#define CLONES(flag)                                                                               \
    ATTEMPT(NAMESPACES, clone_##flag, CLOSED " ENOSPC", "clone with " #flag) {                     \
        return TRY(clone_with(flag));                                                              \
    }
CLONES(CLONE_NEWNS)
CLONES(CLONE_NEWNET)
CLONES(CLONE_NEWIPC)
CLONES(CLONE_NEWUTS)
CLONES(CLONE_NEWCGROUP)

#define UNSHARES(flag)                                                                             \
    ATTEMPT(NAMESPACES, unshare_##flag, CLOSED, "unshare with " #flag) {                           \
        return TRY(unshare(flag));                                                                 \
    }
UNSHARES(CLONE_NEWIPC)
UNSHARES(CLONE_NEWUTS)
UNSHARES(CLONE_NEWTIME)

ATTEMPT(NAMESPACES, unshare_high, CLOSED " EINVAL", "unshare with CLONE_NEWUSER and high bits") {
    return TRY(syscall(SYS_unshare, 0x100000000UL | CLONE_NEWUSER));
}

ATTEMPT(NAMESPACES, clone_high, CLOSED " EINVAL", "clone with CLONE_NEWUSER and high bits") {
    return TRY(clone_with(0x100000000UL | CLONE_NEWUSER));
}

ATTEMPT(NAMESPACES, clone_user_in_vfork, CLOSED " ENOSPC",
        "a user namespace by way of vfork's flags") {
    return TRY(clone_with(CLONE_NEWUSER | CLONE_VFORK));
}

ATTEMPT(NAMESPACES, clone3_into_cgroup, "ENOSYS EPERM", "clone3 with a cgroup to start in") {
    unsigned long a[11] = {0x200000000UL};
    a[4] = SIGCHLD;
    long pid = TRY(syscall(435, a, sizeof a));
    if (pid == 0) {
        _exit(0);
    }
    return pid;
}

static long namespace_join(const char *path, int type) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    return syscall(SYS_setns, fd, type);
}

#define JOINS(kind)                                                                                \
    ATTEMPT(NAMESPACES, join_##kind, REFUSED, "joining the " #kind " namespace of process 1") {    \
        return TRY(namespace_join("/proc/1/ns/" #kind, 0));                                        \
    }
JOINS(mnt)
JOINS(pid)
JOINS(net)
JOINS(ipc)
JOINS(uts)
JOINS(time)

ATTEMPT(NAMESPACES, join_own_user, REFUSED, "joining the own user namespace again") {
    return TRY(namespace_join("/proc/self/ns/user", CLONE_NEWUSER));
}

ATTEMPT(NAMESPACES, join_own_cgroup, REFUSED, "joining the own cgroup namespace again") {
    return TRY(namespace_join("/proc/self/ns/cgroup", CLONE_NEWCGROUP));
}

/* NS_GET_PARENT and NS_GET_USERNS hand out descriptors of namespaces above. */
ATTEMPT(NAMESPACES, parent_user, REFUSED, "the parent of the own user namespace, by ioctl") {
    int fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(ioctl(fd, 0xb702));
}

ATTEMPT(NAMESPACES, parent_pid, REFUSED, "the parent of the own pid namespace, by ioctl") {
    int fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(ioctl(fd, 0xb702));
}

ATTEMPT(NAMESPACES, uid_map, REFUSED, "another id map for the own user namespace") {
    return TRY(escape_write("/proc/self/uid_map", "0 0 1"));
}

ATTEMPT(NAMESPACES, setgroups_allow, REFUSED, "allowing setgroups in the own user namespace") {
    return TRY(escape_write("/proc/self/setgroups", "allow"));
}

/* Mounts */

#define FILE_SYSTEM(type)                                                                          \
    ATTEMPT(MOUNTS, mount_##type, CLOSED, "mounting a file system of type " #type) {               \
        return TRY(mount("none", "/tmp", #type, 0, ""));                                           \
    }
FILE_SYSTEM(sysfs)
FILE_SYSTEM(devpts)
FILE_SYSTEM(devtmpfs)
FILE_SYSTEM(securityfs)
FILE_SYSTEM(debugfs)
FILE_SYSTEM(fuse)
FILE_SYSTEM(mqueue)
FILE_SYSTEM(binfmt_misc)

ATTEMPT(MOUNTS, mount_move, CLOSED, "moving /proc to another place") {
    return TRY(mount("/proc", "/tmp", NULL, MS_MOVE, NULL));
}

ATTEMPT(MOUNTS, mount_self_root, CLOSED, "binding /proc/self/root over /tmp") {
    return TRY(mount("/proc/self/root", "/tmp", NULL, MS_BIND | MS_REC, NULL));
}

ATTEMPT(MOUNTS, mount_suid, CLOSED, "a remount of /tmp without nosuid and nodev") {
    return TRY(mount(NULL, "/tmp", NULL, MS_REMOUNT | MS_BIND, NULL));
}

ATTEMPT(MOUNTS, mount_workspace_larger, CLOSED, "a remount of /workspace with a larger size") {
    return TRY(mount(NULL, "/workspace", NULL, MS_REMOUNT, "size=100g,nr_inodes=0"));
}

ATTEMPT(MOUNTS, umount_root, CLOSED, "unmounting the root") {
    return TRY(umount2("/", MNT_DETACH));
}

ATTEMPT(MOUNTS, umount_dev, CLOSED, "unmounting /dev") {
    return TRY(umount2("/dev", MNT_DETACH));
}

ATTEMPT(NEW_MOUNT, fsconfig, CLOSED, "fsconfig") {
    return TRY(syscall(431, 0, 6, NULL, NULL, 0));
}

ATTEMPT(NEW_MOUNT, open_tree_path, CLOSED, "open_tree without a clone") {
    return TRY(syscall(428, AT_FDCWD, "/proc", 0));
}

ATTEMPT(NEW_MOUNT, move_mount_fd, CLOSED, "move_mount of a descriptor") {
    int fd = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(429, fd, "", AT_FDCWD, "/tmp", 4));
}

ATTEMPT(NEW_MOUNT, mount_setattr_recursive, CLOSED, "mount_setattr that clears read-only below /") {
    unsigned long a[4] = {0, 1, 0, 0};
    return TRY(syscall(442, AT_FDCWD, "/", 0x8000, a, sizeof a));
}

ATTEMPT(NEW_MOUNT, statmount, CLOSED " EINVAL", "statmount: what a mount id says") {
    unsigned long request[8] = {32, 1, 1, 0}, room[64];
    return TRY(syscall(457, request, room, sizeof room, 0));
}

ATTEMPT(NEW_MOUNT, listmount, CLOSED " EINVAL", "listmount: all mounts there are") {
    unsigned long request[4] = {24, 0xffffffffffffffffUL, 0, 0}, ids[64];
    return TRY(syscall(458, request, ids, 64, 0));
}

ATTEMPT(NEW_MOUNT, open_tree_attr, CLOSED, "open_tree_attr") {
    return TRY(syscall(467, AT_FDCWD, "/usr", 1, NULL, 0));
}

ATTEMPT(ROOTS, chroot_out, CLOSED, "the classic: chroot below, then climb above") {
    (void)mkdir("/tmp/below", 0755);
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(chroot("/tmp/below"));
}

ATTEMPT(ROOTS, chroot_proc, CLOSED, "chroot into /proc/1/root") {
    return TRY(chroot("/proc/1/root"));
}

ATTEMPT(ROOTS, pivot_dot, CLOSED, "pivot_root(., .)") {
    NEED(chdir("/workspace") == 0);
    return TRY(syscall(SYS_pivot_root, ".", "."));
}

/* The root of the name space is the root of the mount: nothing lies above it. */
ATTEMPT(ROOTS, climb_above, "EPERM", "climbing above / with ..") {
    struct stat top, now;
    NEED(stat("/", &top) == 0 && chdir("/") == 0);
    escape_reached("chdir(\"..\") 4000 times");
    for (int i = 0; i < 4000; i++) {
        NEED(chdir("..") == 0);
    }
    NEED(stat(".", &now) == 0);
    errno = EPERM;
    return top.st_ino == now.st_ino && top.st_dev == now.st_dev ? -1 : 0;
}

ATTEMPT(ROOTS, fd_above, "EPERM", "a descriptor of / and openat(fd, \"../../..\")") {
    struct stat top, now;
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0 && fstat(fd, &top) == 0);
    int up = (int)TRY(openat(fd, "../../../..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    NEED(up >= 0 && fstat(up, &now) == 0);
    errno = EPERM;
    return top.st_ino == now.st_ino && top.st_dev == now.st_dev ? -1 : 0;
}

/* Devices */

static long device_node(const char *name, mode_t kind, unsigned major_, unsigned minor_) {
    char path[64];
    (void)snprintf(path, sizeof path, "/workspace/%s", name);
    return mknod(path, kind | 0666, makedev(major_, minor_));
}

#define NODE(name, kind, major_, minor_)                                                           \
    ATTEMPT(DEVICES, node_##name, "EPERM EACCES ENOSYS", "making the device node of " #name) {     \
        return TRY(device_node(#name, kind, major_, minor_));                                      \
    }
NODE(mem, S_IFCHR, 1, 1)
NODE(kmsg, S_IFCHR, 1, 11)
NODE(loop, S_IFBLK, 7, 0)
NODE(fuse, S_IFCHR, 10, 229)
NODE(tun, S_IFCHR, 10, 200)

ATTEMPT(DEVICES, node_at, "EPERM EACCES ENOSYS", "a block device by mknodat and a descriptor") {
    int fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(mknodat(fd, "sda", S_IFBLK | 0666, makedev(8, 0)));
}

ATTEMPT(DEVICES, whiteout, "EPERM EINVAL ENOSYS", "a whiteout, which is a device, by renameat2") {
    int fd = open("/workspace/w", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    NEED(fd >= 0);
    return TRY(syscall(SYS_renameat2, AT_FDCWD, "/workspace/w", AT_FDCWD, "/workspace/v", 4));
}

#define OPENS(name, path)                                                                          \
    ATTEMPT(DEVICES, open_##name, "ENOENT EACCES EPERM ENXIO", "opening " path) {                  \
        return TRY(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));                                   \
    }
OPENS(dev_mem, "/dev/mem")
OPENS(dev_kmsg, "/dev/kmsg")
OPENS(dev_kvm, "/dev/kvm")
OPENS(dev_fuse, "/dev/fuse")
OPENS(dev_tun, "/dev/net/tun")
OPENS(dev_loop, "/dev/loop-control")
OPENS(dev_vhost, "/dev/vhost-vsock")
OPENS(dev_console, "/dev/console")
OPENS(dev_tty0, "/dev/tty0")
OPENS(dev_rtc, "/dev/rtc0")
OPENS(dev_mapper, "/dev/mapper/control")

/* Keys */

#define KEYCTL(name, what, ...)                                                                    \
    ATTEMPT(KEYS, keyctl_##name, CLOSED, what) {                                                   \
        return TRY(syscall(SYS_keyctl, __VA_ARGS__));                                              \
    }
KEYCTL(user, "the key ring of the user", 0, -4, 1)
KEYCTL(persistent, "the persistent key ring of user 0", 22, 0, -4)
KEYCTL(describe, "describing a key by number", 6, 1, NULL, 0)
KEYCTL(read, "reading a key by number", 11, 1, NULL, 0)
KEYCTL(search, "searching the user's key ring", 10, -4, "user", "k", 0)
KEYCTL(watch, "watching a key", 32, 1, 0, 1)

ATTEMPT(KEYS, key_logon, CLOSED, "adding a key of type logon") {
    return TRY(syscall(SYS_add_key, "logon", "a:b", "v", 1, -5));
}

/* io_uring, bpf, perf, userfaultfd: what tests/http/escape.py does not try */

ATTEMPT("io_uring", io_uring_sqpoll, "ENOSYS EPERM", "a ring with a kernel thread") {
    unsigned p[32] = {0};
    p[2] = 2;
    return TRY(syscall(425, 4, p));
}

ATTEMPT("bpf", bpf_prog_load, CLOSED, "loading a socket filter by bpf()") {
    unsigned long insns[2] = {0x00000000000000b7UL, 0x95UL};
    unsigned long a[16] = {1 | 2UL << 32, (unsigned long)insns, (unsigned long)"GPL"};
    return TRY(syscall(SYS_bpf, 5, a, sizeof a));
}

ATTEMPT("bpf", bpf_next_id, CLOSED, "naming the programs that the host has loaded") {
    unsigned a[32] = {0};
    return TRY(syscall(SYS_bpf, 11, a, sizeof a));
}

ATTEMPT("perf", perf_self, CLOSED " EACCES ENOENT", "counting the own instructions") {
    unsigned a[32] = {0, 128};
    return TRY(syscall(SYS_perf_event_open, a, 0, -1, -1, 0));
}

ATTEMPT("perf", perf_tracepoint, CLOSED " EACCES", "a tracepoint of the whole machine") {
    unsigned a[32] = {2, 128};
    return TRY(syscall(SYS_perf_event_open, a, -1, 0, -1, 0));
}

ATTEMPT("userfaultfd", userfaultfd_kernel, CLOSED, "userfaultfd with faults of the kernel") {
    return TRY(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
}

/* Other architectures */

#ifdef __x86_64__
static long kernel_i386(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(n), "b"(a), "c"(b), "d"(c)
                     : "r8", "r9", "r10", "r11", "memory");
    r = (int)r;
    if (r < 0 && r > -4096) {
        errno = (int)-r;
        return -1;
    }
    return r;
}

#define I386(name, what, ...)                                                                      \
    ATTEMPT(OTHER_ARCH, i386_##name, "ENOSYS SIGSYS SIGSEGV EPERM", "int 0x80: " what) {           \
        return TRY(kernel_i386(__VA_ARGS__));                                                      \
    }
I386(keyctl, "keyctl", 288, 0, -3, 1)
I386(clone, "clone with a user namespace", 120, CLONE_NEWUSER | SIGCHLD, 0, 0)
I386(io_uring, "io_uring_setup", 425, 1, 0, 0)
I386(bpf, "bpf", 357, 0, 0, 0)
I386(chroot, "chroot", 61, 0, 0, 0)
I386(open_by_handle, "open_by_handle_at", 342, 0, 0, 0)

#define X32(name, what, nr, ...)                                                                   \
    ATTEMPT(OTHER_ARCH, x32_##name, "ENOSYS SIGSYS EPERM", "x32: " what) {                         \
        return TRY(syscall(0x40000000 + (nr), __VA_ARGS__));                                       \
    }
X32(keyctl, "keyctl", 250, 0, -3, 1)
X32(execve, "execve by its own number", 520, "/bin/true", 0, 0)
X32(ioctl, "ioctl by its own number", 514, 0, 0x5412, "x")
X32(process_vm, "process_vm_readv by its own number", 539, 1, 0, 0, 0, 0, 0)
X32(clone, "clone with a user namespace", 56, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)
#endif

ATTEMPT(OTHER_ARCH, number_negative, "ENOSYS SIGSYS", "a system call with number -1") {
    return TRY(syscall(-1));
}

ATTEMPT(OTHER_ARCH, number_high, "ENOSYS SIGSYS EPERM", "mount with high bits in its number") {
    return TRY(syscall(0x100000000L | 0x7fffffff, "x", "/tmp", "tmpfs", 0, 0));
}

/* What else the kernel offers */

#define GONE(name, what, nr, ...)                                                                  \
    ATTEMPT(KERNEL, name, CLOSED, what) {                                                          \
        return TRY(syscall(nr, __VA_ARGS__));                                                      \
    }
GONE(move_pages, "moving the pages of process 1", SYS_move_pages, 1, 0, 0, 0, 0, 0)
GONE(migrate_pages, "migrating the pages of process 1", SYS_migrate_pages, 1, 8, 0, 0)
GONE(mbind, "a memory policy", SYS_mbind, 0, 4096, 1, 0, 0, 0)
GONE(process_madvise, "advice about the memory of process 1", 440, 0, 0, 0, 0, 0)
GONE(process_mrelease, "releasing another process's memory", 448, 0, 0)
GONE(memfd_secret, "secret memory that nobody can reclaim", 447, 0)
GONE(modify_ldt, "segments of one's own (modify_ldt)", 154, 0, NULL, 0)
GONE(io_setup, "asynchronous I/O of the first kind", SYS_io_setup, 64, NULL)
GONE(remap_file_pages, "remap_file_pages", SYS_remap_file_pages, 0, 4096, 0, 0, 0)
GONE(name_to_handle, "a handle of a file of the host", SYS_name_to_handle_at, AT_FDCWD, "/usr",
     (unsigned[34]){128}, (int[1]){0}, 0)
GONE(fanotify_plain, "a fanotify group without privilege", SYS_fanotify_init, 0x200, 0)
GONE(quotactl_fd, "quotas of a file system by descriptor", 443, 0, 0, 0, 0)
GONE(lsm_set, "attributes of a security module", 460, 100, (unsigned long[8]){0}, 64, 0)
GONE(nfsservctl, "the interface of the old NFS server", 180, 0, 0, 0)
GONE(vhangup, "hanging up the terminal of everybody", SYS_vhangup, 0)
GONE(settimeofday, "setting the clock the old way", SYS_settimeofday, (long[2]){1, 0}, NULL)

ATTEMPT(KERNEL, rt_priority, "EPERM EINVAL", "a deadline that goes before everybody") {
    unsigned a[14] = {48, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    unsigned long *times = (void *)(a + 6);
    times[0] = 1000000;
    times[1] = times[2] = 2000000;
    return TRY(syscall(SYS_sched_setattr, 0, a, 0));
}

ATTEMPT(KERNEL, io_priority, "EPERM", "a real-time class for input and output") {
    return TRY(syscall(SYS_ioprio_set, 1, 0, 1 << 13));
}

ATTEMPT(KERNEL, mm_exe, "EPERM EINVAL EACCES", "another /proc/self/exe by prctl(PR_SET_MM)") {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, fd, 0, 0));
}

ATTEMPT(KERNEL, less_seccomp, "EINVAL EPERM EACCES", "turning the filter off") {
    return TRY(prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
}

ATTEMPT(KERNEL, less_new_privs, "EINVAL", "turning no_new_privs off") {
    return TRY(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

ATTEMPT(KERNEL, freeze, REFUSED " EOPNOTSUPP", "freezing the file system of the workspace") {
    int fd = open("/workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0xc0045877, 0));
}

ATTEMPT(KERNEL, freeze_usr, REFUSED " EOPNOTSUPP", "freezing the file system of /usr") {
    int fd = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0xc0045877, 0));
}

ATTEMPT(KERNEL, shutdown_fs, REFUSED " EOPNOTSUPP", "shutting down the file system of /usr") {
    int fd = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned how = 2;
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0x8004587d, &how));
}

ATTEMPT(KERNEL, project_id, REFUSED " EOPNOTSUPP",
        "moving a file out of the disk quota by its project id") {
    unsigned attr[7] = {0, 0, 0, 4242, 0, 0, 0};
    int fd = open("/workspace/p", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0x401c5820, attr));
}

ATTEMPT(KERNEL, immutable, REFUSED " EOPNOTSUPP", "a file that nobody can remove (chattr +i)") {
    int fd = open("/workspace/i", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    long flags = 0x10;
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0x40086602, &flags));
}
