/* Sockets behind which is memory that no cgroup counts: unread answers of netlink (a receive buffer
 * each), datagrams that are put together and never sent (64 KiB each), connections that nobody
 * accepts with what was sent on them (a backlog of them for each that listens). The filter reports
 * each call that would make one; here they are counted and bounded.
 *
 * A call that is let go on is made by its process itself, with its own powers and from registers,
 * which nobody can change meanwhile. It is made a moment after the answer, so that what was granted
 * just now cannot be counted yet: in each short window only a few are answered, which bounds those
 * too, as well as the share of this process that a jail, and all of them, can have by asking. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"

#ifdef __x86_64__
#define JAIL_SOCKETS_ARCH AUDIT_ARCH_X86_64
#else
#define JAIL_SOCKETS_ARCH AUDIT_ARCH_AARCH64
#endif

enum {
    JAIL_SOCKETS_WINDOW_NS = 10000000,
    JAIL_SOCKETS_ANSWERS = 16, /* in each window, to one jail */
    JAIL_SOCKETS_ALL = 64,     /* … and to all of them */
    JAIL_NETLINK_LEAST = 8,
    JAIL_NETLINK_MOST = 64,
    JAIL_NETLINK_ANSWER = 32768, /* the last answer may pass the buffer's bound by that */
    JAIL_DATAGRAM_LEAST = 64,
    JAIL_DATAGRAM_BYTES = 65536, /* one that is put together */
    JAIL_LISTEN_LEAST = 16,
    JAIL_LISTEN_MOST = 256,
    JAIL_LISTEN_BYTES = 2097152, /* a backlog of connections (init/setup.c), a quarter full */
    JAIL_TABLE_MAX = 1 << 16,    /* of /proc/PID/net/protocols: 100 bytes for each */
    JAIL_CURR_ESTAB = 9,         /* which value of the line in /proc/PID/net/snmp */
};

/* A table of the jail's network namespace. False: it cannot be read. */
static bool jail_sockets_table(const struct jail *j, const char *name, struct buf *text) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/net/%s", (int)j->pid, name);
    buf_init(text, JAIL_TABLE_MAX);
    return fd_read_file(AT_FDCWD, path, text, NULL) == 0 && text->len > 0;
}

/* How many sockets of the protocols in `names`, each with a blank behind it, there are. -1: nobody
 * can tell. */
static long jail_sockets_count(const struct jail *j, const char *names) {
    struct buf text;
    long count = -1;
    if (jail_sockets_table(j, "protocols", &text)) {
        count = 0;
        for (const char *line = text.data; line != NULL; line = strchr(line, '\n')) {
            char name[32], word[34];
            long one = 0;
            line += *line == '\n';
            if (sscanf(line, "%31s %*u %ld", name, &one) == 2) {
                (void)snprintf(word, sizeof word, " %s ", name);
                count += strstr(names, word) != NULL ? one : 0;
            }
        }
    }
    buf_done(&text);
    return count;
}

/* How many sockets there are of whatever kind. -1: nobody can tell. */
static long jail_sockets_all(const struct jail *j) {
    struct buf text;
    long count = -1;
    if (jail_sockets_table(j, "sockstat", &text) &&
        sscanf(text.data, "sockets: used %ld", &count) != 1) {
        count = -1;
    }
    buf_done(&text);
    return count;
}

/* Fewer of all kinds than of one kind there may be: one short table tells, and most have a few. */
static bool jail_sockets_few(const struct jail *j, uint64_t most) {
    long all = jail_sockets_all(j);
    return all >= 0 && (uint64_t)all < most;
}

/* How many ends of connections are established, which these are not: 0 when nobody can tell. */
static long jail_sockets_established(const struct jail *j) {
    struct buf text;
    long count = 0;
    if (jail_sockets_table(j, "snmp", &text)) {
        const char *at = strstr(text.data, "\nTcp: ");
        at = at != NULL ? strstr(at + 1, "\nTcp: ") : NULL; /* the first has the names */
        for (int i = 0; at != NULL && i < JAIL_CURR_ESTAB; i++) {
            at = strchr(at + 1, ' ');
        }
        count = at != NULL ? strtol(at, NULL, 10) : 0;
    }
    buf_done(&text);
    return count;
}

static uint64_t jail_sockets_share(const struct jail *j, uint64_t bytes, uint64_t least,
                                   uint64_t most) {
    uint64_t share = j->limits.v[LIMIT_MEM_BYTES] / bytes;
    return share < least ? least : share > most ? most : share;
}

