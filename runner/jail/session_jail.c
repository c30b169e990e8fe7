#include "session_jail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "layers.h"
#include "pool.h"
#include "str.h"

#define SESSION_JAILS_SPARE 64u /* closed ones whose CLOSED the server has not read */

void session_list_remove(struct session_jail **list, struct session_jail *e) {
    for (struct session_jail **p = list; *p != NULL; p = &(*p)->next) {
        if (*p == e) {
            *p = e->next;
            return;
        }
    }
}

void session_jail_free(struct session_jail *e) {
    loop_timer_stop(e->cfg->loop, &e->timer);
    loop_timer_stop(e->cfg->loop, &e->hold_timer);
    session_exec_drop_all(e);
    session_sandbox_forget_controls(e);
    free(e);
}

void session_kill_jail(struct session_jail *e) {
    e->dying = true;
    jail_kill(e->jail);
}

/* FAILED: the jail cannot go on. */
static void session_send_failed(struct session_jail *e, const char *stage, int code,
                                const char *text) {
    struct wire_failed msg = {.code = code};
    wire_head_init(&msg.head, WIRE_FAILED, sizeof msg, e->id, 0);
    if (!str_copy(msg.stage, sizeof msg.stage, stage)) {
        (void)str_copy(msg.stage, sizeof msg.stage, "unknown");
    }
    if (!str_copy(msg.text, sizeof msg.text, text)) {
        (void)str_copy(msg.text, sizeof msg.text, "the jail failed");
    }
    e->failed = true;
    session_exec_drop_all(e);
    session_send(e->session, &msg, sizeof msg);
}

/* CLOSED: everything of it is gone. Frees `e`. */
static void session_send_closed(struct session_jail *e) {
    struct session *s = e->session;
    struct wire_closed msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_CLOSED, sizeof msg, e->id, 0);
    msg.cpu_ns = e->lost_cpu_ns;
    if (s != NULL) {
        session_remove(s, e);
    } else {
        session_list_remove(&e->cfg->hold->first, e);
    }
    session_jail_free(e);
    if (s != NULL) {
        session_send(s, &msg, sizeof msg);
        session_free_if_done(s);
    }
}

/* Events of the jail. */

/* Fairness, and no wall: a jail of which it cannot be set is as heavy as it was. */
void session_weigh_now(struct session_jail *e) {
    if (e->shares != 0 && e->jail != NULL && jail_weigh(e->jail, e->shares, NULL) == 0) {
        e->shares = 0;
    }
}

static void session_jail_ready(void *arg, struct jail *jail) {
    struct session_jail *e = arg;
    pool_settled(e->cfg->pool, jail);
    session_weigh_now(e);
    if (session_jail_opens(e) && !e->opened) {
        session_sandbox_prepare(e);
        return;
    }
    session_try(e);
}

static void session_jail_failed(void *arg, struct jail *jail, const char *stage, int code,
                                const char *text) {
    struct session_jail *e = arg;
    pool_settled(e->cfg->pool, jail);
    session_send_failed(e, stage, code, text);
}

static void session_jail_ended(void *arg, struct jail *jail, void *owner,
                               const struct wire_end *end) {
    (void)jail;
    session_exec_ended(arg, owner, end);
}

static void session_jail_terminal(void *arg, struct jail *jail, void *owner, int master) {
    (void)jail;
    session_exec_terminal(arg, owner, master);
}

static void session_jail_gone(void *arg, struct jail *jail) {
    struct session_jail *e = arg;
    loop_timer_stop(e->cfg->loop, &e->timer);
    layers_close(jail->volume);
    jail->volume = NULL;
    session_exec_drop_all(e);
    e->lost_cpu_ns = jail->lost_cpu_ns;
    pool_release(e->cfg->pool, jail);
    e->jail = NULL;
    session_send_closed(e);
}

static const struct jail_events session_jail_events = {
    .ready = session_jail_ready,
    .failed = session_jail_failed,
    .ended = session_jail_ended,
    .terminal = session_jail_terminal,
    .gone = session_jail_gone,
};

/* The lines for jails. */

static struct session_line *session_line_of(const struct session_jail *e) {
    return e->modest ? &e->session->modest : &e->session->line;
}

static void session_wait_add(struct session_jail *e) {
    struct session_line *line = session_line_of(e);
    e->waiting = true;
    e->wait_next = NULL;
    if (line->last != NULL) {
        line->last->wait_next = e;
    } else {
        line->first = e;
    }
    line->last = e;
}

static void session_wait_again(struct session_jail *e) {
    struct session_line *line = session_line_of(e);
    e->waiting = true;
    e->wait_next = line->first;
    line->first = e;
    line->last = line->last != NULL ? line->last : e;
}

static void session_wait_remove(struct session_jail *e) {
    struct session_line *line = session_line_of(e);
    struct session_jail *before = NULL;
    for (struct session_jail *i = line->first; i != NULL; before = i, i = i->wait_next) {
        if (i != e) {
            continue;
        }
        if (before != NULL) {
            before->wait_next = e->wait_next;
        } else {
            line->first = e->wait_next;
        }
        if (line->last == e) {
            line->last = before;
        }
        e->waiting = false;
        return;
    }
}

