#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "unit.h"

enum { DEADLINE_MS = 10000 };

static struct loop *loop;
static struct netns_set *set;

/* What is done in a namespace, by a child that then ends, or stays when it returns 1. */
typedef int act_fn(int outside);

static struct sockaddr_in v4(const char *text, in_port_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, text, &a.sin_addr), 1);
    return a;
}

static struct sockaddr_in6 v6(const char *text, in_port_t port) {
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET6, text, &a.sin6_addr), 1);
    return a;
}

static int refused(int family, int type, const struct sockaddr *to, socklen_t len, int code) {
    fd_cleanup int fd = socket(family, type, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, to, len), -1);
    assert_int_equal(errno, code);
    return 0;
}

static int nothing(int outside) {
    (void)outside;
    return 0;
}

/* Their names end with them, also one that nobody accepted on. */
static int of_unix(int outside) {
    (void)outside;
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0here"};
    fd_cleanup int one = socket(AF_UNIX, SOCK_STREAM, 0), two = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(one, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(one, 5), 0);
    assert_int_equal(connect(two, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(write(two, "x", 1), 1);
    return 0;
}

static int tcp_of_no_use(int outside) {
    (void)outside;
    struct sockaddr_in any = v4("127.0.0.1", 7777);
    fd_cleanup int one = socket(AF_INET, SOCK_STREAM, 0), two = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(bind(one, (struct sockaddr *)&any, sizeof(any)), 0);
    return two >= 0 ? 0 : -1;
}

static int one_stays(int outside) {
    (void)outside;
    return socket(AF_UNIX, SOCK_DGRAM, 0) >= 0 ? 1 : -1;
}

/* Held by no process, only by a message that nobody has read. */
static int one_travels(int outside) {
    fd_cleanup int mine = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(fd_send(outside, "x", 1, &mine, 1, NULL), 0);
    return 0;
}

static int tcp_refused(int outside) {
    (void)outside;
    struct sockaddr_in a = v4("127.0.0.1", 9);
    return refused(AF_INET, SOCK_STREAM, (struct sockaddr *)&a, sizeof(a), ECONNREFUSED);
}

static int tcp6_refused(int outside) {
    (void)outside;
    struct sockaddr_in6 a = v6("::1", 9);
    return refused(AF_INET6, SOCK_STREAM, (struct sockaddr *)&a, sizeof(a), ECONNREFUSED);
}

static int no_route(int outside) {
    (void)outside;
    struct sockaddr_in a = v4("192.0.2.1", 9);
    return refused(AF_INET, SOCK_STREAM, (struct sockaddr *)&a, sizeof(a), ENETUNREACH);
}

static int no_route6(int outside) {
    (void)outside;
    struct sockaddr_in6 a = v6("2001:db8::1", 9);
    return refused(AF_INET6, SOCK_STREAM, (struct sockaddr *)&a, sizeof(a), ENETUNREACH);
}

static int tcp_spoke(int outside) {
    (void)outside;
    struct sockaddr_in a = v4("127.0.0.1", 7777);
    fd_cleanup int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(l, 5), 0);
    assert_int_equal(connect(c, (struct sockaddr *)&a, sizeof(a)), 0);
    return 0;
}

static int udp_sent(int outside) {
    (void)outside;
    struct sockaddr_in a = v4("127.0.0.1", 9);
    fd_cleanup int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)), 1);
    return 0;
}

static int udp6_sent(int outside) {
    (void)outside;
    struct sockaddr_in6 a = v6("::1", 9);
    fd_cleanup int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)), 1);
    return 0;
}

/* A connection that waits for its first bytes before it sends anything: there is a route already.
 */
static int waits(int family, const struct sockaddr *to, socklen_t len, bool aborted) {
    const struct linger none = {.l_onoff = aborted};
    int on = 1;
    fd_cleanup int fd = socket(family, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on)), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof(on)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(connect(fd, to, len), 0);
    return 0;
}

