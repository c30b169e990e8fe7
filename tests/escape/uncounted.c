/* Kernel memory that no memory cgroup counts: each goes on until it is refused, or until it has
 * more than four times the run's own memory limit, and says how many MiB it got. */
#include "attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define EXHAUSTION "exhaustion"
#define MIB (1L << 20)
#define UNCOUNTED_MOST (4 * ESCAPE_MEM)
#define UNCOUNTED_RIGHT FAMILY " ENOBUFS ENOPROTOOPT EMFILE ENOMEM ECONNREFUSED SIGKILL ETIMEDOUT"

enum { UNCOUNTED_PROCESSES = 28 };

struct uncounted {
    volatile long bytes;
    volatile long code;
};

static void uncounted_over(int number) {
    (void)number;
}

/* Where the memory of sockets is counted (cgroup v2), who is at his limit is not refused: each page
 * more is looked for in vain first, so that a megabyte takes a second. Only there the end of an
 * attempt's time is a result (ETIMEDOUT: it has not got too much in all of it); elsewhere there has
 * to be a refusal before. */
static void uncounted_may_be_slow(void) {
    const struct sigaction over = {.sa_handler = uncounted_over}; /* a read() is interrupted */
    char text[4096] = "";
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 && strstr(text, "memory") == NULL) {
        sigaction(SIGALRM, &over, NULL);
    }
    close(fd);
}

/* Lets one() take until it says -1, in many processes, since each may have only so many
 * descriptors; one after the other, until there is too much. All hold what they have meanwhile. */
static long uncounted(long (*one)(void)) {
    struct uncounted *all = mmap(NULL, sizeof *all, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int done[2];
    char byte;
    uncounted_may_be_slow();
    NEED(all != MAP_FAILED && pipe(done) == 0);
    for (int i = 0; i < UNCOUNTED_PROCESSES && all->bytes <= UNCOUNTED_MOST; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            long got = 0;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGPIPE, SIG_IGN);
            while (got >= 0 && all->bytes <= UNCOUNTED_MOST) {
                errno = 0;
                got = one();
                all->bytes += got > 0 ? got : 0;
            }
            all->code = errno;
            (void)!write(done[1], "x", 1);
            pause();
            _exit(0);
        }
        if (pid < 0 || read(done[0], &byte, 1) != 1) {
            all->code = pid < 0 ? all->code : ETIMEDOUT;
            break;
        }
    }
    escape_counted(all->bytes / MIB);
    errno = all->bytes > UNCOUNTED_MOST ? 0 : (int)all->code;
    return all->bytes > UNCOUNTED_MOST ? 0 : -1;
}

#define UNCOUNTED(name, what)                                                                      \
    BOUNDED(EXHAUSTION, uncounted_##name, UNCOUNTED_RIGHT, UNCOUNTED_MOST / MIB, what) {           \
        return TRY(uncounted(uncounted_##name));                                                   \
    }

/* What lies in a socket's receive queue, errors and answers included. */
static long uncounted_queued(int fd) {
    unsigned memory[9] = {0};
    socklen_t size = sizeof memory;
    return getsockopt(fd, SOL_SOCKET, 55 /* SO_MEMINFO */, memory, &size) == 0 ? (long)memory[0]
                                                                               : 0;
}

static void uncounted_widen(int fd) {
    int most = 1 << 20;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, sizeof most);
}

static long uncounted_netlink(void) {
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } asked[32] = {0};
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    uncounted_widen(fd);
    for (int i = 0; i < 32; i++) {
        asked[i].head.nlmsg_len = sizeof asked[i];
        asked[i].head.nlmsg_type = RTM_GETLINK;
        asked[i].head.nlmsg_flags = NLM_F_REQUEST;
        asked[i].link.ifi_index = 1;
    }
    for (long before = -1, now = 0; now > before;) {
        before = now;
        (void)sendto(fd, asked, sizeof asked, 0, (void *)&kernel, sizeof kernel);
        now = uncounted_queued(fd);
    }
    return uncounted_queued(fd);
}
UNCOUNTED(netlink, "answers of netlink that nobody reads")

