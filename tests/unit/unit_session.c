/* Every order of what can happen to a jail and two executions in it: requests, starts, exits,
 * time-outs, cancels, the death of process 1, CLOSE, a server that hangs up and one that comes
 * back. The session, its jails and executions are the real ones; the kernel is played by
 * fake_process1.h, the pool and the server by this file. Whatever the order: to each server at most
 * one END for each execution, and exactly one in all unless the jail failed, was closed or died
 * with its server; its cause is what came first; exactly one CLOSED; nothing is left. */
#include "session.h"

#include <sys/epoll.h>

#include "fake_process1.h"
#include "layers.h"
#include "policy.h"
#include "pool.h"
#include "spec.h"

#define KEY "box"
#define WALL_MS 1000u
#define KEEP_NS (5 * CLOCK_NS_PER_S)
#define DEPTH 6
#define EXECS 2

enum event {
    EXEC_1,
    EXEC_2,
    START_1,
    EXIT_1,
    EXIT_2,
    KILL_1,
    KILL_2,
    TIMEOUT,
    DEATH,
    CLOSE,
    HANG_UP,
    RESTART,
    EVENTS
};

struct told {
    unsigned ends;  /* in all */
    unsigned here;  /* by this connection */
    uint32_t cause; /* the last one told */
    uint32_t first; /* what came first in truth; CAUSE_NONE = nothing yet */
    bool asked;
};

struct world {
    struct loop *loop;
    struct jail_host host;
    struct cgroup_host cgroups;
    struct policy policy;
    struct policy_set policies;
    struct session_config cfg;
    struct session_hold hold;
    struct session *session;
    int sock; /* the server's end; -1 = no server */
    bool sandbox, closed_by_us, hung_up, back, died;
    struct told exec[EXECS];
    unsigned failed, taken, released, sessions, overs;
    unsigned closed;                  /* told to this server */
    const struct jail_events *events; /* of the one jail that was taken */
};

static struct world w;
static unsigned sequences;

/* The pool: makes a jail when one is taken. */

int pool_take(struct pool *pool, const struct pool_wish *wish, const struct jail_events *events,
              void *arg, struct jail **jail, struct err *err) {
    static struct sock_filter insn;
    const struct seccomp_program bpf = {.insns = &insn, .len = 1};
    const struct jail_plan plan = {.template_ns = -1,
                                   .bpf = &bpf,
                                   .limits = wish->policy->ceiling,
                                   .ceiling = wish->policy->ceiling};
    (void)pool;
    *jail = jail_new(&w.host, &plan, events, arg, err);
    w.taken += *jail != NULL;
    return *jail != NULL ? 0 : -1;
}

void pool_settled(struct pool *pool, struct jail *jail) {
    (void)pool;
    (void)jail;
}

void pool_release(struct pool *pool, struct jail *jail) {
    (void)pool;
    w.released++;
    jail_free(jail);
}

void pool_began(struct pool *pool) {
    (void)pool;
}

void pool_ended(struct pool *pool) {
    (void)pool;
}

void pool_stats(const struct pool *pool, struct pool_stats *out) {
    (void)pool;
    *out = (struct pool_stats){.health = ""};
}

void pool_kinds(const struct pool *pool,
                void (*fn)(void *arg, const char *policy, const char *image, uint32_t warm),
                void *arg) {
    (void)pool, (void)fn, (void)arg;
}

/* Layers: there are none. */

bool layers_find(const struct layers *layers, const char *key, uint64_t *bytes, uint64_t *files) {
    (void)layers, (void)key, (void)bytes, (void)files;
    return false;
}

void layers_each(const struct layers *layers,
                 void (*fn)(void *arg, const char *key, uint64_t bytes, uint64_t files),
                 void *arg) {
    (void)layers, (void)fn, (void)arg;
}

void layers_drop(struct layers *layers, const char *key) {
    (void)layers, (void)key;
}

void layers_close(struct layers_volume *v) {
    assert_null(v);
}