/* The kernel counts that it was aborted, and nothing else. */
static int tcp_aborted(int outside) {
    (void)outside;
    struct sockaddr_in a = v4("127.0.0.1", 9);
    return waits(AF_INET, (struct sockaddr *)&a, sizeof(a), true);
}

static int tcp6_routed(int outside) {
    (void)outside;
    struct sockaddr_in6 a = v6("::1", 9);
    return waits(AF_INET6, (struct sockaddr *)&a, sizeof(a), false);
}

/* Refused without a trace in any counter; but the route was looked up. */
static int tcp_routed(int outside) {
    (void)outside;
    struct sockaddr_in a = v4("127.255.255.255", 9);
    return refused(AF_INET, SOCK_STREAM, (struct sockaddr *)&a, sizeof(a), ENETUNREACH);
}

/* Kernels that count each look-up, also of an address to bind to. */
static bool counts_looks(void) {
    char text[4096] = "";
    fd_cleanup int fd = open("/proc/net/fib_triestat", O_RDONLY | O_CLOEXEC);
    return read(fd, text, sizeof(text) - 1) > 0 && strstr(text, "gets") != NULL;
}

static void lo_up(void) {
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    fd_cleanup int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &req), 0);
}

struct resident {
    pid_t pid;
    int sock; /* the child's end of it is its `outside` */
};

static void wait_word(int fd) {
    char c;
    assert_int_equal(TEMP_FAILURE_RETRY(read(fd, &c, 1)), 1);
}

/* A child in a namespace of its own, or in `fd`, with lo up. */
static struct resident settle(int fd, act_fn *act) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    struct resident r = {.pid = fork(), .sock = pair[0]};
    assert_true(r.pid >= 0);
    if (r.pid == 0) {
        (void)close(pair[0]);
        (void)alarm(30);
        if ((fd >= 0 ? setns(fd, CLONE_NEWNET) : unshare(CLONE_NEWNET)) != 0)
            _exit(2);
        if (fd < 0)
            lo_up();
        (void)!write(pair[1], "1", 1);
        wait_word(pair[1]);
        int rc = act(pair[1]);
        (void)!write(pair[1], rc >= 0 ? "2" : "", 1);
        while (rc == 1)
            (void)pause();
        _exit(0);
    }
    (void)close(pair[1]);
    wait_word(r.sock);
    return r;
}

static void acts(const struct resident *r, act_fn *act) {
    char c;
    struct pollfd p = {.fd = r->sock, .events = POLLIN};
    assert_int_equal(write(r->sock, "g", 1), 1);
    assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
    /* What travels stays in the queue. */
    assert_true(act == one_travels || (read(r->sock, &c, 1) == 1 && c == '2'));
    if (act != one_stays)
        assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
}

static void leaves(struct resident *r, act_fn *act) {
    if (act == one_stays) {
        (void)kill(r->pid, SIGKILL);
        assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
    }
    fd_close(&r->sock);
}

/* Is a namespace kept in which this was done? */
static bool kept(act_fn *act, bool told) {
    struct resident r = settle(-1, act);
    int fd = netns_adopt(set, r.pid);
    assert_true(fd >= 0);
    acts(&r, act);
    netns_give(set, &fd, told);
    assert_int_equal(fd, -1);
    leaves(&r, act);
    fd = netns_take(set);
    bool there = fd >= 0;
    fd_close(&fd);
    return there;
}

/* In a container /proc/sys may be read-only: then none is ever kept. */
static bool writable(void) {
    return access("/proc/sys/net/ipv4/route/flush", W_OK) == 0;
}

static void needs_writable(void) {
    if (!writable()) {
        print_message("# SKIP /proc/sys/net cannot be written here, so no namespace is kept\n");
        skip();
    }
}

static int begin(void **state) {
    (void)state;
    struct err err;
    loop = loop_new(&err);
    set = netns_new(loop);
    return loop != NULL && set != NULL && (!writable() || kept(nothing, false)) ? 0 : -1;
}

