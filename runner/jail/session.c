#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "clock.h"
#include "jail.h"
#include "session_jail.h"
#include "str.h"

#define SESSION_STATE_NS (100 * CLOCK_NS_PER_MS)
#define SESSION_ROUND 64 /* requests in a row before other events get their turn */

static void session_event(void *arg, uint32_t events);

static void session_state_send(struct session *s);

/* Work for the end of the round: the news of the pool, and the session's own end. It is freed here
 * only, so that no caller further up finds it gone. */
static void session_deferred(void *arg) {
    struct session *s = arg;
    if (s->state_dirty) {
        s->state_dirty = false;
        session_state_send(s);
    }
    if (s->room) {
        s->room = false;
        session_admit_waiting(s);
    }
    if (s->closing && s->jails == NULL && !s->defer.pending) {
        session_out_done(&s->out);
        free(s);
    }
}

void session_free_if_done(struct session *s) {
    if (s->closing && s->jails == NULL) {
        loop_defer(s->cfg.loop, &s->defer, session_deferred, s);
    }
}

/* Ends the connection. Its jails die; the session itself goes with the last of them. */
static void session_close(struct session *s, const char *why) {
    if (s->closing) {
        return;
    }
    s->closing = true;
    loop_timer_stop(s->cfg.loop, &s->state_timer);
    loop_del(s->cfg.loop, &s->src);
    fd_close(&s->sock);
    for (struct session_jail **p = &s->jails; *p != NULL;) {
        struct session_jail *e = *p;
        session_wish_drop(e);
        if (e->jail != NULL) {
            jail_kill(e->jail);
            p = &e->next;
        } else if (e->waiting) {
            *p = e->next; /* it has nothing that could go */
            free(e);
        } else {
            p = &e->next; /* its sender is further up and frees it */
        }
    }
    s->wait_first = s->wait_last = NULL;
    s->cfg.closed(s->cfg.arg, why);
    session_free_if_done(s);
}

void session_send(struct session *s, const void *data, size_t size) {
    struct err err;
    if (s->closing) {
        return;
    }
    if (session_out_send(&s->out, s->sock, data, size, &err) != 0) {
        session_close(s, err.text);
        return;
    }
    if (s->out.head != NULL && !s->writing) {
        s->writing = true;
        (void)loop_mod(s->cfg.loop, &s->src, EPOLLIN | EPOLLOUT, NULL);
    }
}

static struct session_jail *session_find(struct session *s, uint64_t id) {
    for (struct session_jail *e = s->jails; e != NULL; e = e->next) {
        if (e->id == id) {
            return e;
        }
    }
    return NULL;
}

/* Limits of a policy as this host can give them: never more than its own hard limits. */
static struct limits session_ceiling(const struct session *s, const struct policy *p) {
    struct limits c = p->ceiling;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (c.v[i] > s->cfg.host_max->v[i]) {
            c.v[i] = s->cfg.host_max->v[i];
        }
    }
    return c;
}

static struct limits session_preset(const struct session *s, const struct policy *p) {
    struct limits ceiling = session_ceiling(s, p);
    struct limits preset = p->preset;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (preset.v[i] > ceiling.v[i]) {
            preset.v[i] = ceiling.v[i];
        }
    }
    return preset;
}

