/* Interfaces of later kernels that hand out more than their names say, and old tricks with pages of
 * files that may only be read. Numbers stand where headers may lack the name. */
#include "attempt.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMESPACES "namespaces"
#define FILES "system files"
#define KERNEL "kernel"
#define FIRST "process 1"
#define PTRACE "ptrace"
#define CONTROL "control socket"

/* Namespaces by other ways than setns: descriptors that a pidfd or another namespace gives away. */

static long door_pidfd(unsigned long request) {
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    return fd < 0 ? -1 : syscall(SYS_ioctl, fd, request, 0);
}

#define PIDFD_DOOR(name, request)                                                                  \
    ATTEMPT(NAMESPACES, pidfd_##name, REFUSED " EOPNOTSUPP",                                       \
            "the " #name " namespace of process 1, from its pidfd") {                              \
        return TRY(door_pidfd(request));                                                           \
    }
PIDFD_DOOR(mnt, 0xff03)
PIDFD_DOOR(net, 0xff04)
PIDFD_DOOR(pid, 0xff05)
PIDFD_DOOR(user, 0xff09)

static long door_mounts(unsigned long request) {
    unsigned long info[4] = {16};
    int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return syscall(SYS_ioctl, fd, request, info);
}

ATTEMPT(NAMESPACES, mounts_next, REFUSED,
        "the next mount namespace of the host (NS_MNT_GET_NEXT)") {
    return TRY(door_mounts(0x8010b70bUL));
}

ATTEMPT(NAMESPACES, mounts_previous, REFUSED, "the one before (NS_MNT_GET_PREV)") {
    return TRY(door_mounts(0x8010b70cUL));
}

ATTEMPT(NAMESPACES, pid_outside, REFUSED,
        "the number of a process outside (NS_GET_PID_FROM_PIDNS)") {
    int fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    long parent = TRY(syscall(SYS_ioctl, fd, 0xb702, 0));
    return parent < 0 ? -1 : TRY(syscall(SYS_ioctl, parent, 0x8004b706UL, getpid()));
}

ATTEMPT(NAMESPACES, namespace_owner, REFUSED, "who made the own user namespace (NS_GET_USERNS)") {
    int fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0xb701, 0));
}

ATTEMPT(NAMESPACES, socket_namespace, REFUSED " ENOTTY EOPNOTSUPP",
        "the network namespace of a socket (SIOCGSKNS)") {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0x894c, 0));
}

/* A handle of a namespace needs no path, and opens it from anywhere. */
ATTEMPT(NAMESPACES, namespace_handle, CLOSED, "a file handle of a namespace") {
    unsigned char room[160] = {128};
    int id = 0;
    return TRY(syscall(SYS_name_to_handle_at, AT_FDCWD, "/proc/self/ns/mnt", room, &id, 0x200));
}

ATTEMPT(NAMESPACES, namespace_open_handle, CLOSED, "opening a process by its handle (pidfs)") {
    unsigned char handle[24] = {8, 0, 0, 0, 0xf1, 0, 0, 0, 1};
    return TRY(syscall(SYS_open_by_handle_at, -10002, handle, O_RDONLY));
}

/* Process 1 and what it knows */

ATTEMPT(FIRST, memory_policy, CLOSED " EFAULT", "where the pages of process 1 are") {
    void *page = NULL;
    int node = 0;
    return TRY(syscall(SYS_move_pages, 1, 1, &page, NULL, &node, 0));
}

ATTEMPT(FIRST, core_dump, "EPERM ESRCH OK", "ending process 1 with a core dump: it lives on") {
    return TRY(kill(1, SIGQUIT));
}

/* A brother: process 1 gets a child that it never started, and its end. */
ATTEMPT(FIRST, brothers, "EPERM EINVAL EAGAIN", "200 children for process 1, by CLONE_PARENT") {
    escape_reached("clone(CLONE_PARENT) 200 times");
    for (int i = 0; i < 200; i++) {
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
            _exit(pid == 0 ? 3 : 4);
        }
        if (pid < 0) {
            return -1;
        }
    }
    errno = EPERM;
    return -1;
}