static struct sockaddr_in uncounted_nobody(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/* Sends until the error queue takes no more; with a control message that asks for time stamps. */
static long uncounted_errors(int fd, int stamps, size_t size) {
    static char room[8000];
    char control[CMSG_SPACE(sizeof stamps)] = {0};
    struct sockaddr_in a = uncounted_nobody();
    struct iovec iov = {room, size};
    struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &iov, .msg_iovlen = 1};
    if (stamps != 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SO_TIMESTAMPING;
        c->cmsg_len = CMSG_LEN(sizeof stamps);
        memcpy(CMSG_DATA(c), &stamps, sizeof stamps);
    }
    for (long before = -1, now = 0; now > before;) {
        before = now;
        (void)sendmsg(fd, &m, MSG_DONTWAIT);
        (void)sendmsg(fd, &m, MSG_DONTWAIT);
        now = uncounted_queued(fd);
    }
    return uncounted_queued(fd);
}

static long uncounted_stamps(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0) {
        return -1;
    }
    uncounted_widen(fd);
    return uncounted_errors(fd, SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE, 8000);
}
UNCOUNTED(stamps, "packets that come back with their time stamp, asked for by message")

static long uncounted_stamped(void) {
    int stamps = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps) != 0) {
        return -1;
    }
    uncounted_widen(fd);
    return uncounted_errors(fd, 0, 8000);
}
UNCOUNTED(stamped, "packets that come back with their time stamp, asked for by option")

static long uncounted_refusals(void) {
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one) != 0) {
        return -1;
    }
    uncounted_widen(fd);
    return uncounted_errors(fd, 0, 500);
}
UNCOUNTED(refusals, "ICMP errors that nobody reads")

static long uncounted_cork(void) {
    static char room[12000];
    struct sockaddr_in a = uncounted_nobody();
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    long total = 0;
    for (int i = 0; fd >= 0 && i < 5; i++) {
        long n = sendto(fd, room, sizeof room, MSG_MORE | MSG_DONTWAIT, (void *)&a, sizeof a);
        total += n > 0 ? n : 0;
    }
    return fd < 0 ? -1 : total;
}
BOUNDED(EXHAUSTION, uncounted_cork, UNCOUNTED_RIGHT, 2 * ESCAPE_MEM / MIB,
        "datagrams that are put together and never sent") {
    return TRY(uncounted(uncounted_cork)); /* more descriptors than these would hold more */
}

/* The same, but none of them sends before all were made: until then they have no port. */
static void uncounted_late_child(struct uncounted *all, int made, int go) {
    static char room[12000];
    struct sockaddr_in a = uncounted_nobody();
    int fds[ESCAPE_FILES], n = 0;
    char byte;
    while (n < ESCAPE_FILES && (fds[n] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0) {
        n++;
    }
    all->code = errno != EMFILE ? errno : all->code;
    (void)!write(made, "x", 1);
    (void)!read(go, &byte, 1);
    for (int i = 0; i < 5 * n; i++) {
        long sent =
            sendto(fds[i / 5], room, sizeof room, MSG_MORE | MSG_DONTWAIT, (void *)&a, sizeof a);
        __sync_fetch_and_add(&all->bytes, sent > 0 ? sent : 0);
    }
    (void)!write(made, "x", 1);
    pause();
    _exit(0);
}

static long uncounted_late(void) {
    struct uncounted *all = mmap(NULL, sizeof *all, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int made[2], go[2], children = 0;
    char room[UNCOUNTED_PROCESSES];
    NEED(all != MAP_FAILED && pipe(made) == 0 && pipe(go) == 0);
    for (; children < UNCOUNTED_PROCESSES; children++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            uncounted_late_child(all, made[1], go[0]);
        }
        if (pid < 0 || read(made[0], room, 1) != 1) {
            break;
        }
    }
    NEED(write(go[1], room, (size_t)children) == children);
    for (int i = 0; i < children; i++) {
        NEED(read(made[0], room, 1) == 1);
    }
    escape_counted(all->bytes / MIB);
    errno = (int)all->code;
    return all->code != 0 ? -1 : 0;
}

BOUNDED(EXHAUSTION, uncounted_late, UNCOUNTED_RIGHT, 2 * ESCAPE_MEM / MIB,
        "datagrams that are put together in sockets that were all made before") {
    return TRY(uncounted_late());
}

/* Access lists: they are no blocks, and the file system in memory holds one for each file. */
static long uncounted_list(void) {
    static struct {
        unsigned version;
        struct {
            unsigned short tag, may;
            unsigned id;
        } entry[8184];
    } list = {.version = 2};
    static int made;
    enum { USER = 2, LAST = sizeof list.entry / sizeof list.entry[0] - 1 };
    char path[64];
    for (int i = 0; i <= LAST; i++) {
        list.entry[i].tag = USER;
        list.entry[i].id = 1000;
    }
    list.entry[0].tag = 1;         /* the owner */
    list.entry[LAST - 2].tag = 4;  /* the group */
    list.entry[LAST - 1].tag = 16; /* the mask */
    list.entry[LAST].tag = 32;     /* the others */
    (void)snprintf(path, sizeof path, "/tmp/l%d.%d", (int)getpid(), made++);
    if (mkdir(path, 0755) != 0 ||
        setxattr(path, "system.posix_acl_access", &list, sizeof list, 0) != 0 ||
        setxattr(path, "system.posix_acl_default", &list, sizeof list, 0) != 0) {
        return -1;
    }
    return 2 * sizeof list;
}
BOUNDED(EXHAUSTION, uncounted_lists, "ENOSPC EOPNOTSUPP SIGKILL", ESCAPE_MEM / MIB,
        "access lists of files in memory") {
    return TRY(uncounted(uncounted_list));
}

ATTEMPT(EXHAUSTION, uncounted_groups, FAMILY " ENOPROTOOPT",
        "groups of IPv6: hundreds for each socket, in one list") {
    struct ipv6_mreq group = {.ipv6mr_interface = 1};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    group.ipv6mr_multiaddr.s6_addr[0] = 0xff;
    group.ipv6mr_multiaddr.s6_addr[1] = 0x12;
    fd = fd >= 0 ? fd : (int)TRY(socket(AF_INET6, SOCK_DGRAM, 0));
    return fd < 0 ? -1
                  : TRY(setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &group, sizeof group));
}

