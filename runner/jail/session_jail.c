#include "session_jail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "str.h"

void session_fds_close(int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fd_close(&fds[i]);
    }
}

void session_wish_drop(struct session_jail *e) {
    free(e->spec);
    e->spec = NULL;
    session_fds_close(e->fd, e->wish.nfds);
    e->wish.nfds = 0;
}

/* Nothing runs any more: by its end, by a failure, or because the jail was killed. */
static void session_stopped(struct session_jail *e) {
    e->busy = false;
    if (e->started) {
        e->started = false;
        pool_ended(e->session->cfg.pool);
    }
}

void session_send_failed(struct session_jail *e, const char *stage, int code, const char *text) {
    struct wire_failed msg = {.code = code};
    wire_head_init(&msg.head, WIRE_FAILED, sizeof msg, e->id, 0);
    if (!str_copy(msg.stage, sizeof msg.stage, stage)) {
        (void)str_copy(msg.stage, sizeof msg.stage, "unknown");
    }
    if (!str_copy(msg.text, sizeof msg.text, text)) {
        (void)str_copy(msg.text, sizeof msg.text, "the jail failed");
    }
    e->failed = true;
    session_stopped(e);
    session_send(e->session, &msg, sizeof msg);
}

/* Everything of it is gone: tell the server, forget it. */
void session_send_closed(struct session_jail *e) {
    struct session *s = e->session;
    struct wire_closed msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_CLOSED, sizeof msg, e->id, 0);
    session_wish_drop(e);
    for (struct session_jail **p = &s->jails; *p != NULL; p = &(*p)->next) {
        if (*p == e) {
            *p = e->next;
            break;
        }
    }
    free(e);
    session_send(s, &msg, sizeof msg);
    session_free_if_done(s);
}

static void session_send_end(struct session_jail *e, const struct wire_end *from) {
    struct wire_end end = *from;
    wire_head_init(&end.head, WIRE_END, sizeof end, e->id, e->wish.number);
    session_stopped(e);
    session_send(e->session, &end, sizeof end);
}

/* An EXEC that was stopped before its command began. */
void session_end_early(struct session_jail *e) {
    struct wire_end end;
    memset(&end, 0, sizeof end);
    end.cause = e->stopped;
    end.exit_code = -1;
    session_wish_drop(e);
    session_send_end(e, &end);
}

static int session_limits(struct session_jail *e, struct err *err) {
    if (e->limits_set) {
        return 0;
    }
    if (jail_set_limits(e->jail, &e->limits, err) != 0) {
        return -1;
    }
    e->limits_set = true;
    return 0;
}

/* The memory of the jail is used up, by files: what was to run cannot even begin. That is the limit
 * of the run, not a fault of the service. */
static void session_end_full(struct session_jail *e, uint64_t peak_bytes) {
    struct wire_end end;
    memset(&end, 0, sizeof end);
    end.cause = CAUSE_MEMORY;
    end.exit_code = -1;
    end.limit = e->limits.v[LIMIT_MEM_BYTES];
    end.observed = peak_bytes;
    end.usage.mem_peak_bytes = peak_bytes;
    session_wish_drop(e);
    session_send_end(e, &end);
}

static void session_renew(struct session_jail *e) {
    struct err err;
    uint64_t peak = 0;
    if (e->jail->lost > 0 && jail_is_full(e->jail, &peak)) {
        session_end_full(e, peak);
    } else if (jail_renew(e->jail, &err) != 0) {
        if (err.code == ENOMEM && jail_is_full(e->jail, &peak)) {
            session_end_full(e, peak);
        } else {
            jail_fail(e->jail, "next child", err.code, err.text);
        }
    }
}

/* The wish that waits, if there is one and the jail is ready for it. */
void session_try(struct session_jail *e) {
    struct err err;
    if (!e->busy || e->started || e->failed || e->jail == NULL) {
        return;
    }
    if (e->stopped != CAUSE_NONE) {
        session_end_early(e);
        return;
    }
    if (!jail_is_ready(e->jail)) {
        if (jail_is_spent(e->jail)) {
            session_renew(e);
        }
        return;
    }
    e->started = true;
    pool_began(e->session->cfg.pool);
    if (session_limits(e, &err) != 0) {
        jail_fail(e->jail, "limits", err.code, err.text);
    } else if (jail_exec(e->jail, &e->wish, &err) != 0) {
        jail_fail(e->jail, "start", err.code, err.text);
    }
    session_wish_drop(e);
}

static void session_jail_ready(void *arg, struct jail *jail) {
    struct session_jail *e = arg;
    pool_settled(e->session->cfg.pool, jail);
    session_try(e);
}

static void session_jail_failed(void *arg, struct jail *jail, const char *stage, int code,
                                const char *text) {
    struct session_jail *e = arg;
    pool_settled(e->session->cfg.pool, jail);
    session_send_failed(e, stage, code, text);
}

static void session_jail_ended(void *arg, struct jail *jail, const struct wire_end *end) {
    struct session_jail *e = arg;
    (void)jail;
    session_send_end(e, end);
}

static void session_jail_gone(void *arg, struct jail *jail) {
    struct session_jail *e = arg;
    session_stopped(e);
    pool_release(e->session->cfg.pool, jail);
    e->jail = NULL;
    session_send_closed(e);
}

static const struct jail_events session_jail_events = {session_jail_ready, session_jail_failed,
                                                       session_jail_ended, session_jail_gone};

static void session_wait_add(struct session *s, struct session_jail *e) {
    e->waiting = true;
    e->wait_next = NULL;
    if (s->wait_last != NULL) {
        s->wait_last->wait_next = e;
    } else {
        s->wait_first = e;
    }
    s->wait_last = e;
}

void session_wait_remove(struct session *s, struct session_jail *e) {
    struct session_jail *before = NULL;
    for (struct session_jail *i = s->wait_first; i != NULL; before = i, i = i->wait_next) {
        if (i != e) {
            continue;
        }
        if (before != NULL) {
            before->wait_next = e->wait_next;
        } else {
            s->wait_first = e->wait_next;
        }
        if (s->wait_last == e) {
            s->wait_last = before;
        }
        e->waiting = false;
        return;
    }
}

/* Gets it a jail. False when it has to wait for one. */
static bool session_admit(struct session *s, struct session_jail *e) {
    struct err why;
    int rc = pool_take(s->cfg.pool, e->policy, e->image, &session_jail_events, e, &e->jail, &why);
    if (rc < 0) {
        session_send_failed(e, why.kind == ERR_INVALID ? "image" : "open", why.code, why.text);
        session_send_closed(e);
    } else if (rc == 0) {
        session_try(e);
    }
    return rc <= 0;
}

/* First come, first served. */
void session_admit_waiting(struct session *s) {
    while (s->wait_first != NULL) {
        struct session_jail *e = s->wait_first;
        session_wait_remove(s, e);
        if (!session_admit(s, e)) {
            e->wait_next = s->wait_first;
            s->wait_first = e;
            s->wait_last = s->wait_last != NULL ? s->wait_last : e;
            e->waiting = true;
            return;
        }
    }
}

void session_admit_or_wait(struct session_jail *e) {
    struct session *s = e->session;
    if (s->wait_first != NULL || !session_admit(s, e)) {
        session_wait_add(s, e);
    }
}