static int session_hello(struct session *s, struct err *err) {
    const struct policy_set *set = s->cfg.policies;
    if (s->greeted) {
        return err_set(err, ERR_PROTOCOL, 0, "a second HELLO");
    }
    s->greeted = true;
    struct wire_welcome welcome = {.shard = s->cfg.shard,
                                   .slots = s->cfg.slots,
                                   .policies = (uint32_t)set->count,
                                   .capabilities = s->cfg.capabilities};
    wire_head_init(&welcome.head, WIRE_WELCOME, sizeof welcome, 0, 0);
    session_send(s, &welcome, sizeof welcome);
    for (size_t i = 0; i < set->count && !s->closing; i++) {
        const struct policy *p = &set->items[i];
        size_t size = sizeof(struct wire_policy) + p->text_size;
        struct wire_policy *msg = calloc(1, size);
        if (msg == NULL) {
            return err_sys(err, "sending a policy");
        }
        wire_head_init(&msg->head, WIRE_POLICY, size, 0, 0);
        (void)str_copy(msg->name, sizeof msg->name, p->name);
        memcpy(msg->sha256, p->sha256, sizeof msg->sha256);
        msg->ceiling = session_ceiling(s, p);
        msg->preset = session_preset(s, p);
        msg->writable = p->writable;
        msg->network = p->network;
        msg->end_on = p->end_on;
        msg->max_steps = p->max_steps;
        msg->text_size = (uint32_t)p->text_size;
        memcpy(msg + 1, p->text, p->text_size);
        session_send(s, msg, size);
        free(msg);
    }
    for (uint32_t i = 0; i < s->cfg.capabilities && !s->closing; i++) {
        struct wire_capability msg = s->cfg.capability[i];
        wire_head_init(&msg.head, WIRE_CAPABILITY, sizeof msg, 0, 0);
        session_send(s, &msg, sizeof msg);
    }
    struct wire_ready ready;
    memset(&ready, 0, sizeof ready);
    wire_head_init(&ready.head, WIRE_READY, sizeof ready, 0, 0);
    session_send(s, &ready, sizeof ready);
    session_state_changed(s, true);
    return 0;
}

void session_room(struct session *s) {
    if (s->wait_first != NULL) {
        s->room = true;
        loop_defer(s->cfg.loop, &s->defer, session_deferred, s);
    }
}

static int session_open(struct session *s, const struct wire_open *q, struct err *err) {
    if (q->head.jail == 0 || session_find(s, q->head.jail) != NULL) {
        return err_set(err, ERR_PROTOCOL, 0, "OPEN of a jail that is open");
    }
    struct session_jail *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return err_sys(err, "opening a jail");
    }
    e->session = s;
    e->id = q->head.jail;
    e->opened_ns = clock_mono_ns();
    e->limits = q->limits;
    (void)str_copy(e->image, sizeof e->image, q->image);
    e->next = s->jails;
    s->jails = e;
    struct err why;
    e->policy = policy_find(s->cfg.policies, q->policy);
    if (e->policy == NULL) {
        session_send_failed(e, "policy", EINVAL, "there is no such policy");
        session_send_closed(e);
        return 0;
    }
    const struct limits ceiling = session_ceiling(s, e->policy);
    if (!str_is_name(q->image) || q->network != WIRE_NETWORK_NONE) {
        session_send_failed(e, "open", EINVAL, "the image or the network is not allowed");
        session_send_closed(e);
    } else if (limit_check(&q->limits, &ceiling, &why) != 0) {
        session_send_failed(e, "limits", EPERM, why.text);
        session_send_closed(e);
    } else {
        session_admit_or_wait(e);
    }
    return 0;
}

/* Limits of one step: within the policy, and within the run's where the run as a whole is limited.
 */
static int session_step_limits(const struct session_jail *e, const struct limits *wish,
                               struct err *err) {
    static const enum limit_id of_run[] = {LIMIT_MEM_BYTES, LIMIT_PIDS, LIMIT_CPUS_MILLI,
                                           LIMIT_DISK_BYTES, LIMIT_INODES};
    struct limits ceiling = session_ceiling(e->session, e->policy);
    for (size_t i = 0; i < sizeof of_run / sizeof of_run[0]; i++) {
        ceiling.v[of_run[i]] = e->limits.v[of_run[i]];
    }
    return limit_check(wish, &ceiling, err);
}

/* Output goes to pipes only: nothing else can be handed to a command as its stdout. */
static int session_check_fds(const struct wire_exec *q, const int *fds, size_t nfds,
                             struct err *err) {
    size_t i = 0;
    for (uint32_t bit = 1; bit <= WIRE_FD_BUNDLE && i < nfds; bit <<= 1) {
        struct stat st;
        if (!(q->fds & bit)) {
            continue;
        }
        if (fstat(fds[i++], &st) != 0) {
            return err_sys(err, "looking at a descriptor");
        }
        if (fcntl(fds[i - 1], F_GETFL) & O_PATH) {
            return err_set(err, ERR_PROTOCOL, 0, "a descriptor that cannot be used");
        }
        bool pipe = S_ISFIFO(st.st_mode);
        bool file = S_ISREG(st.st_mode);
        bool out = bit == WIRE_FD_STDOUT || bit == WIRE_FD_STDERR;
        if (out ? !pipe : bit == WIRE_FD_STDIN ? !(pipe || file) : !file) {
            return err_set(err, ERR_PROTOCOL, 0, "a descriptor of the wrong type");
        }
    }
    return 0;
}

