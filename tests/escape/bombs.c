/* Kernel memory and pools of the host that stand behind few names: each goes on until it is refused
 * and says how much it got, or shows that what it does ends by itself. */
#include "attempt.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define EXHAUSTION "exhaustion"
#define MIB (1L << 20)

static long bomb(long (*one)(long i), long top) {
    long i = 0;
    while (i < top && one(i) >= 0) {
        i++;
    }
    int saved = errno;
    escape_counted(i);
    errno = saved;
    return i < top ? -1 : 0;
}

/* Pools of the host: one share for all users. */

struct bomb_insn {
    unsigned short code;
    unsigned char yes, no;
    unsigned k;
};

static long bomb_attach(int level, int option) {
    static struct bomb_insn one = {6, 0, 0, 0xffff};
    struct {
        unsigned short len;
        struct bomb_insn *at;
    } program = {1, &one};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    NEED(fd >= 0);
    return setsockopt(fd, level, option, &program, sizeof program);
}

#define POOL_OPTION(name, level, option, what)                                                     \
    ATTEMPT(EXHAUSTION, pool_##name, "ENOPROTOOPT EPERM ENOSYS EINVAL", what) {                    \
        return TRY(bomb_attach(level, option));                                                    \
    }
POOL_OPTION(packet_program, SOL_SOCKET, 26, "the host's memory for compiled packet programs")
POOL_OPTION(reuseport_program, SOL_SOCKET, 51, "the same by SO_ATTACH_REUSEPORT_CBPF")
POOL_OPTION(program_fd, SOL_SOCKET, 50, "a program of bpf() on a socket")

ATTEMPT(EXHAUSTION, pool_high, "ENOPROTOOPT EPERM ENOSYS EINVAL",
        "a packet program, with high bits in level and option") {
    static struct bomb_insn one = {6, 0, 0, 0xffff};
    struct {
        unsigned short len;
        struct bomb_insn *at;
    } program = {1, &one};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    NEED(fd >= 0);
    return TRY(syscall(SYS_setsockopt, fd, 0x100000001L, 0x10000001aL, &program, sizeof program));
}

ATTEMPT(EXHAUSTION, pool_flow_labels, FAMILY " ENOPROTOOPT",
        "the host's few thousand flow labels of IPv6") {
    unsigned request[8] = {0};
    int fd = (int)TRY(socket(AF_INET6, SOCK_DGRAM, 0));
    return fd < 0 ? -1 : TRY(setsockopt(fd, IPPROTO_IPV6, 32, request, sizeof request));
}

ATTEMPT("kernel", tcp_module, FAMILY " ENOPROTOOPT ENOENT ENOTCONN",
        "a protocol on top of TCP, which is a module (TCP_ULP)") {
    int fd = (int)TRY(socket(AF_INET, SOCK_STREAM, 0));
    return fd < 0 ? -1 : TRY(setsockopt(fd, IPPROTO_TCP, 31, "tls", 3));
}

/* Sockets: bytes that nobody reads */

static struct sockaddr_in bomb_loopback;

static int bomb_listen(void) {
    socklen_t len = sizeof bomb_loopback;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bomb_loopback.sin_family = AF_INET;
    bomb_loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && (bind(fd, (void *)&bomb_loopback, len) != 0 || listen(fd, 64) != 0 ||
                    getsockname(fd, (void *)&bomb_loopback, &len) != 0)) {
        return -1;
    }
    return fd;
}

/* Returns KiB that were taken; 0 ends it. */
static long bomb_fill(int fd, long most) {
    static char room[65536];
    long total = 0, n;
    while (total < most && (n = send(fd, room, sizeof room, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0) {
        total += n;
    }
    return total;
}

BOUNDED(EXHAUSTION, tcp_buffers, FAMILY " EMFILE ENOBUFS ENOMEM SIGKILL", ESCAPE_MEM,
        "buffers of TCP connections to oneself") {
    long got = 0;
    int server = bomb_listen();
    NEED(server >= 0 || errno == EAFNOSUPPORT);
    escape_reached("send() until no buffer takes more");
    for (int i = 0; server >= 0 && got <= 4 * ESCAPE_MEM; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            break;
        }
        if (connect(fd, (void *)&bomb_loopback, sizeof bomb_loopback) != 0 &&
            errno != EINPROGRESS) {
            break;
        }
        int other = accept(server, NULL, NULL);
        got += other < 0 ? 0 : bomb_fill(fd, ESCAPE_MEM) + bomb_fill(other, ESCAPE_MEM);
    }
    int saved = server < 0 ? EAFNOSUPPORT : EMFILE;
    escape_counted(got);
    errno = saved;
    return -1;
}

static long bomb_stream(long i) {
    static int pair[2];
    (void)i;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return -1;
    }
    int size = 1 << 30;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return bomb_fill(pair[0], ESCAPE_MEM) > 0 ? 0 : -1;
}

