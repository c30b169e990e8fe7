/* Taking all there is of something. Each goes on until it is refused and says how much it got: the
 * bound is the limit that the run was given, so that a refusal that comes from the host's own
 * bounds, which all jails share, does not pass. */
#include "attempt.h"

#include <fcntl.h>
#include <limits.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define EXHAUSTION "exhaustion"
#define MIB (1L << 20)

/* Calls one(i) until it fails or `top` is reached, which is more than any limit here. */
static long exhaust(long (*one)(long i), long top) {
    long i = 0;
    while (i < top && one(i) >= 0) {
        i++;
    }
    int saved = errno;
    escape_counted(i);
    errno = saved;
    return i < top ? -1 : 0;
}

/* Processes */

static long exhaust_fork(long i) {
    (void)i;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    return pid;
}

BOUNDED(EXHAUSTION, fork, "EAGAIN ENOMEM", ESCAPE_PIDS, "processes") {
    return TRY(exhaust(exhaust_fork, 5000));
}

static long exhaust_zombie(long i) {
    (void)i;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    return pid;
}

BOUNDED(EXHAUSTION, zombies, "EAGAIN ENOMEM", ESCAPE_PIDS, "processes that nobody waits for") {
    return TRY(exhaust(exhaust_zombie, 5000));
}

static void *exhaust_idle(void *p) {
    pause();
    return p;
}

static long exhaust_thread(long i) {
    (void)i;
    pthread_t t;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    errno = pthread_create(&t, &small, exhaust_idle, NULL);
    return errno == 0 ? 0 : -1;
}

BOUNDED(EXHAUSTION, threads, "EAGAIN ENOMEM", ESCAPE_PIDS, "threads") {
    return TRY(exhaust(exhaust_thread, 5000));
}

static long exhaust_session(long i) {
    (void)i;
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() > 0) {
            _exit(0);
        }
        pause();
        _exit(0);
    }
    return pid;
}

BOUNDED(EXHAUSTION, daemons, "EAGAIN ENOMEM", ESCAPE_PIDS, "daemons in sessions of their own") {
    return TRY(exhaust(exhaust_session, 5000));
}

/* Memory, MiB by MiB */

static long exhaust_fill(void *at, long size) {
    if (at == MAP_FAILED) {
        return -1;
    }
    memset(at, 1, (size_t)size);
    return 0;
}

