#include "netns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"

#define NETNS_TEXT_MAX 16384
/* Longer than the pause after which used jails are replaced (POOL_REFILL_PLENTY_NS). */
#define NETNS_REST_NS (100 * CLOCK_NS_PER_MS)

/* The last two change without a packet. Each route of IPv6 that a connection looked up is counted;
 * so is each look-up of IPv4, also of bind(2), where the kernel was built to. */
static const char *const netns_tables[] = {
    "/proc/thread-self/net/snmp", "/proc/thread-self/net/snmp6", "/proc/thread-self/net/netstat",
    "/proc/thread-self/net/rt6_stats", "/proc/thread-self/net/fib_triestat"};
enum { NETNS_TABLES = sizeof netns_tables / sizeof netns_tables[0] };

struct netns_set {
    struct loop *loop;
    struct loop_timer rest;
    int home;
    bool known; /* `fresh` is filled */
    struct buf fresh[NETNS_TABLES];
    size_t count;
    int fd[NETNS_KEPT];
};

struct netns_set *netns_new(struct loop *loop) {
    fd_cleanup int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    struct netns_set *set = NULL;
    if (home < 0 || setns(home, CLONE_NEWNET) != 0 || (set = calloc(1, sizeof *set)) == NULL) {
        return NULL;
    }
    set->loop = loop;
    set->home = fd_steal(&home);
    for (int i = 0; i < NETNS_TABLES; i++) {
        buf_init(&set->fresh[i], NETNS_TEXT_MAX);
    }
    return set;
}

static void netns_close_all(void *arg) {
    struct netns_set *set = arg;
    while (set->count > 0) {
        (void)close(set->fd[--set->count]);
    }
}

void netns_free(struct netns_set *set) {
    if (set == NULL) {
        return;
    }
    loop_timer_stop(set->loop, &set->rest);
    netns_close_all(set);
    for (int i = 0; i < NETNS_TABLES; i++) {
        buf_done(&set->fresh[i]);
    }
    fd_close(&set->home);
    free(set);
}

int netns_enter(int fd, struct err *err) {
    return setns(fd, CLONE_NEWNET) == 0 ? 0 : err_sys(err, "entering a network namespace");
}

void netns_leave(const struct netns_set *set) {
    if (setns(set->home, CLONE_NEWNET) != 0) {
        abort();
    }
}

/* From within. A kernel without IPv6 has no table of it: an empty one. */
static bool netns_read(const char *path, struct buf *text) {
    struct err err;
    text->len = 0;
    return fd_read_file(AT_FDCWD, path, text, &err) == 0 || err.code == ENOENT;
}

/* No socket: the table begins so. */
static bool netns_quiet(void) {
    static const char none[] = "sockets: used 0\n";
    struct buf text;
    buf_init(&text, NETNS_TEXT_MAX);
    bool quiet = netns_read("/proc/thread-self/net/sockstat", &text) &&
                 text.len > sizeof none - 1 && memcmp(text.data, none, sizeof none - 1) == 0;
    buf_done(&text);
    return quiet;
}

static bool netns_learn(struct netns_set *set) {
    for (int i = 0; i < NETNS_TABLES; i++) {
        if (!netns_read(netns_tables[i], &set->fresh[i])) {
            return false;
        }
    }
    return set->fresh[0].len > 0;
}

static bool netns_same(const struct netns_set *set) {
    struct buf text;
    bool same = true;
    buf_init(&text, NETNS_TEXT_MAX);
    for (int i = 0; i < NETNS_TABLES && same; i++) {
        const struct buf *fresh = &set->fresh[i];
        same = netns_read(netns_tables[i], &text) && text.len == fresh->len &&
               (text.len == 0 || memcmp(text.data, fresh->data, text.len) == 0);
    }
    buf_done(&text);
    return same;
}

/* A route of IPv4 that was looked up is kept, with the time of that, and may be asked for: no table
 * tells of it. After this, each is looked up anew. */
static bool netns_forget_routes(void) {
    return fd_write_kernel(AT_FDCWD, "/proc/sys/net/ipv4/route/flush", "1", 1, NULL) == 0;
}

int netns_adopt(struct netns_set *set, pid_t pid) {
    char path[64];
    if (set == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    fd_cleanup int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (!set->known) {
        if (netns_enter(fd, NULL) != 0) {
            return -1;
        }
        set->known = netns_learn(set);
        netns_leave(set);
    }
    return set->known ? fd_steal(&fd) : -1;
}

static bool netns_as_new(const struct netns_set *set, int fd) {
    if (!set->known || netns_enter(fd, NULL) != 0) {
        return false;
    }
    bool fine = netns_quiet() && netns_same(set) && netns_forget_routes();
    netns_leave(set);
    return fine;
}

static void netns_rest(struct netns_set *set) {
    if (loop_timer_at(set->loop, &set->rest, clock_mono_ns() + NETNS_REST_NS, netns_close_all, set,
                      NULL) != 0) {
        netns_close_all(set);
    }
}

void netns_give(struct netns_set *set, int *fd, bool told) {
    if (set != NULL && *fd >= 0 && !told && set->count < NETNS_KEPT && netns_as_new(set, *fd)) {
        set->fd[set->count++] = fd_steal(fd);
        netns_rest(set);
    }
    fd_close(fd);
}

int netns_take(struct netns_set *set) {
    if (set == NULL || set->count == 0) {
        return -1;
    }
    int fd = set->fd[--set->count]; /* first: without a timer the rest is closed */
    netns_rest(set);
    return fd;
}