struct layers_volume *layers_open(struct layers *layers, const struct layers_jail *jail,
                                  struct err *err) {
    (void)layers, (void)jail;
    err_set(err, ERR_STATE, 0, "there are no layers");
    return NULL;
}

void layers_prepare(struct layers_volume *v, enum wire_disk disk, const char *from,
                    layers_done *done, void *arg) {
    (void)v, (void)disk, (void)from, (void)done, (void)arg;
}

void layers_snapshot(struct layers_volume *v, const char *key, bool quiet, layers_done *done,
                     void *arg) {
    (void)v, (void)key, (void)quiet, (void)done, (void)arg;
}

void layers_restore(struct layers_volume *v, const char *key, layers_done *done, void *arg) {
    (void)v, (void)key, (void)done, (void)arg;
}

bool layers_broken(const struct layers_volume *v) {
    (void)v;
    return false;
}

int layers_upper(const struct layers_volume *v, struct err *err) {
    (void)v;
    return err_set(err, ERR_STATE, 0, "there are no layers");
}

int layers_use(const struct layers_volume *v, uint64_t *bytes, uint64_t *inodes, bool *full) {
    (void)v, (void)bytes, (void)inodes, (void)full;
    return -1;
}

/* The server. */

static void over(void *arg, const char *why) {
    (void)arg;
    w.overs++;
    w.session = NULL;
    if (why[0] != '\0' && strstr(why, "reset") == NULL)
        fail_msg("the session ended: %s", why);
}

static void connects(void) {
    struct err err = {0};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                     0);
    w.sock = pair[0];
    w.session = session_new(pair[1], &w.cfg, &err);
    assert_non_null(w.session);
    w.sessions++;
    w.closed = 0;
    for (int i = 0; i < EXECS; i++)
        w.exec[i].here = 0;
}

static void sends_fds(void *packet, enum wire_type type, size_t size, uint32_t exec, const int *fds,
                      size_t nfds) {
    struct wire_head *head = packet;
    wire_head_init(head, type, size, type == WIRE_HELLO ? 0 : 1, exec);
    assert_int_equal(fd_send(w.sock, packet, size, fds, nfds, NULL), 0);
}

static void sends(void *packet, enum wire_type type, size_t size, uint32_t exec) {
    sends_fds(packet, type, size, exec, NULL, 0);
}

static void says_hello(void) {
    struct wire_hello hello;
    memset(&hello, 0, sizeof(hello));
    sends(&hello, WIRE_HELLO, sizeof(hello), 0);
}

static void opens(void) {
    struct wire_open q;
    memset(&q, 0, sizeof(q));
    snprintf(q.policy, sizeof(q.policy), "default");
    snprintf(q.image, sizeof(q.image), "host");
    q.limits = w.policy.ceiling;
    if (w.sandbox) {
        q.flags = WIRE_OPEN_SANDBOX;
        snprintf(q.key, sizeof(q.key), KEY);
    }
    sends(&q, WIRE_OPEN, sizeof(q), 0);
}

static void adopts(void) {
    struct wire_key q;
    memset(&q, 0, sizeof(q));
    snprintf(q.key, sizeof(q.key), KEY);
    sends(&q, WIRE_ADOPT, sizeof(q), 0);
}