/* Keeps the request until the jail is ready for it: from here on its descriptors are the entry's.
 */
static void session_wish_keep(struct session_jail *e, const struct wire_exec *q, const int *fds,
                              size_t nfds) {
    bool first = !e->limits_set;
    e->wish = (struct exec_request){
        .number = q->head.exec,
        .kind = q->kind,
        .fds = q->fds,
        .flags = q->flags,
        .end_on = q->end_on,
        .limits = q->limits,
        .collect_bytes = q->collect_bytes,
        .collect_files = q->collect_files,
        .spec_size = q->spec_size,
        .spec = e->spec,
        .fd = e->fd,
        .nfds = nfds,
        .received_ns = first ? e->opened_ns : clock_mono_ns(),
    };
    memcpy(e->fd, fds, nfds * sizeof *fds);
    e->busy = true;
    e->started = false;
    e->stopped = CAUSE_NONE;
}

static int session_exec(struct session *s, const struct wire_exec *q, int *fds, size_t nfds,
                        struct err *err) {
    struct session_jail *e = session_find(s, q->head.jail);
    if (e == NULL || e->failed) {
        session_fds_close(fds, nfds); /* it crossed our FAILED or CLOSED on the way */
        return 0;
    }
    if (e->busy) {
        return err_set(err, ERR_PROTOCOL, 0, "a second EXEC in a jail that is busy");
    }
    if (session_check_fds(q, fds, nfds, err) != 0 || session_step_limits(e, &q->limits, err) != 0) {
        return -1;
    }
    if (!(q->fds & WIRE_FD_SPEC)) {
        e->spec = malloc(q->spec_size + 1);
        if (e->spec == NULL) {
            return err_sys(err, "keeping a spec");
        }
        memcpy(e->spec, q + 1, q->spec_size);
    }
    session_wish_keep(e, q, fds, nfds);
    session_try(e);
    return 0;
}

static void session_kill(struct session *s, const struct wire_kill *q) {
    struct session_jail *e = session_find(s, q->head.jail);
    if (e == NULL || e->failed || !e->busy || e->wish.number != q->head.exec) {
        return; /* it ended meanwhile */
    }
    if (e->started) {
        jail_stop(e->jail, (enum cause)q->cause);
    } else {
        e->stopped = (enum cause)q->cause;
        session_end_early(e);
    }
}

static void session_close_jail(struct session *s, uint64_t id) {
    struct session_jail *e = session_find(s, id);
    if (e != NULL && e->jail != NULL) {
        jail_kill(e->jail);
    } else if (e != NULL && e->waiting) {
        session_wait_remove(s, e);
        session_send_closed(e);
    }
}

/* The requests that exist, and what may come when: HELLO once and first, then the rest. */
static int session_request(struct session *s, const char *packet, size_t size, int *fds,
                           size_t nfds, struct err *err) {
    const struct wire_head *head = (const struct wire_head *)(const void *)packet;
    if (wire_check_request(packet, size, nfds, err) != 0) {
        return -1;
    }
    if (!s->greeted && head->type != WIRE_HELLO) {
        return err_set(err, ERR_PROTOCOL, 0, "the first request must be HELLO");
    }
    switch (head->type) {
    case WIRE_HELLO:
        return session_hello(s, err);
    case WIRE_OPEN:
        return session_open(s, (const struct wire_open *)(const void *)packet, err);
    case WIRE_EXEC:
        return session_exec(s, (const struct wire_exec *)(const void *)packet, fds, nfds, err);
    case WIRE_KILL:
        session_kill(s, (const struct wire_kill *)(const void *)packet);
        return 0;
    case WIRE_CLOSE:
        session_close_jail(s, head->jail);
        return 0;
    default:
        return err_set(err, ERR_PROTOCOL, 0, "an unknown request");
    }
}