/* What was sent on a connection that nobody accepts: it is the listener's once it is confirmed. The
 * descriptor is closed again; the connection stays. */
static long uncounted_backlog(void) {
    static struct sockaddr_in a;
    static char room[65536];
    static int left;
    socklen_t len = sizeof a;
    if (left-- == 0) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        a = uncounted_nobody();
        a.sin_port = 0;
        if (listener < 0) {
            return -1;
        }
        uncounted_widen(listener);
        if (bind(listener, (void *)&a, len) != 0 || listen(listener, 1000) != 0 ||
            getsockname(listener, (void *)&a, &len) != 0) {
            return -1;
        }
        left = 120;
    }
    int unsent = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    (void)connect(fd, (void *)&a, len);
    long n, total = 0;
    while ((n = send(fd, room, sizeof room, MSG_NOSIGNAL)) > 0) {
        total += n;
    }
    (void)ioctl(fd, SIOCOUTQ, &unsent);
    close(fd);
    return total > unsent ? total - unsent : 0;
}
UNCOUNTED(backlog, "connections that nobody accepts, with what was sent on them")

/* Connections that are over stay for a minute each, with the place in the kernel's table of all
 * connections. */
static long uncounted_waits(void) {
    struct sockaddr_in a = uncounted_nobody();
    socklen_t len = sizeof a;
    char text[4096] = "";
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_port = 0;
    if (listener < 0) {
        return -1;
    }
    NEED(bind(listener, (void *)&a, len) == 0 && listen(listener, 100) == 0 &&
         getsockname(listener, (void *)&a, &len) == 0);
    for (int i = 0; i < 12000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        NEED(connect(fd, (void *)&a, len) == 0);
        int other = accept(listener, NULL, NULL);
        close(fd);
        close(other);
    }
    int table = open("/proc/net/sockstat", O_RDONLY | O_CLOEXEC);
    NEED(table >= 0 && read(table, text, sizeof text - 1) > 0 && strstr(text, " tw ") != NULL);
    escape_counted(strtol(strstr(text, " tw ") + 4, NULL, 10));
    return 0;
}
BOUNDED(EXHAUSTION, uncounted_waits, FAMILY " OK", 5000, "connections that are over and wait") {
    return TRY(uncounted_waits());
}

ATTEMPT(EXHAUSTION, uncounted_keys, FAMILY " ENOPROTOOPT", "keys of TCP connections (TCP_MD5SIG)") {
    struct tcp_md5sig key = {.tcpm_keylen = 4};
    struct sockaddr_in a = uncounted_nobody();
    memcpy(&key.tcpm_addr, &a, sizeof a);
    int fd = (int)TRY(socket(AF_INET, SOCK_STREAM, 0));
    return fd < 0 ? -1 : TRY(setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key));
}