static void execs(uint32_t number) {
    static const char *const argv[] = {"/bin/true"}, *const env[] = {"A=b"};
    _Alignas(8) char packet[sizeof(struct wire_exec) + 256];
    struct wire_exec *q = (struct wire_exec *)(void *)packet;
    struct buf spec;
    struct err err = {0};
    memset(packet, 0, sizeof(packet));
    buf_init(&spec, 256);
    unit_works(spec_encode("/workspace", argv, 1, env, 1, &spec, &err), err);
    *q = (struct wire_exec){.kind = WIRE_EXEC_COMMAND,
                            .fds = WIRE_FD_STDOUT | (w.sandbox ? WIRE_FD_KEEP_STDOUT : 0),
                            .flags = number == 1 && !w.sandbox ? WIRE_EXEC_MORE : 0,
                            .limits = w.policy.ceiling,
                            .spec_size = (uint32_t)spec.len};
    memcpy(packet + sizeof(*q), spec.data, spec.len);
    int out[2], fds[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    fds[0] = out[1];
    fds[1] = out[0];
    sends_fds(packet, WIRE_EXEC, sizeof(*q) + spec.len, number, fds, w.sandbox ? 2 : 1);
    fd_close(&out[0]);
    fd_close(&out[1]);
    buf_done(&spec);
    w.exec[number - 1].asked = true;
}

static void hears(const struct wire_head *head) {
    const struct wire_end *end = (const struct wire_end *)(const void *)head;
    struct told *t = head->exec >= 1 && head->exec <= EXECS ? &w.exec[head->exec - 1] : NULL;
    switch (head->type) {
    case WIRE_END:
        assert_true(t != NULL && t->asked);
        assert_true(t->ends == 0 || t->cause == end->cause);
        t->ends++;
        t->here++;
        t->cause = end->cause;
        assert_true(t->here == 1 && w.closed == 0);
        break;
    case WIRE_FAILED:
        w.failed++;
        break;
    case WIRE_CLOSED:
        w.closed++;
        break;
    default:
        break;
    }
}

/* All that follows from what has happened, without time going by. */
static void follows(void) {
    _Alignas(8) char packet[131072];
    struct err err = {0};
    int quiet = 0;
    while (quiet < 3) {
        bool some = fake_works();
        assert_int_equal(loop_once(w.loop, 0, &err), 0);
        for (;;) {
            int fds[FD_PASS_MAX];
            size_t nfds = 0;
            ssize_t n =
                w.sock < 0 ? -1 : fd_recv(w.sock, packet, sizeof(packet), fds, &nfds, NULL, NULL);
            if (n < (ssize_t)sizeof(struct wire_head))
                break;
            unit_works(wire_check_reply(packet, (size_t)n, nfds, &err), err);
            hears((const struct wire_head *)(const void *)packet);
            for (size_t i = 0; i < nfds; i++)
                fd_close(&fds[i]);
            some = true;
        }
        quiet = some ? 0 : quiet + 1;
    }
}

static void passes(uint64_t ns) {
    fake.now_ns += ns;
    follows();
}

/* What happens. */

static void comes_first(unsigned i, enum cause cause) {
    if (w.exec[i].first == CAUSE_NONE)
        w.exec[i].first = cause;
}

/* Which execution a running child is: they start in the order in which they were asked for. */
static int number_of(const struct fake_child *c) {
    int n = 0;
    for (unsigned i = 0; i < fake.jail.children; i++) {
        const struct fake_child *one = &fake.jail.child[i];
        if (one == c)
            break;
        n += one->running;
    }
    /* Those that were cancelled before they ran never get a child. */
    for (int i = 0; i < EXECS; i++) {
        bool never = !w.exec[i].asked ||
                     (w.exec[i].first == CAUSE_CANCELLED && w.exec[i].cause == CAUSE_CANCELLED &&
                      w.exec[i].ends > 0 && fake_running(0) == c);
        if (never)
            continue;
        if (n-- == 0)
            return i;
    }
    return -1;
}

static bool possible(enum event e) {
    bool server = w.sock >= 0;
    switch (e) {
    case EXEC_1:
        return server && !w.closed_by_us && !w.exec[0].asked;
    case EXEC_2: /* in a run, one after the other */
        return server && !w.closed_by_us && !w.exec[1].asked && w.exec[0].asked &&
               (w.sandbox || w.exec[0].ends > 0);
    case START_1:
    case EXIT_1:
        return fake_running(0) != NULL;
    case EXIT_2:
        return fake_running(1) != NULL;
    case KILL_1:
    case KILL_2:
        return server && !w.closed_by_us && w.exec[e - KILL_1].asked;
    case TIMEOUT:
        return fake_running(0) != NULL;
    case DEATH:
        return !fake.jail.dead;
    case CLOSE:
        return server && !w.closed_by_us;
    case HANG_UP:
        return server && !w.hung_up;
    default:
        return !server && w.sandbox && !w.back;
    }
}

static void exits(unsigned nth) {
    struct fake_child *c = fake_running(nth);
    int i = number_of(c);
    fake_starts(c);
    if (i >= 0)
        comes_first((unsigned)i, CAUSE_EXIT);
    fake_ends(c, 0);
}

static void kills(uint32_t number) {
    struct wire_kill q;
    memset(&q, 0, sizeof(q));
    q.cause = CAUSE_CANCELLED;
    sends(&q, WIRE_KILL, sizeof(q), number);
    if (w.exec[number - 1].ends == 0)
        comes_first(number - 1, CAUSE_CANCELLED);
}

static void times_out(void) {
    struct fake_child *c;
    for (unsigned n = 0; (c = fake_running(n)) != NULL; n++)
        fake_starts(c);
    follows();
    for (int i = 0; i < EXECS; i++)
        if (w.exec[i].asked && w.exec[i].ends == 0)
            comes_first((unsigned)i, CAUSE_WALL_TIME);
    passes((WALL_MS + 1) * CLOCK_NS_PER_MS);
}

static void happens(enum event e) {
    struct wire_close q;
    fake.now_ns += CLOCK_NS_PER_MS;
    switch (e) {
    case EXEC_1:
    case EXEC_2:
        execs((uint32_t)(e - EXEC_1) + 1);
        break;
    case START_1:
        fake_starts(fake_running(0));
        break;
    case EXIT_1:
    case EXIT_2:
        exits((unsigned)(e - EXIT_1));
        break;
    case KILL_1:
    case KILL_2:
        kills((uint32_t)(e - KILL_1) + 1);
        break;
    case TIMEOUT:
        times_out();
        break;
    case DEATH:
        w.died = true;
        fake_dies();
        break;
    case CLOSE:
        memset(&q, 0, sizeof(q));
        w.closed_by_us = true;
        sends(&q, WIRE_CLOSE, sizeof(q), 0);
        break;
    case HANG_UP:
        w.hung_up = true;
        fd_close(&w.sock);
        break;
    default:
        w.back = true;
        connects();
        says_hello();
        adopts();
        break;
    }
    follows();
}

static void begins(bool sandbox) {
    struct loop *loop = w.loop;
    memset(&w, 0, sizeof(w));
    memset(&fake, 0, sizeof(fake));
    fake.now_ns = 1000 * CLOCK_NS_PER_S;
    fake.jail.dead = true;
    w.loop = loop;
    w.sandbox = sandbox;
    w.cgroups.pids_peak = true;
    w.host = (struct jail_host){.maker = &jail_native,
                                .loop = loop,
                                .cgroups = &w.cgroups,
                                .init_fd = -1,
                                .home_ns = -1,
                                .cpus = 2};
    snprintf(w.policy.name, sizeof(w.policy.name), "default");
    for (int i = 0; i < LIMIT_COUNT; i++)
        w.policy.ceiling.v[i] = limit_info((enum limit_id)i)->max;
    w.policy.ceiling.v[LIMIT_WALL_MS] = WALL_MS;
    w.policy.preset = w.policy.ceiling;
    w.policy.writable = WIRE_WRITABLE_ALL;
    w.policy.max_steps = 8;
    w.policy.backends = BACKEND_BIT(BACKEND_NATIVE);
    w.policy.backend = BACKEND_NATIVE;
    w.policies = (struct policy_set){.items = &w.policy, .count = 1};
    w.hold.keep_ns = KEEP_NS;
    w.cfg = (struct session_config){.loop = loop,
                                    .hold = &w.hold,
                                    .policies = &w.policies,
                                    .host_max = &w.policy.ceiling,
                                    .backend = BACKEND_NATIVE,
                                    .slots = 4,
                                    .sandboxes = 4,
                                    .closed = over};
    connects();
    says_hello();
    opens();
    follows();
}

static const char *told(const enum event *order, size_t count) {
    static const char *const names[EVENTS] = {"exec 1", "exec 2",   "start",    "exit",
                                              "exit 2", "cancel 1", "cancel 2", "timeout",
                                              "death",  "close",    "hang-up",  "restart"};
    static char text[256];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s: ", w.sandbox ? "sandbox" : "run");
    for (size_t i = 0; i < count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s, ", names[order[i]]);
    return text;
}

/* Everything comes to its end: commands by their limit, the jail by CLOSE or for want of a server.
 */
static void ends(void) {
    for (int i = 0; i < EXECS + 1 && fake_running(0) != NULL; i++)
        times_out();
    passes(CLOCK_NS_PER_S);
}

static void goes(void) {
    if (w.sock >= 0 && !w.closed_by_us)
        happens(CLOSE);
    passes(2 * KEEP_NS);
    passes(CLOCK_NS_PER_S);
}

static void check_ends(const char *how) {
    bool whole =
        !w.died && w.failed == 0 && !w.closed_by_us && w.sock >= 0 && (w.sandbox || !w.hung_up);
    for (int i = 0; i < EXECS; i++) {
        const struct told *t = &w.exec[i];
        if (whole && t->asked && t->ends == 0)
            fail_msg("%s: execution %d has no END", how, i + 1);
        if (!w.hung_up && t->ends > 1)
            fail_msg("%s: execution %d has %u ENDs", how, i + 1, t->ends);
        if (t->ends > 0 && t->first != CAUSE_NONE && t->cause != t->first)
            fail_msg("%s: execution %d ended by %s, first was %s", how, i + 1, cause_name(t->cause),
                     cause_name(t->first));
    }
}

static void check_gone(const char *how) {
    if (w.failed > 1 || w.taken != w.released || w.hold.first != NULL)
        fail_msg("%s: %u FAILED, %u jails taken, %u given back", how, w.failed, w.taken,
                 w.released);
    if (w.sock >= 0 && w.closed != 1)
        fail_msg("%s: %u CLOSED", how, w.closed);
    if (fake.made != fake.gone)
        fail_msg("%s: %u groups made, %u removed", how, fake.made, fake.gone);
    assert_true(fake.jail.dead);
}

static unsigned descriptors(void) {
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static bool play(const enum event *order, size_t count, bool sandbox) {
    unsigned before = descriptors();
    bool can = true;
    begins(sandbox);
    for (size_t i = 0; i < count && can; i++) {
        can = possible(order[i]);
        if (can)
            happens(order[i]);
    }
    if (can) {
        ends();
        check_ends(told(order, count));
    }
    goes();
    if (can)
        check_gone(told(order, count));
    fd_close(&w.sock);
    follows();
    assert_int_equal(w.overs, w.sessions);
    fd_close(&fake.jail.control);
    fd_close(&fake.jail.death);
    if (descriptors() != before)
        fail_msg("%s: %u descriptors, %u before", told(order, count), descriptors(), before);
    return can;
}

static void orders(enum event *order, size_t count, size_t depth, bool sandbox) {
    if (count > 0 && !play(order, count, sandbox))
        return;
    sequences++;
    for (int e = 0; e < EVENTS && count < depth; e++) {
        order[count] = (enum event)e;
        orders(order, count + 1, depth, sandbox);
    }
}

static void test_every_order(void **state) {
    enum event order[DEPTH];
    struct err err = {0};
    bool sandbox = *(bool *)*state;
    sequences = 0;
    w.loop = loop_new(&err);
    assert_non_null(w.loop);
    orders(order, 0, DEPTH, sandbox);
    print_message("# %u orders\n", sequences);
    assert_true(sequences > 500);
    loop_free(w.loop);
}

int main(void) {
    static bool run = false, sandbox = true;
    const struct CMUnitTest tests[] = {
        {"every order in the jail of a run", test_every_order, NULL, NULL, &run},
        {"every order in a sandbox", test_every_order, NULL, NULL, &sandbox},
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