/* One datagram: a packet, or an OPEN with its first EXEC behind it. Descriptors belong to the last.
 */
static int session_datagram(struct session *s, size_t size, int *fds, size_t nfds,
                            struct err *err) {
    const struct wire_head *head = (const struct wire_head *)(const void *)s->packet;
    size_t first = sizeof(struct wire_open);
    if (size <= first || head->type != WIRE_OPEN || head->size != first) {
        return session_request(s, s->packet, size, fds, nfds, err);
    }
    if (session_request(s, s->packet, first, fds, 0, err) != 0) {
        return -1;
    }
    if (s->closing) {
        session_fds_close(fds, nfds);
        return 0;
    }
    return session_request(s, s->packet + first, size - first, fds, nfds, err);
}

/* 1 = one request was served, 0 = nothing more to read or the connection is over. */
static int session_read(struct session *s) {
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    struct err err;
    ssize_t n = fd_recv(s->sock, s->packet, sizeof s->packet, fds, &nfds, NULL, &err);
    if (n < 0 && err.code == EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        session_close(s, n == 0 ? "" : err.text);
        return 0;
    }
    if (session_datagram(s, (size_t)n, fds, nfds, &err) != 0) {
        session_fds_close(fds, nfds);
        session_close(s, err.text);
        return 0;
    }
    return s->closing ? 0 : 1;
}

static void session_event(void *arg, uint32_t events) {
    struct session *s = arg;
    struct err err;
    if (events & EPOLLOUT) {
        int rc = session_out_flush(&s->out, s->sock, &err);
        if (rc < 0) {
            session_close(s, err.text);
        } else if (rc > 0) {
            s->writing = false;
            (void)loop_mod(s->cfg.loop, &s->src, EPOLLIN, NULL);
        }
    }
    for (int i = 0; i < SESSION_ROUND && !s->closing && session_read(s) > 0; i++) {
    }
}

static void session_state_send(struct session *s) {
    struct pool_stats stats;
    s->state_sent_ns = clock_mono_ns();
    loop_timer_stop(s->cfg.loop, &s->state_timer);
    struct wire_state msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_STATE, sizeof msg, 0, 0);
    pool_stats(s->cfg.pool, &stats);
    msg.warm = stats.warm;
    msg.in_use = stats.in_use;
    msg.jails_made = stats.made;
    msg.jails_taken_warm = stats.taken_warm;
    (void)str_copy(msg.health, sizeof msg.health, stats.health);
    session_send(s, &msg, sizeof msg);
}

static void session_state_due(void *arg) {
    struct session *s = arg;
    s->state_dirty = true;
    loop_defer(s->cfg.loop, &s->defer, session_deferred, s);
}

/* At once when it is about health, else not more often than people look: each packet wakes the
 * server up, and the counts change with every jail. */
void session_state_changed(struct session *s, bool urgent) {
    uint64_t now = clock_mono_ns();
    if (!s->greeted || s->closing) {
        return;
    }
    if (urgent || now >= s->state_sent_ns + SESSION_STATE_NS) {
        session_state_due(s);
    } else if (s->state_timer.slot == 0) {
        (void)loop_timer_at(s->cfg.loop, &s->state_timer, s->state_sent_ns + SESSION_STATE_NS,
                            session_state_due, s, NULL);
    }
}

void session_end(struct session *s) {
    session_close(s, "");
}

struct session *session_new(int sock, const struct session_config *cfg, struct err *err) {
    struct session *s = calloc(1, sizeof *s);
    int size = 4 << 20;
    if (s == NULL) {
        (void)err_sys(err, "greeting a server");
        fd_close(&sock);
        return NULL;
    }
    s->cfg = *cfg;
    s->sock = sock;
    s->src.fd = -1;
    /* Room for every policy at once; the kernel caps it as the host is configured. */
    (void)setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    if (loop_add(cfg->loop, &s->src, sock, EPOLLIN, session_event, s, err) != 0) {
        fd_close(&sock);
        free(s);
        return NULL;
    }
    return s;
}