static int finish(void **state) {
    (void)state;
    netns_free(set);
    loop_free(loop);
    return 0;
}

static void test_untouched_kept(void **state) {
    (void)state;
    needs_writable();
    assert_true(kept(nothing, false));
    assert_true(kept(of_unix, false));
    assert_true(kept(tcp_of_no_use, false) == !counts_looks());
}

static void test_told_closed(void **state) {
    (void)state;
    assert_false(kept(nothing, true));
}

static void test_touched_closed(void **state) {
    (void)state;
    const struct {
        const char *name; /* NULL: not on this kernel */
        act_fn *act;
    } table[] = {
        {"a socket that a process has", one_stays},
        {"a socket in a message", one_travels},
        {"TCP, refused", tcp_refused},
        {"TCP over IPv6, refused", tcp6_refused},
        {"no route", no_route},
        {"no route for IPv6", no_route6},
        {"a connection", tcp_spoke},
        {"a connection that sent nothing", tcp_aborted},
        {"its route, of IPv6", tcp6_routed},
        {counts_looks() ? "the look for a route" : NULL, tcp_routed},
        {"a datagram", udp_sent},
        {"a datagram of IPv6", udp6_sent},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        if (table[i].name != NULL && kept(table[i].act, false))
            fail_msg("%s: its namespace was kept", table[i].name);
    }
}

/* The same namespace, by its inode, and what the second does in it counts too. */
static void test_second_user(void **state) {
    (void)state;
    needs_writable();
    struct stat a, b;
    struct resident r = settle(-1, of_unix);
    int fd = netns_adopt(set, r.pid);
    assert_int_equal(fstat(fd, &a), 0);
    acts(&r, of_unix);
    leaves(&r, of_unix);
    netns_give(set, &fd, false);
    fd = netns_take(set);
    assert_int_equal(fstat(fd, &b), 0);
    assert_true(a.st_ino == b.st_ino);
    r = settle(fd, udp_sent);
    acts(&r, udp_sent);
    leaves(&r, udp_sent);
    netns_give(set, &fd, false);
    assert_int_equal(netns_take(set), -1);
}

/* How old is the route that the kernel has for 127.255.255.255, in hundredths of a second? In the
 * namespace of the caller, on its processor. */
static int route_age(void) {
    struct {
        struct nlmsghdr head;
        struct rtmsg msg;
        struct rtattr to;
        in_addr_t address;
    } ask = {.head = {.nlmsg_len = sizeof(ask), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = 1},
             .msg = {.rtm_family = AF_INET, .rtm_dst_len = 32},
             .to = {.rta_len = RTA_LENGTH(sizeof(in_addr_t)), .rta_type = RTA_DST},
             .address = v4("127.255.255.255", 0).sin_addr.s_addr};
    _Alignas(8) char answer[4096];
    const struct nlmsghdr *head = (const struct nlmsghdr *)(const void *)answer;
    fd_cleanup int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    assert_int_equal(send(fd, &ask, sizeof(ask), 0), sizeof(ask));
    ssize_t n = recv(fd, answer, sizeof(answer), 0);
    assert_true(n > 0 && head->nlmsg_type == RTM_NEWROUTE);
    size_t at = NLMSG_SPACE(sizeof(struct rtmsg));
    while (at + RTA_SPACE(sizeof(struct rta_cacheinfo)) <= (size_t)n) {
        const struct rtattr *a = (const struct rtattr *)(const void *)(answer + at);
        if (a->rta_type == RTA_CACHEINFO)
            return (int)((const struct rta_cacheinfo *)RTA_DATA(a))->rta_lastuse;
        at += RTA_ALIGN(a->rta_len);
    }
    return -1;
}

/* Is it one that the namespace has not had for 50 ms, but looked up now? */
static int route_is_young(int outside) {
    (void)outside;
    int age = route_age();
    return age >= 0 && age < 5 ? 0 : -1;
}

