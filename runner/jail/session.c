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
        loop_defer(s->cfg->loop, &s->defer, session_deferred, s);
    }
}

/* Ends the connection. The jails of runs die, sandboxes are held; the session itself goes with the
 * last jail that dies. */
static void session_close(struct session *s, const char *why) {
    if (s->closing) {
        return;
    }
    s->closing = true;
    loop_timer_stop(s->cfg->loop, &s->state_timer);
    loop_timer_stop(s->cfg->loop, &s->look_timer);
    loop_del(s->cfg->loop, &s->src);
    fd_hang_up(&s->sock);
    struct session_jail *next;
    for (struct session_jail *e = s->jails; e != NULL; e = next) {
        next = e->next;
        if (session_sandbox_hold(e)) {
            session_remove(s, e);
            e->session = NULL;
            e->next = s->cfg->hold->first;
            s->cfg->hold->first = e;
        } else if (e->jail != NULL) {
            session_kill_jail(e);
        } else if (e->waiting) {
            session_remove(s, e); /* it has nothing that could go */
            session_jail_free(e);
        } /* else: its sender is further up and frees it */
    }
    s->line = s->modest = (struct session_line){NULL, NULL};
    s->cfg->closed(s->cfg->arg, why);
    session_free_if_done(s);
}

void session_send_fds(struct session *s, const void *data, size_t size, const int *fds,
                      size_t nfds) {
    const struct session_message msg = {.data = data, .size = size, .fds = fds, .nfds = nfds};
    struct err err;
    if (s == NULL || s->closing) {
        return;
    }
    if (session_out_put(&s->out, s->sock, &msg, &err) != 0) {
        session_close(s, err.text);
        return;
    }
    if (s->out.head != NULL && !s->writing) {
        s->writing = true;
        (void)loop_mod(s->cfg->loop, &s->src, EPOLLIN | EPOLLOUT, NULL);
    }
}

void session_send(struct session *s, const void *data, size_t size) {
    session_send_fds(s, data, size, NULL, 0);
}

struct session_jail *session_find(const struct session *s, uint64_t id) {
    struct session_jail *e = s->bucket[id % SESSION_BUCKETS];
    while (e != NULL && e->id != id) {
        e = e->hash_next;
    }
    return e;
}

void session_add(struct session *s, struct session_jail *e) {
    struct session_jail **bucket = &s->bucket[e->id % SESSION_BUCKETS];
    e->hash_next = *bucket;
    *bucket = e;
    e->next = s->jails;
    s->jails = e;
    s->jail_count++;
}

void session_remove(struct session *s, struct session_jail *e) {
    struct session_jail **p = &s->bucket[e->id % SESSION_BUCKETS];
    while (*p != e) {
        p = &(*p)->hash_next;
    }
    *p = e->hash_next;
    s->jail_count--;
    session_list_remove(&s->jails, e);
}

void session_room(struct session *s) {
    if (s->line.first != NULL || s->modest.first != NULL) {
        s->room = true;
        loop_defer(s->cfg->loop, &s->defer, session_deferred, s);
    }
}

/* FREEZE, SNAPSHOT, RESTORE. */
static int session_control(struct session *s, const struct wire_head *head, struct err *err) {
    struct session_control wish = {.what = head->type};
    if (head->type == WIRE_FREEZE) {
        wish.frozen = ((const struct wire_freeze *)(const void *)head)->frozen;
    } else {
        const struct wire_key *q = (const struct wire_key *)(const void *)head;
        (void)str_copy(wish.key, sizeof wish.key, q->key);
    }
    return session_sandbox_ask(s, head->jail, &wish, err);
}

/* The requests that exist, and what may come when: HELLO once and first, then the rest. */
static int session_request(struct session *s, const char *packet, size_t size, int *fds,
                           size_t nfds, struct err *err) {
    const void *data = packet;
    const struct wire_head *head = data;
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
        return session_open(s, data, err);
    case WIRE_EXEC:
        return session_exec(s, data, fds, nfds, err);
    case WIRE_KILL:
        session_kill(s, data);
        return 0;
    case WIRE_CLOSE:
        session_close_jail(s, head->jail);
        return 0;
    case WIRE_SIGNAL:
        session_signal(s, data);
        return 0;
    case WIRE_FREEZE:
    case WIRE_SNAPSHOT:
    case WIRE_RESTORE:
        return session_control(s, head, err);
    case WIRE_DROP:
        session_sandbox_drop(s, data);
        return 0;
    case WIRE_ADOPT:
        return session_sandbox_adopt(s, data, err);
    case WIRE_LOOK:
        session_look(s, data);
        return 0;
    case WIRE_WEIGH:
        session_weigh(s, data);
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
        fd_drop(fds, nfds);
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
        fd_drop(fds, nfds);
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
            (void)loop_mod(s->cfg->loop, &s->src, EPOLLIN, NULL);
        }
    }
    for (int i = 0; i < SESSION_ROUND && !s->closing && session_read(s) > 0; i++) {
    }
}

static void session_state_send(struct session *s) {
    struct pool_stats stats;
    s->state_sent_ns = clock_mono_ns();
    loop_timer_stop(s->cfg->loop, &s->state_timer);
    struct wire_state msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_STATE, sizeof msg, 0, 0);
    pool_stats(s->cfg->pool, &stats);
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
    loop_defer(s->cfg->loop, &s->defer, session_deferred, s);
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
        (void)loop_timer_at(s->cfg->loop, &s->state_timer, s->state_sent_ns + SESSION_STATE_NS,
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
    s->cfg = cfg;
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