BOUNDED(EXHAUSTION, stream_buffers, "EMFILE ENOBUFS ENOMEM SIGKILL EAGAIN", ESCAPE_FILES,
        "buffers of local streams") {
    return TRY(bomb(bomb_stream, 4096));
}

/* A descriptor in a socket in a socket …: what closes the first must close them all. */
static long bomb_nest(long i) {
    static int last = -1;
    int pair[2];
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room};
    m.msg_controllen = sizeof room;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) {
        return -1;
    }
    if (i > 0) {
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &last, sizeof(int));
        if (sendmsg(pair[0], &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            return -1;
        }
        close(last);
    }
    close(pair[0]);
    last = pair[1];
    return 0;
}

BOUNDED(EXHAUSTION, nested_rights, "ETOOMANYREFS EMFILE ENOBUFS ELOOP ECONNREFUSED",
        2 * ESCAPE_FILES, "sockets in sockets in sockets") {
    return TRY(bomb(bomb_nest, 100000));
}

/* Attributes of files in memory: room that is neither a block nor a page. */
static long bomb_attribute(long i) {
    static char room[60000];
    char path[64], name[64];
    (void)snprintf(path, sizeof path, "/tmp/x%ld", i / 8);
    (void)snprintf(name, sizeof name, "user.%ld", i % 8);
    if (i % 8 == 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            return -1;
        }
        close(fd);
    }
    return setxattr(path, name, room, sizeof room, 0);
}

BOUNDED(EXHAUSTION, large_attributes, "ENOSPC EDQUOT EOPNOTSUPP ENOMEM E2BIG SIGKILL",
        ESCAPE_MEM / 60000, "extended attributes of 60 KB on many files") {
    return TRY(bomb(bomb_attribute, 20000));
}

ATTEMPT(EXHAUSTION, trusted_attribute, "EPERM EOPNOTSUPP", "marks of an overlay on a file") {
    int fd = open("/workspace/o", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    NEED(fd >= 0);
    return TRY(fsetxattr(fd, "trusted.overlay.redirect", "/usr", 4, 0));
}

/* Locks: the kernel's list of them is searched from its beginning by each. The count that a run
 * gets in its time is what bounds them, and every one goes with its file. */
static long bomb_lock(long i) {
    static int fd = -1;
    if (fd < 0) {
        fd = open("/tmp/locked", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    }
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1000000 - 2 * i};
    l.l_len = 1;
    return fcntl(fd, F_SETLK, &l);
}

ATTEMPT(EXHAUSTION, locks, "OK ENOLCK ENOMEM SIGKILL",
        "3,000 locks on one file, which go with it") {
    return TRY(bomb(bomb_lock, 3000));
}

static long bomb_lease(const char *path, int kind) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    return fcntl(fd, F_SETLEASE, kind);
}

/* Whoever writes a file that is leased waits for its holder, up to 45 s: also a package manager of
 * the host. */
ATTEMPT("system files", lease_read, "EACCES EPERM EINVAL EAGAIN", "a lease on a file of the host") {
    return TRY(bomb_lease("/usr/bin/env", F_RDLCK));
}

ATTEMPT("system files", lease_write, "EACCES EPERM EINVAL EAGAIN",
        "a lease that keeps readers waiting") {
    return TRY(bomb_lease("/etc/passwd", F_WRLCK));
}

/* Time: timers that fire as often as they can, interrupts that are nobody's. */

static long bomb_timer(clockid_t clock) {
    struct itimerspec fast = {{0, 1}, {0, 1}};
    timer_t id;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    for (int i = 0; i < 200; i++) {
        if (timer_create(clock, &event, &id) != 0 || timer_settime(id, 0, &fast, NULL) != 0) {
            return -1;
        }
    }
    return 0;
}

ATTEMPT(EXHAUSTION, timer_storm, "OK EAGAIN ENOMEM",
        "timers of a nanosecond; the neighbour goes on") {
    return TRY(bomb_timer(CLOCK_MONOTONIC));
}

ATTEMPT("kernel", wake_timer, "EPERM EINVAL EOPNOTSUPP ENOTSUP",
        "a timer that wakes the machine from sleep") {
    return TRY(bomb_timer(CLOCK_REALTIME_ALARM));
}

ATTEMPT("kernel", wake_timerfd, "EPERM EINVAL EOPNOTSUPP", "the same by timerfd") {
    return TRY(timerfd_create(CLOCK_BOOTTIME_ALARM, TFD_CLOEXEC));
}

static long bomb_alarms(void) {
    struct itimerval fast = {{0, 1}, {0, 1}};
    signal(SIGVTALRM, SIG_IGN);
    for (int i = 0; i < 16; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            return -1;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setitimer(ITIMER_VIRTUAL, &fast, NULL);
            setitimer(ITIMER_PROF, &fast, NULL);
            signal(SIGPROF, SIG_IGN);
            for (volatile long k = 0; k < 100000000; k++) {
            }
            _exit(0);
        }
    }
    struct timespec t = {0, 300000000};
    nanosleep(&t, NULL);
    errno = EPERM;
    return -1;
}