ATTEMPT(FIRST, odd_signal, "EPERM EINVAL EAGAIN ESRCH",
        "a child for process 1 that ends with another signal than SIGCHLD") {
    escape_reached("clone(CLONE_PARENT | SIGKILL)");
    long pid = syscall(SYS_clone, CLONE_PARENT | SIGKILL, 0, 0, 0, 0);
    if (pid == 0) {
        _exit(0);
    }
    return pid < 0 ? -1 : (errno = EPERM, -1);
}

ATTEMPT(CONTROL, send_as_first, "EBADF ENOTSOCK EPERM ENOSYS",
        "process 1's socket by pidfd_getfd with flags") {
    int self = (int)syscall(SYS_pidfd_open, 1, 0);
    NEED(self >= 0 || errno == EPERM || errno == ESRCH);
    int fd = (int)TRY(syscall(438, self, 3, 0));
    return fd < 0 ? -1 : send(fd, "x", 1, MSG_DONTWAIT);
}

ATTEMPT(CONTROL, filter_listener, "EBUSY EINVAL EPERM EACCES",
        "a listener of the filter of one's own, to answer its calls") {
    struct {
        unsigned short code;
        unsigned char yes, no;
        unsigned k;
    } one = {6, 0, 0, 0x7fff0000};
    struct {
        unsigned short len;
        void *at;
    } program = {1, &one};
    return TRY(syscall(SYS_seccomp, 1, 8, &program));
}

/* Tracing */

static long door_traced(long request, long address, long data) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    NEED(pid > 0);
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) {
        return -1; /* the strict set */
    }
    NEED(ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0 && waitpid(pid, &status, 0) == pid);
    return syscall(SYS_ptrace, request, pid, address, data);
}

ATTEMPT(PTRACE, filter_dump, "EACCES EPERM ENOENT EINVAL EIO EMEDIUMTYPE",
        "reading the filter out of an own child") {
    static char room[1 << 18];
    return TRY(door_traced(0x420c, 0, (long)room));
}

ATTEMPT(PTRACE, filter_off, "EPERM EINVAL",
        "a child without the filter: PTRACE_O_SUSPEND_SECCOMP") {
    return TRY(door_traced(PTRACE_SETOPTIONS, 0, 1L << 21));
}

ATTEMPT(PTRACE, filter_metadata, "EACCES EPERM ENOENT EINVAL EIO",
        "flags of the filter of an own child") {
    unsigned long meta[2] = {0};
    return TRY(door_traced(0x420d, 16, (long)meta));
}

ATTEMPT(PTRACE, traced_child_exec, "EPERM",
        "a traced child keeps no right over a program that may only be run") {
    struct stat st;
    escape_reached("stat(every set-uid program that a tracer could keep)");
    errno = EPERM;
    return stat("/usr/bin/su", &st) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 ? 0 : -1;
}

/* Pages of files that may only be read. Each looks whether the file is what it was. */

static unsigned char door_byte(const char *path, off_t at) {
    unsigned char c = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0 && pread(fd, &c, 1, at) == 1);
    close(fd);
    return c;
}

#define DOOR_FILE "/usr/bin/env"
#define DOOR_AT 1

static void *door_discard(void *page) {
    for (int i = 0; i < 20000; i++) {
        madvise(page, 4096, MADV_DONTNEED);
    }
    return NULL;
}

