/* A session without a kernel, a pool and layers: its jails and executions are the real ones, the
 * kernel is played by fake_process1.h, the rest and the server by this file. For one file of a
 * program: it defines the functions of pool.h and layers.h as well. */
#pragma once

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
#define EXECS 2

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
    unsigned closed, seen;            /* told to this server */
    const struct jail_events *events; /* of the one jail that was taken */
};

static struct world w;

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
    if (why[0] != '\0' && strstr(why, "reset") == NULL && strstr(why, "Broken pipe") == NULL)
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
    w.closed = w.seen = 0;
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
    case WIRE_SEEN:
        w.seen++;
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