static long exhaust_private(long i) {
    (void)i;
    return exhaust_fill(mmap(NULL, MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MIB);
}

static long exhaust_shared(long i) {
    (void)i;
    return exhaust_fill(mmap(NULL, MIB, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0), MIB);
}

static long exhaust_memfd(long i) {
    int fd = (int)syscall(SYS_memfd_create, "x", 0);
    if (fd < 0 || ftruncate(fd, MIB) != 0) {
        return -1;
    }
    void *at = mmap(NULL, MIB, 3, MAP_SHARED, fd, 0);
    close(fd);
    (void)i;
    return exhaust_fill(at, MIB);
}

static long exhaust_shm(long i) {
    (void)i;
    int id = shmget(IPC_PRIVATE, MIB, 0600);
    void *at = id < 0 ? MAP_FAILED : shmat(id, NULL, 0);
    return exhaust_fill(at, MIB);
}

#define MEMORY(name, what)                                                                         \
    BOUNDED(EXHAUSTION, memory_##name, "SIGKILL ENOMEM EPERM ENOSPC EMFILE", ESCAPE_MEM / MIB,     \
            what) {                                                                                \
        return TRY(exhaust(exhaust_##name, 4096));                                                 \
    }
MEMORY(private, "private memory")
MEMORY(shared, "shared memory")
MEMORY(memfd, "memory files that are closed and stay mapped")
MEMORY(shm, "System V segments")

/* A page table page is 4 KiB for each 2 MiB that was touched, though nothing but the page of zeros
 * is there. */
static long exhaust_table(long i) {
    static char *at;
    if (i % 4096 == 0) {
        at = mmap(NULL, 8L << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            return -1;
        }
        madvise(at, 8L << 30, MADV_NOHUGEPAGE);
    }
    return *(volatile char *)(at + (i % 4096) * (2L << 20));
}

BOUNDED(EXHAUSTION, page_tables, "SIGKILL ENOMEM", 0, "page tables") {
    return TRY(exhaust(exhaust_table, 4096L * 64));
}

static long exhaust_region(long i) {
    return mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                   MAP_FAILED
               ? -1
               : 0;
}

BOUNDED(EXHAUSTION, regions, "ENOMEM SIGKILL", 65530, "memory regions") {
    return TRY(exhaust(exhaust_region, 200000));
}

/* The compiler must not see that it never ends. */
static int exhaust_deep(int n) {
    volatile char room[4096];
    room[0] = (char)n;
    return n < INT_MAX ? exhaust_deep(n + 1) + room[0] : 0;
}

ATTEMPT(EXHAUSTION, stack, "SIGSEGV SIGKILL", "the stack, by recursion without an end") {
    return TRY(exhaust_deep(0));
}

/* Files: bytes and inodes, in each place that can be written */

static const char *exhaust_place;

static long exhaust_bytes(long i) {
    static char room[64 << 10];
    static int fd = -1;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/big", exhaust_place);
    if (i == 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    }
    long n = write(fd, room, sizeof room);
    errno = n >= 0 && n < (long)sizeof room ? ENOSPC : errno;
    return n == (long)sizeof room ? 0 : -1;
}

static long exhaust_make(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) {
        close(fd);
    }
    return fd;
}

static long exhaust_file(long i) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/f%ld", exhaust_place, i);
    return exhaust_make(path);
}

#define PLACE(name, path)                                                                          \
    BOUNDED(EXHAUSTION, bytes_##name, "ENOSPC EDQUOT EROFS EACCES ENOENT EBADF SIGKILL",           \
            ESCAPE_DISK >> 16, "bytes in " path) {                                                 \
        exhaust_place = path;                                                                      \
        return TRY(exhaust(exhaust_bytes, 1L << 16));                                              \
    }                                                                                              \
    BOUNDED(EXHAUSTION, inodes_##name, "ENOSPC EDQUOT EROFS EACCES ENOENT SIGKILL", ESCAPE_INODES, \
            "empty files in " path) {                                                              \
        exhaust_place = path;                                                                      \
        return TRY(exhaust(exhaust_file, 100000));                                                 \
    }
PLACE(workspace, "/workspace")
PLACE(home, "/home/user")
PLACE(tmp, "/tmp")
PLACE(var_tmp, "/var/tmp")
PLACE(shm, "/dev/shm")

#define INODES(name, what, call)                                                                   \
    static long exhaust_##name(long i) {                                                           \
        char path[300];                                                                            \
        (void)snprintf(path, sizeof path, "/tmp/%0200ld", i);                                      \
        return call;                                                                               \
    }                                                                                              \
    BOUNDED(EXHAUSTION, inodes_##name, "ENOSPC EDQUOT EMLINK ENOMEM SIGKILL", ESCAPE_INODES,       \
            what) {                                                                                \
        (void)exhaust_make("/tmp/one");                                                            \
        return TRY(exhaust(exhaust_##name, 100000));                                               \
    }
INODES(directories, "directories", mkdir(path, 0755))
INODES(links, "hard links of one file", link("/tmp/one", path))
INODES(symlinks, "symbolic links", symlink(path, path))
INODES(fifos, "FIFOs", mkfifo(path, 0644))
INODES(sockets, "socket files", mknod(path, S_IFSOCK | 0644, 0))

static long exhaust_down(long i) {
    (void)i;
    return mkdir("d", 0755) == 0 ? chdir("d") : -1;
}

BOUNDED(EXHAUSTION, depth, "ENOSPC EDQUOT ENOMEM SIGKILL", ESCAPE_INODES,
        "directories in directories") {
    NEED(chdir("/tmp") == 0);
    return TRY(exhaust(exhaust_down, 100000));
}

static long exhaust_attribute(long i) {
    static char room[1000];
    char name[64];
    (void)snprintf(name, sizeof name, "user.%ld", i);
    return setxattr("/tmp/one", name, room, sizeof room, 0);
}

BOUNDED(EXHAUSTION, attributes, "ENOSPC EDQUOT EOPNOTSUPP ENOMEM SIGKILL", ESCAPE_MEM / 1000,
        "extended attributes") {
    (void)exhaust_make("/tmp/one");
    return TRY(exhaust(exhaust_attribute, 200000));
}

ATTEMPT(EXHAUSTION, sparse, "EFBIG ENOSPC SIGXFSZ EINVAL",
        "a file of a petabyte that holds nothing") {
    int fd = open("/tmp/sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    NEED(fd >= 0);
    return TRY(ftruncate(fd, 1L << 50));
}

ATTEMPT(EXHAUSTION, preallocate, "ENOSPC EDQUOT EFBIG EOPNOTSUPP SIGXFSZ",
        "ten times the disk by fallocate") {
    int fd = open("/tmp/allocated", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    NEED(fd >= 0);
    return TRY(syscall(SYS_fallocate, fd, 0, 0, ESCAPE_DISK * 10));
}

/* Names that are not there: each leaves a negative entry in the kernel's cache. */
static long exhaust_name(long i) {
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof path, "/usr/lib/%0200ld", i);
    return stat(path, &st) == 0 || errno != ENOENT ? -1 : 0;
}

ATTEMPT(EXHAUSTION, dentries, "OK SIGKILL ENOMEM", "a hundred thousand names that are not there") {
    return TRY(exhaust(exhaust_name, 100000));
}

/* Descriptors of each kind */

#define DESCRIPTORS(name, what, call)                                                              \
    static long exhaust_fd_##name(long i) {                                                        \
        (void)i;                                                                                   \
        return call;                                                                               \
    }                                                                                              \
    BOUNDED(EXHAUSTION, fd_##name,                                                                 \
            "EMFILE EAGAIN ENOSPC EPERM EAFNOSUPPORT EACCES ENOSYS ENOBUFS", ESCAPE_FILES, what) { \
        return TRY(exhaust(exhaust_fd_##name, 100000));                                            \
    }
DESCRIPTORS(files, "open files", open("/usr", O_RDONLY | O_CLOEXEC))
DESCRIPTORS(pipes, "pipes", pipe((int[2]){0, 0}))
DESCRIPTORS(inotify, "inotify instances", inotify_init1(IN_CLOEXEC))
DESCRIPTORS(epoll, "epoll instances", epoll_create1(EPOLL_CLOEXEC))
DESCRIPTORS(event, "event counters", eventfd(0, EFD_CLOEXEC))
DESCRIPTORS(timer, "timers by descriptor", timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC))
DESCRIPTORS(unix, "local sockets", socket(AF_UNIX, SOCK_STREAM, 0))
DESCRIPTORS(tcp, "TCP sockets", socket(AF_INET, SOCK_STREAM, 0))
DESCRIPTORS(netlink, "netlink sockets", socket(AF_NETLINK, SOCK_RAW, 0))
DESCRIPTORS(terminals, "terminals", open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC))
DESCRIPTORS(memfd, "memory files", (int)syscall(SYS_memfd_create, "x", 0))
DESCRIPTORS(pidfd, "descriptors of processes", (int)syscall(434, getpid(), 0))
DESCRIPTORS(landlock, "rule sets of landlock",
            (int)syscall(444, (unsigned long[1]){1}, sizeof(unsigned long), 0))

ATTEMPT(EXHAUSTION, files_limit, "EPERM EINVAL", "a higher limit of open files") {
    struct rlimit r = {1 << 20, 1 << 20};
    return TRY(setrlimit(RLIMIT_NOFILE, &r));
}

/* Kernel memory behind few descriptors */

static long exhaust_pipe_page(long i) {
    static int p[2] = {-1, -1};
    static char room[1 << 20];
    (void)i;
    if (pipe(p) != 0 || fcntl(p[1], F_SETPIPE_SZ, (int)MIB) < 0) {
        return -1;
    }
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    return write(p[1], room, sizeof room);
}

BOUNDED(EXHAUSTION, pipe_buffers, "EPERM EMFILE ENOMEM SIGKILL EAGAIN", ESCAPE_MEM / MIB,
        "pipes of a MiB, filled") {
    return TRY(exhaust(exhaust_pipe_page, 1000));
}

static long exhaust_timer(long i) {
    (void)i;
    int id;
    struct {
        long value;
        int signo, notify;
        int pad[12];
    } event = {0, SIGUSR1, 1, {0}};
    return syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id);
}

BOUNDED(EXHAUSTION, timers, "EAGAIN ENOMEM SIGKILL", ESCAPE_MEM / 256, "timers") {
    return TRY(exhaust(exhaust_timer, 2000000));
}

static long exhaust_signal(long i) {
    (void)i;
    return sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1});
}