ATTEMPT(FILES, dirty_cow, "EACCES EPERM",
        "a race of a private page and /proc/self/mem (Dirty COW)") {
    unsigned char was = door_byte(DOOR_FILE, DOOR_AT);
    int fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    pthread_t t;
    NEED(fd >= 0 && page != MAP_FAILED && pthread_create(&t, NULL, door_discard, page) == 0);
    escape_reached("pwrite(/proc/self/mem) beside madvise(MADV_DONTNEED)");
    for (int i = 0; mem >= 0 && i < 20000; i++) {
        (void)!pwrite(mem, "#", 1, (off_t)(unsigned long)page + DOOR_AT);
    }
    pthread_join(t, NULL);
    errno = EPERM;
    return door_byte(DOOR_FILE, DOOR_AT) == was ? -1 : 0;
}

ATTEMPT(FILES, dirty_pipe, "EACCES EPERM", "a page of a file in a pipe, written on (Dirty Pipe)") {
    unsigned char was = door_byte(DOOR_FILE, DOOR_AT);
    static char room[65536];
    int p[2], fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    off_t from = 0;
    NEED(fd >= 0 && pipe(p) == 0);
    for (int i = 0; i < 16; i++) { /* leaves the flag that made it possible in each buffer */
        NEED(write(p[1], room, 4096) == 4096 && read(p[0], room, 4096) == 4096);
    }
    escape_reached("splice() of a page, then write() to the pipe");
    NEED(splice(fd, &from, p[1], NULL, 1, 0) == 1);
    NEED(write(p[1], "#", 1) == 1);
    errno = EPERM;
    return door_byte(DOOR_FILE, DOOR_AT) == was ? -1 : 0;
}

ATTEMPT(FILES, dirty_frag, "EACCES EPERM EFAULT EINVAL ENOSYS EBADF",
        "a page of a file as the target of a read by vmsplice") {
    unsigned char was = door_byte(DOOR_FILE, DOOR_AT);
    int p[2], fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    struct iovec iov = {page, 4096};
    NEED(fd >= 0 && page != MAP_FAILED && pipe(p) == 0 && write(p[1], "####", 4) == 4);
    long got = TRY(syscall(SYS_vmsplice, p[0], &iov, 1, 0));
    int saved = errno;
    errno = got < 0 ? saved : EPERM;
    return door_byte(DOOR_FILE, DOOR_AT) == was ? -1 : 0;
}

ATTEMPT(FILES, map_for_writing, "EACCES EPERM",
        "a shared mapping, to be written, of what is read only") {
    int fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY((long)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == -1 ? -1 : 0);
}

ATTEMPT(FILES, protect_for_writing, "EACCES EPERM",
        "mprotect of a shared mapping that was read only") {
    int fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(fd >= 0 && page != MAP_FAILED);
    return TRY(mprotect(page, 4096, PROT_READ | PROT_WRITE));
}

ATTEMPT(FILES, reopen_for_writing, "EACCES EPERM EROFS ETXTBSY",
        "the same file by /proc/self/fd, to be written") {
    char path[64];
    int fd = open(DOOR_FILE, O_PATH | O_CLOEXEC);
    NEED(fd >= 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return TRY(open(path, O_RDWR | O_CLOEXEC));
}

ATTEMPT(FILES, punch, "EACCES EPERM EROFS EBADF", "a hole in a file that is open for reading") {
    int fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_fallocate, fd, 3, 0, 4096));
}

ATTEMPT(FILES, page_out, "EPERM OK EINVAL EACCES",
        "throwing the host's pages out of memory by MADV_PAGEOUT; it may be said, not done") {
    int fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(fd >= 0 && page != MAP_FAILED);
    return TRY(madvise(page, 4096, 21));
}