ATTEMPT(EXHAUSTION, alarm_storm, "EPERM EAGAIN SIGKILL",
        "16 processes with profiling alarms; the neighbour goes on") {
    return TRY(bomb_alarms());
}

/* Waiting in the kernel: chains that it follows by itself. */

static unsigned bomb_futex[2] __attribute__((aligned(8)));

static void *bomb_waiter(void *p) {
    unsigned *word = p;
    syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    return NULL;
}

ATTEMPT(EXHAUSTION, futex_chain, "EPERM EAGAIN EDEADLK ESRCH",
        "threads that wait for one another by priority inheritance") {
    pthread_t t;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    syscall(SYS_futex, &bomb_futex[0], FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    escape_reached("futex(FUTEX_LOCK_PI) by 20 threads");
    for (int i = 0; i < 20; i++) {
        if (pthread_create(&t, &small, bomb_waiter, &bomb_futex[0]) != 0) {
            break;
        }
    }
    return syscall(SYS_futex, &bomb_futex[0], FUTEX_LOCK_PI, 0, NULL, NULL, 0);
}

/* A futex word whose owner is a process that is not ours: the kernel lends it our priority, which
 * is the same, and we wait in vain. */
ATTEMPT("process 1", futex_owner, "ESRCH EPERM ETIMEDOUT",
        "waiting for a lock that process 1 is said to hold: it goes on") {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 1;
    bomb_futex[1] = 1;
    return TRY(syscall(SYS_futex, &bomb_futex[1], FUTEX_LOCK_PI, 0, &t, NULL, 0));
}

static long bomb_epoll(long i) {
    static int last = -1;
    struct epoll_event e = {.events = EPOLLIN};
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    long rc = i == 0 ? 0 : epoll_ctl(fd, EPOLL_CTL_ADD, last, &e);
    last = fd;
    return rc;
}

BOUNDED(EXHAUSTION, epoll_depth, "ELOOP EINVAL EMFILE", 8, "epoll instances in epoll instances") {
    return TRY(bomb(bomb_epoll, 100));
}

static long bomb_epoll_wide(long i) {
    static int in[8], eventfd_ = -1;
    struct epoll_event e = {.events = EPOLLIN};
    if (i == 0) {
        eventfd_ = (int)syscall(SYS_eventfd2, 0, 0);
        for (int k = 0; k < 8; k++) {
            in[k] = epoll_create1(0);
        }
    }
    int fd = dup(eventfd_);
    return fd < 0 ? -1 : epoll_ctl(in[i % 8], EPOLL_CTL_ADD, fd, &e);
}

BOUNDED(EXHAUSTION, epoll_wide, "ENOSPC ENOMEM EMFILE EINVAL ELOOP", ESCAPE_FILES,
        "as many watched descriptors as there are") {
    return TRY(bomb(bomb_epoll_wide, 100000));
}

/* Ids of processes: each that ends leaves room for the next, and the host has few numbers. */
ATTEMPT(EXHAUSTION, pid_numbers, "OK EAGAIN ENOMEM SIGKILL",
        "3,000 processes one after the other, by vfork") {
    escape_reached("vfork() 3000 times");
    for (int i = 0; i < 3000; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            _exit(0);
        }
        if (pid < 0) {
            return -1;
        }
        waitpid(pid, NULL, 0);
    }
    return 0;
}

/* Shared memory that outlives whoever made it counts for the jail. */
static long bomb_detached(long i) {
    (void)i;
    int id = (int)syscall(SYS_shmget, 0, MIB, 0600);
    if (id < 0) {
        return -1;
    }
    void *at = (void *)syscall(SYS_shmat, id, NULL, 0);
    if (at == MAP_FAILED) {
        return -1;
    }
    memset(at, 1, (size_t)MIB);
    return syscall(SYS_shmdt, at);
}

BOUNDED(EXHAUSTION, detached_segments, "ENOSPC ENOMEM EPERM SIGKILL ENOSYS", ESCAPE_MEM / MIB,
        "System V segments that nobody has attached") {
    return TRY(bomb(bomb_detached, 1000));
}

/* A sealed memory file whose descriptor waits in a socket. */
static long bomb_parked(long i) {
    static int pair[2];
    static char room[1 << 16];
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    m.msg_controllen = sizeof control;
    if (i % 8 == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) != 0) {
        return -1;
    }
    int fd = (int)syscall(SYS_memfd_create, "parked", 0);
    if (fd < 0) {
        return -1;
    }
    for (int k = 0; k < 16; k++) {
        if (write(fd, room, sizeof room) < 0) {
            return -1;
        }
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    long sent = sendmsg(pair[0], &m, MSG_NOSIGNAL);
    close(fd);
    return sent;
}

BOUNDED(EXHAUSTION, parked_memory, "ENOMEM ENOSPC ETOOMANYREFS EMFILE EAGAIN SIGKILL",
        ESCAPE_MEM / MIB, "memory files that are only in a socket's queue") {
    return TRY(bomb(bomb_parked, 1000));
}