/* Gets it a jail. False when it has to wait for one. */
static bool session_admit(struct session_jail *e) {
    const struct pool_wish wish = {.policy = e->policy,
                                   .image = e->image,
                                   .image_sha256 = e->image_sha256,
                                   .stays = e->sandbox,
                                   .modest = e->modest,
                                   .left = e->shares == WIRE_SHARES_LEFT};
    struct err why;
    int rc = pool_take(e->cfg->pool, &wish, &session_jail_events, e, &e->jail, &why);
    if (rc < 0) {
        const char *layer = e->cfg->backend == BACKEND_DOCKER ? "engine" : "open";
        session_send_failed(e, why.kind == ERR_INVALID ? "image" : layer, why.code, why.text);
        session_send_closed(e);
    } else if (rc == 0 && jail_is_ready(e->jail)) {
        session_jail_ready(e, e->jail);
    }
    return rc <= 0;
}

void session_admit_waiting(struct session *s) {
    while (s->line.first != NULL || s->modest.first != NULL) {
        struct session_jail *e = s->line.first != NULL ? s->line.first : s->modest.first;
        session_wait_remove(e);
        if (!session_admit(e)) {
            session_wait_again(e);
            return;
        }
    }
}

static void session_admit_or_wait(struct session_jail *e) {
    struct session *s = e->session;
    bool others = s->line.first != NULL || (e->modest && s->modest.first != NULL);
    if (others || !session_admit(e)) {
        session_wait_add(e);
    }
}

/* OPEN and CLOSE. */

static struct session_jail *session_jail_new(struct session *s, const struct wire_open *q) {
    struct session_jail *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return NULL;
    }
    e->cfg = s->cfg;
    e->session = s;
    e->id = q->head.jail;
    e->opened_ns = clock_mono_ns();
    e->limits = q->limits;
    e->sandbox = q->flags & WIRE_OPEN_SANDBOX;
    e->modest = q->flags & WIRE_OPEN_MODEST;
    e->shares = q->flags & WIRE_OPEN_LEFT ? WIRE_SHARES_LEFT : 0;
    e->disk = (enum wire_disk)q->disk;
    (void)str_copy(e->image, sizeof e->image, q->image);
    memcpy(e->image_sha256, q->image_sha256, sizeof e->image_sha256);
    (void)str_copy(e->key, sizeof e->key, q->key);
    (void)str_copy(e->from, sizeof e->from, q->from);
    e->policy = policy_find(s->cfg->policies, q->policy);
    session_add(s, e);
    return e;
}

static void session_refuse(struct session_jail *e, const char *stage, int code, const char *text) {
    session_send_failed(e, stage, code, text);
    session_send_closed(e);
}

/* Is there a sandbox of this name already, held or open? */
static bool session_has_key(const struct session *s, const char *key) {
    for (const struct session_jail *e = s->jails; e != NULL; e = e->next) {
        if (e->sandbox && strcmp(e->key, key) == 0) {
            return true;
        }
    }
    for (const struct session_jail *e = s->cfg->hold->first; e != NULL; e = e->next) {
        if (strcmp(e->key, key) == 0) {
            return true;
        }
    }
    return false;
}

int session_open(struct session *s, const struct wire_open *q, struct err *err) {
    if (q->head.jail == 0 || session_find(s, q->head.jail) != NULL) {
        return err_set(err, ERR_PROTOCOL, 0, "OPEN of a jail that is open");
    }
    if (s->jail_count >= s->cfg->slots + s->cfg->sandboxes + SESSION_JAILS_SPARE) {
        return err_set(err, ERR_PROTOCOL, 0, "more jails are open than there can be");
    }
    if (q->key[0] != '\0' && session_has_key(s, q->key)) {
        return err_set(err, ERR_PROTOCOL, 0, "OPEN of a sandbox whose name is taken");
    }
    struct session_jail *e = session_jail_new(s, q);
    if (e == NULL) {
        return err_sys(err, "opening a jail");
    }
    if (e->policy == NULL) {
        session_refuse(e, "policy", EINVAL, "there is no such policy");
        return 0;
    }
    if (!(e->policy->backends & BACKEND_BIT(s->cfg->backend))) {
        session_refuse(e, "backend", EPERM, "the policy does not allow this back end");
        return 0;
    }
    struct err why;
    const struct limits ceiling = session_ceiling(s->cfg, e->policy);
    if (!str_is_name(q->image) || q->network != WIRE_NETWORK_NONE) {
        session_refuse(e, "open", EINVAL, "the image or the network is not allowed");
    } else if (limit_check(&q->limits, &ceiling, &why) != 0) {
        session_refuse(e, "limits", EPERM, why.text);
    } else if (e->from[0] != '\0' && !layers_find(s->cfg->layers, e->from, NULL, NULL)) {
        session_refuse(e, "snapshot", ENOENT, "there is no such snapshot");
    } else {
        session_admit_or_wait(e);
    }
    return 0;
}

void session_weigh(struct session *s, const struct wire_weigh *q) {
    struct session_jail *e = session_find(s, q->head.jail);
    if (e != NULL && !e->failed && !e->dying) {
        e->shares = q->shares;
        session_weigh_now(e);
    }
}

void session_close_jail(struct session *s, uint64_t id) {
    struct session_jail *e = session_find(s, id);
    if (e != NULL && e->jail != NULL) {
        session_kill_jail(e);
    } else if (e != NULL && e->waiting) {
        session_wait_remove(e);
        session_send_closed(e);
    }
}