ATTEMPT(FILES, poison, "EPERM EINVAL",
        "a page of the host's memory marked as broken (MADV_HWPOISON)") {
    void *page = mmap(NULL, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(page != MAP_FAILED);
    *(volatile char *)page = 1;
    return TRY(madvise(page, 4096, 100));
}

/* What the kernel added */

#define GONE(name, what, nr, ...)                                                                  \
    ATTEMPT(KERNEL, name, CLOSED, what) {                                                          \
        return TRY(syscall(nr, __VA_ARGS__));                                                      \
    }
GONE(cachestat, "which pages of a file are in memory (cachestat)", 451, 0, 0, 0, 0)
GONE(map_shadow_stack, "a shadow stack of one's own", 453, 0, 4096, 0)
GONE(futex_requeue2, "futexes of the third kind", 456, 0, 0, 0, 0)
GONE(set_mempolicy_home, "a home node for memory", 450, 0, 4096, 0, 0)
GONE(lsm_list, "which security modules there are", 461, 0, 0, 0)
GONE(lsm_get, "the own attributes of a security module", 459, 100, 0, 0, 0)
GONE(mseal, "memory that nobody can unmap", 462, 0, 4096, 0)
GONE(setxattrat, "attributes by descriptor", 463, 0, "/tmp", 0, "user.x", 0, 0)
GONE(file_setattr, "project and flags of a file by path", 469, AT_FDCWD, "/workspace", 0, 0, 0)
GONE(get_mempolicy, "where the own pages are", 239, 0, 0, 0, 0, 0)
GONE(uselib, "a library by the oldest call", 134, "/usr/lib")
GONE(sysfs, "the numbers of file systems", 139, 3)
GONE(ustat, "a file system by its device number", 136, 0x801, (char[64]){0})

ATTEMPT(KERNEL, sched_deadline_other, "EPERM ESRCH EINVAL", "a deadline for process 1") {
    unsigned a[14] = {48, 6};
    return TRY(syscall(SYS_sched_setattr, 1, a, 0));
}

ATTEMPT(KERNEL, io_flusher, "EPERM EINVAL",
        "memory that is set aside for disks (PR_SET_IO_FLUSHER)") {
    return TRY(prctl(57, 1, 0, 0, 0));
}

ATTEMPT(KERNEL, mce_kill, "EINVAL EPERM OK",
        "how broken memory is told of, which is one's own affair") {
    return TRY(prctl(33, 1, 1, 0, 0));
}

ATTEMPT(KERNEL, merge_pages, "EPERM EINVAL ENOSYS OK",
        "merging equal pages: only where the host does it (SECURITY.md)") {
    return TRY(prctl(67, 1, 0, 0, 0));
}

ATTEMPT(KERNEL, landlock_more, "EINVAL EPERM ENOMSG E2BIG EBADF ENODATA EOPNOTSUPP ENOSYS",
        "landlock's rules cannot allow what the jail refuses") {
    unsigned long none = 0;
    return TRY(syscall(444, &none, sizeof none, 0));
}

ATTEMPT(KERNEL, trim, REFUSED " EOPNOTSUPP",
        "discarding the free blocks of the host's disk (FITRIM)") {
    unsigned long range[3] = {0, ~0UL, 0};
    int fd = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0xc0185879, range));
}

ATTEMPT(KERNEL, blocks, REFUSED " EOPNOTSUPP", "where on the disk a file of the host is (FIBMAP)") {
    int block = 0, fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 1, &block));
}

ATTEMPT(KERNEL, verity, REFUSED " EOPNOTSUPP EEXIST",
        "sealing a file of the host for ever (verity)") {
    unsigned long arg[16] = {1UL | 1UL << 32, 4096};
    int fd = open(DOOR_FILE, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0x40806685UL, arg));
}

ATTEMPT(KERNEL, encryption_key, REFUSED " EOPNOTSUPP",
        "a key for the host's file system (fscrypt)") {
    unsigned long arg[16] = {0};
    int fd = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0xc0506617UL, arg));
}

ATTEMPT(KERNEL, subvolume, REFUSED " EOPNOTSUPP", "a subvolume on the host's btrfs") {
    static char arg[4096] = {0};
    int fd = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(fd >= 0);
    return TRY(syscall(SYS_ioctl, fd, 0x5000940eUL, arg));
}