BOUNDED(EXHAUSTION, signals, "EAGAIN ENOMEM SIGKILL", ESCAPE_MEM / 80, "queued signals") {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return TRY(exhaust(exhaust_signal, 4000000));
}

static long exhaust_watch(long i) {
    static int fd = -1;
    char path[64];
    if (i == 0) {
        fd = inotify_init1(IN_CLOEXEC);
    }
    (void)snprintf(path, sizeof path, "/tmp/w%ld", i);
    return exhaust_make(path) < 0 ? -1 : inotify_add_watch(fd, path, IN_ALL_EVENTS);
}

BOUNDED(EXHAUSTION, watches, "ENOSPC ENOMEM SIGKILL EDQUOT", ESCAPE_INODES, "inotify watches") {
    return TRY(exhaust(exhaust_watch, 100000));
}

static long exhaust_event(long i) {
    static int fd = -1;
    char path[64];
    if (i == 0) {
        fd = inotify_init1(IN_CLOEXEC);
        inotify_add_watch(fd, "/tmp", IN_ALL_EVENTS);
    }
    (void)snprintf(path, sizeof path, "/tmp/e%ld", i % 7);
    (void)exhaust_make(path);
    return 0;
}

ATTEMPT(EXHAUSTION, events, "OK ENOMEM SIGKILL", "inotify events that nobody reads") {
    return TRY(exhaust(exhaust_event, 60000));
}