static int route_is_old(int outside) {
    return route_is_young(outside) == 0 ? -1 : 0;
}

/* -> what was found in it by the second. All on one processor: each has routes of its own. */
static char routed_before(bool given) {
    char found = 0;
    struct resident r = settle(-1, tcp_routed);
    int fd = netns_adopt(set, r.pid);
    acts(&r, tcp_routed);
    leaves(&r, tcp_routed);
    uint64_t until = clock_mono_ns() + 100 * CLOCK_NS_PER_MS;
    while (clock_mono_ns() < until)
        (void)poll(NULL, 0, 10); /* the route grows older */
    if (given) {
        netns_give(set, &fd, false);
        fd = netns_take(set);
    }
    assert_true(fd >= 0);
    act_fn *look = given ? route_is_young : route_is_old;
    r = settle(fd, look);
    assert_int_equal(write(r.sock, "g", 1), 1);
    ssize_t n = read(r.sock, &found, 1);
    assert_int_equal(waitpid(r.pid, NULL, 0), r.pid);
    leaves(&r, look);
    fd_close(&fd);
    return n == 1 ? found : 0;
}

static void test_routes_forgotten(void **state) {
    (void)state;
    needs_writable();
    cpu_set_t one, all;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(routed_before(false), '2');
    if (!counts_looks()) /* where it is kept */
        assert_int_equal(routed_before(true), '2');
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* Where the kernel cannot be made to forget routes, none is kept. */
static void test_unforgotten_closed(void **state) {
    (void)state;
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        bool hidden = unshare(CLONE_NEWNS) == 0 &&
                      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                      mount("none", "/proc/sys", "tmpfs", 0, NULL) == 0;
        _exit(!hidden ? 2 : kept(nothing, false) ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_rest_closes(void **state) {
    (void)state;
    needs_writable();
    struct err err = {0};
    struct netns_set *own = netns_new(loop); /* no timer of what was before */
    struct resident r = settle(-1, nothing);
    int fd = netns_adopt(own, r.pid), number = fd;
    acts(&r, nothing);
    leaves(&r, nothing);
    netns_give(own, &fd, false);
    assert_true(fcntl(number, F_GETFD) >= 0);
    uint64_t until = clock_mono_ns() + DEADLINE_MS * CLOCK_NS_PER_MS;
    while (fcntl(number, F_GETFD) >= 0 && clock_mono_ns() < until)
        unit_works(loop_once(loop, 50 * CLOCK_NS_PER_MS, &err), err);
    assert_true(fcntl(number, F_GETFD) < 0);
    assert_int_equal(netns_take(own), -1);
    netns_free(own);
}

static void test_stays_home(void **state) {
    (void)state;
    needs_writable();
    struct stat a, b;
    assert_int_equal(stat("/proc/thread-self/ns/net", &a), 0);
    assert_true(kept(nothing, false));
    assert_int_equal(stat("/proc/thread-self/ns/net", &b), 0);
    assert_true(a.st_ino == b.st_ino);
}

/* As a rootless runner: root of a user namespace, in the network of the host. */
static void test_rootless_has_none(void **state) {
    (void)state;
    pid_t pid = fork();
    int status = -1;
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) != 0 ? 2 : netns_new(loop) == NULL ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_without_a_set(void **state) {
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(netns_take(NULL), -1);
    assert_int_equal(netns_adopt(NULL, getpid()), -1);
    netns_give(NULL, &fd, false);
    assert_int_equal(fd, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_untouched_kept),     cmocka_unit_test(test_told_closed),
        cmocka_unit_test(test_touched_closed),     cmocka_unit_test(test_routes_forgotten),
        cmocka_unit_test(test_unforgotten_closed), cmocka_unit_test(test_second_user),
        cmocka_unit_test(test_rest_closes),        cmocka_unit_test(test_stays_home),
        cmocka_unit_test(test_rootless_has_none),  cmocka_unit_test(test_without_a_set),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