/* May there be one more? Together they hold about as much as the jail's own memory limit. */
static bool jail_sockets_netlink(const struct jail *j) {
    struct buf text;
    uint64_t most = JAIL_NETLINK_LEAST;
    buf_init(&text, 64);
    if (fd_read_file(AT_FDCWD, "/proc/sys/net/core/rmem_default", &text, NULL) == 0 &&
        text.len > 0) {
        uint64_t bytes = strtoull(text.data, NULL, 10) + JAIL_NETLINK_ANSWER;
        most = jail_sockets_share(j, bytes, JAIL_NETLINK_LEAST, JAIL_NETLINK_MOST);
    }
    buf_done(&text);
    if (jail_sockets_few(j, most)) {
        return true;
    }
    long count = jail_sockets_count(j, " NETLINK ");
    return count >= 0 && (uint64_t)count < most;
}

/* Those for datagrams are in the table only once they have a port, which they get when they first
 * send: counted are all but the other kinds. */
static bool jail_sockets_datagram(const struct jail *j) {
    uint64_t most = jail_sockets_share(j, JAIL_DATAGRAM_BYTES, JAIL_DATAGRAM_LEAST, UINT32_MAX);
    if (jail_sockets_few(j, most)) {
        return true;
    }
    long others = jail_sockets_count(j, " TCP TCPv6 UNIX UNIX-STREAM NETLINK ");
    long all = jail_sockets_all(j);
    return others >= 0 && all >= 0 && all - others < (long)most;
}

/* A list of those that listen would take the kernel milliseconds, in which it goes through the
 * connections of the whole host: counted are those that are not an end of a connection. */
static bool jail_sockets_listen(const struct jail *j) {
    long most = (long)jail_sockets_share(j, JAIL_LISTEN_BYTES, JAIL_LISTEN_LEAST, JAIL_LISTEN_MOST);
    if (jail_sockets_few(j, (uint64_t)most)) {
        return true;
    }
    long count = jail_sockets_count(j, " TCP TCPv6 ");
    return count >= 0 && (count < most || count - jail_sockets_established(j) < most);
}

static void jail_sockets_again(void *arg) {
    struct jail *j = arg;
    if (j->filter_src.fn != NULL && loop_mod(j->host->loop, &j->filter_src, EPOLLIN, NULL) != 0) {
        jail_fail(j, "filter", errno, "the filter's listener cannot be watched");
    }
}

/* A window is full: the jail is not heard until it is over. Without that the jail could not go on.
 */
static void jail_sockets_pause(struct jail *j, uint64_t from_ns) {
    if (loop_timer_at(j->host->loop, &j->sockets_timer, from_ns + JAIL_SOCKETS_WINDOW_NS,
                      jail_sockets_again, j, NULL) != 0 ||
        loop_mod(j->host->loop, &j->filter_src, 0, NULL) != 0) {
        jail_fail(j, "filter", errno, "the filter's listener cannot be paused");
    }
}

static bool jail_sockets_window(struct jail_sockets *w, uint64_t now_ns, unsigned most) {
    if (now_ns - w->since_ns >= JAIL_SOCKETS_WINDOW_NS) {
        *w = (struct jail_sockets){.since_ns = now_ns};
    }
    return w->answers < most;
}

bool jail_sockets_wait(struct jail *j) {
    uint64_t now_ns = clock_mono_ns();
    if (!jail_sockets_window(&j->sockets, now_ns, JAIL_SOCKETS_ANSWERS)) {
        jail_sockets_pause(j, j->sockets.since_ns);
        return true;
    }
    if (!jail_sockets_window(&j->host->sockets, now_ns, JAIL_SOCKETS_ALL)) {
        jail_sockets_pause(j, j->host->sockets.since_ns);
        return true;
    }
    return false;
}

bool jail_sockets_asked(const struct seccomp_notif *note) {
    return note->data.arch == JAIL_SOCKETS_ARCH &&
           (note->data.nr == SYS_socket || note->data.nr == SYS_listen ||
            note->data.nr == SYS_setsockopt);
}

void jail_sockets_answer(struct jail *j, const struct seccomp_notif *note) {
    struct seccomp_notif_resp answer = {.id = note->id, .error = -ENOBUFS};
    j->net_told = true;
    if (note->data.nr == SYS_setsockopt    ? true /* to join a group; only to be told of */
        : note->data.nr == SYS_listen      ? jail_sockets_listen(j)
        : note->data.args[0] == AF_NETLINK ? jail_sockets_netlink(j)
                                           : jail_sockets_datagram(j)) {
        answer.error = 0;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
    (void)ioctl(j->filter_fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    j->sockets.answers++;
    j->host->sockets.answers++;
}