ATTEMPT(EXHAUSTION, epoll_loop, "ELOOP EINVAL", "epoll instances that watch each other") {
    int one = epoll_create1(0), two = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    NEED(one >= 0 && two >= 0 && epoll_ctl(one, EPOLL_CTL_ADD, two, &e) == 0);
    return TRY(epoll_ctl(two, EPOLL_CTL_ADD, one, &e));
}

/* Descriptors in flight count as open for nobody, but for the user who sent them. */
static long exhaust_flight(long i) {
    static int pair[2] = {-1, -1};
    char room[CMSG_SPACE(sizeof(int))] = {0};
    char byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room};
    m.msg_controllen = sizeof room;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    if (i % 64 == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) != 0) {
        return -1;
    }
    memcpy(CMSG_DATA(c), &pair[0], sizeof(int));
    long sent = sendmsg(pair[1], &m, MSG_NOSIGNAL);
    return sent < 0 && errno == EAGAIN ? 0 : sent;
}

BOUNDED(EXHAUSTION, in_flight, "ETOOMANYREFS EMFILE ENOBUFS", ESCAPE_FILES * 64,
        "descriptors in flight") {
    return TRY(exhaust(exhaust_flight, 1000000));
}

static long exhaust_datagram(long i) {
    static int pair[2] = {-1, -1};
    static char room[60000];
    if (i % 4 == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) != 0) {
        return -1;
    }
    long sent = send(pair[1], room, sizeof room, MSG_NOSIGNAL);
    return sent < 0 && errno == EAGAIN ? 0 : sent;
}

BOUNDED(EXHAUSTION, datagrams, "EMFILE ENOMEM ENOBUFS SIGKILL", ESCAPE_MEM / 60000,
        "datagrams that nobody reads") {
    return TRY(exhaust(exhaust_datagram, 100000));
}

static long exhaust_queue(long i) {
    (void)i;
    char name[64];
    (void)snprintf(name, sizeof name, "/q%ld", i);
    return mq_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600, NULL);
}

BOUNDED(EXHAUSTION, posix_queues, "EMFILE ENOSPC ENOMEM EPERM ENOSYS SIGKILL", ESCAPE_FILES,
        "POSIX message queues") {
    return TRY(exhaust(exhaust_queue, 10000));
}

static long exhaust_message(long i) {
    static int id = -1;
    static struct {
        long type;
        char text[8192];
    } m = {1, {0}};
    if (i % 2 == 0) {
        id = msgget(IPC_PRIVATE, 0600);
    }
    return id < 0 ? -1 : msgsnd(id, &m, sizeof m.text, IPC_NOWAIT);
}

BOUNDED(EXHAUSTION, messages, "ENOSPC ENOMEM EPERM EAGAIN SIGKILL", ESCAPE_MEM / 8192,
        "System V messages") {
    return TRY(exhaust(exhaust_message, 200000));
}

static long exhaust_semaphores(long i) {
    (void)i;
    return semget(IPC_PRIVATE, 1000, 0600);
}

BOUNDED(EXHAUSTION, semaphores, "ENOSPC ENOMEM EPERM SIGKILL", ESCAPE_MEM / 64000,
        "sets of a thousand semaphores") {
    return TRY(exhaust(exhaust_semaphores, 32000));
}

struct exhaust_filter {
    unsigned short code;
    unsigned char yes, no;
    unsigned k;
};

ATTEMPT(EXHAUSTION, filters, "EINVAL",
        "a filter of the program's own: a share of the host's memory for compiled programs") {
    static struct exhaust_filter insns[4000];
    struct {
        unsigned short len;
        struct exhaust_filter *at;
    } program = {4000, insns};
    for (size_t n = 0; n < 4000; n++) {
        insns[n] = (struct exhaust_filter){6, 0, 0, 0x7fff0000};
    }
    return TRY(prctl(PR_SET_SECCOMP, 2, &program, 0, 0));
}

ATTEMPT(EXHAUSTION, arguments, "E2BIG ENOMEM SIGKILL", "arguments of 256 MiB") {
    static char *many[4096];
    char *one = malloc(65536);
    NEED(one != NULL);
    memset(one, 'x', 65535);
    one[65535] = '\0';
    for (int i = 0; i < 4095; i++) {
        many[i] = one;
    }
    return TRY(execve("/proc/self/exe", many, NULL));
}

ATTEMPT(EXHAUSTION, lock_memory, "ENOMEM EPERM EAGAIN",
        "memory that is never given back: mlockall") {
    void *at = mmap(NULL, 32 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED);
    return TRY(mlock(at, 32 * MIB));
}

/* Where the host has none set aside the kernel says ENOMEM as well; unit_seccomp_filter asks the
 * filter, and in `make escape` run.py sets some aside. */
ATTEMPT(EXHAUSTION, huge_pages, "ENOMEM EPERM", "huge pages of the host's pool") {
    return TRY(mmap(NULL, 2 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS | 0x40000, -1, 0) == MAP_FAILED
                   ? -1
                   : 0);
}

ATTEMPT(EXHAUSTION, huge_memfd, "EINVAL EPERM ENOSYS", "huge pages by a memory file") {
    return TRY(syscall(SYS_memfd_create, "x", 4));
}

ATTEMPT(EXHAUSTION, huge_shm, "EPERM ENOSYS", "huge pages by a System V segment") {
    return TRY(shmget(IPC_PRIVATE, 2 * MIB, 04000 | 0600));
}

ATTEMPT(EXHAUSTION, core_cookie, "EINVAL EPERM ENOSYS",
        "a core cookie, which keeps others from the processor's sibling") {
    return TRY(prctl(62, 1, 0, 0, 0));
}
