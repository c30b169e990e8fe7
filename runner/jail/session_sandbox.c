/* What is asked of a sandbox as a whole: to be made, to stand still, to be kept as it is now or
 * made what it was, and to wait for another server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "layers.h"
#include "session_jail.h"
#include "str.h"

#define SESSION_SETTLE_NS (5 * CLOCK_NS_PER_S) /* for processes to come to a stop */
#define SESSION_CONTROLS_MAX 64u
#define SESSION_LOOK_NS (CLOCK_NS_PER_MS / 2)

static void session_control_begin(struct session_jail *e);

/* Its volume, made when it is first needed. */
static struct layers_volume *session_volume(struct session_jail *e, struct err *err) {
    if (e->jail->volume == NULL) {
        struct layers_jail described;
        jail_describe(e->jail, &described);
        e->jail->volume = layers_open(e->cfg->layers, &described, err);
    }
    return e->jail->volume;
}

/* Making. */

static void session_sandbox_opened(struct session_jail *e) {
    struct wire_opened msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_OPENED, sizeof msg, e->id, 0);
    e->opened = true;
    if (e->sandbox) {
        session_send(e->session, &msg, sizeof msg);
    }
    session_try(e);
}

static void session_sandbox_prepared(void *arg, const struct layers_result *result) {
    struct session_jail *e = arg;
    e->busy_layers = false;
    if (result->code != 0) {
        jail_fail(e->jail, "volume", result->code, result->text);
        return;
    }
    session_sandbox_opened(e);
}

void session_sandbox_prepare(struct session_jail *e) {
    struct err err;
    if (e->preparing || e->failed || e->dying) {
        return;
    }
    e->preparing = true;
    if (!jail_is_ready(e->jail)) {
        jail_fail(e->jail, "child", ECHILD, "the first child of a sandbox died");
        return;
    }
    if (jail_set_limits(e->jail, &e->limits, &err) != 0 ||
        (e->sandbox && jail_make_sandbox(e->jail, &err) != 0)) {
        jail_fail(e->jail, "limits", err.code, err.text);
        return;
    }
    e->limits_set = true;
    if (e->from[0] == '\0' && e->disk == WIRE_DISK_MEMORY) {
        session_sandbox_opened(e);
        return;
    }
    struct layers_volume *v = session_volume(e, &err);
    if (v == NULL) {
        jail_fail(e->jail, "volume", err.code, err.text);
        return;
    }
    e->busy_layers = true;
    layers_prepare(v, e->disk, e->from, session_sandbox_prepared, e);
}

/* FREEZE, SNAPSHOT, RESTORE: the first of the list is in progress. */

static void session_control_pop(struct session_jail *e) {
    struct session_control *c = e->controls;
    e->controls = c->next;
    free(c);
}

void session_sandbox_forget_controls(struct session_jail *e) {
    while (e->controls != NULL) {
        session_control_pop(e);
    }
}

static void session_control_done(struct session_jail *e, const struct layers_result *r) {
    struct session_control *c = e->controls;
    struct wire_done msg = {.what = c->what,
                            .code = r->code,
                            .frozen = e->frozen,
                            .depth = r->depth,
                            .bytes = r->bytes,
                            .files = r->files,
                            .added_bytes = r->added_bytes};
    wire_head_init(&msg.head, WIRE_DONE, sizeof msg, e->id, 0);
    (void)str_copy(msg.key, sizeof msg.key, c->key);
    (void)str_copy(msg.text, sizeof msg.text, r->text);
    /* Behind FAILED nothing is heard any more: for the server the sandbox is gone. */
    bool orphan = c->orphan || e->failed;
    session_control_pop(e);
    e->controlling = false;
    e->busy_layers = false;
    if (!orphan) {
        session_send(e->session, &msg, sizeof msg);
    } else if (msg.what == WIRE_SNAPSHOT && r->code == 0) {
        layers_drop(e->cfg->layers, msg.key); /* nobody knows its name */
    }
    if (e->failed || e->dying) {
        return;
    }
    session_try(e);
    if (e->controls != NULL && !e->controlling) {
        session_control_begin(e);
    }
}

static void session_control_failed(struct session_jail *e, int code, const char *text) {
    struct layers_result r = {.code = code != 0 ? code : EIO};
    (void)str_copy(r.text, sizeof r.text, text);
    session_control_done(e, &r);
}

static void session_control_layered(void *arg, const struct layers_result *result) {
    struct session_jail *e = arg;
    struct err err;
    if (layers_broken(e->jail->volume)) {
        jail_fail(e->jail, "volume", result->code, result->text);
        return;
    }
    if (jail_freeze(e->jail, e->frozen, false, &err) != 0) {
        if (e->controls->what == WIRE_SNAPSHOT && result->code == 0) {
            layers_drop(e->cfg->layers, e->controls->key); /* nobody will be told of it */
        }
        jail_fail(e->jail, "freeze", err.code, err.text);
        return;
    }
    session_control_done(e, result);
}

/* Everything has come to a stop, or has ended: what was waited for can be done. */
static void session_control_go(struct session_jail *e) {
    static const struct layers_result fine;
    struct session_control *c = e->controls;
    struct err err;
    if (c->what == WIRE_FREEZE) {
        session_control_done(e, &fine);
        return;
    }
    struct layers_volume *v = session_volume(e, &err);
    if (v == NULL) {
        session_control_failed(e, err.code, err.text);
    } else if (c->what == WIRE_SNAPSHOT) {
        /* A file operation need not be in the way: what it has open is found out. */
        layers_snapshot(v, c->key, jail_commands(e->jail) == 0, session_control_layered, e);
    } else {
        layers_restore(v, c->key, session_control_layered, e);
    }
}

/* A process waits for a disk, say, and does not stop: everything goes on as before. */
static void session_control_give_up(struct session_jail *e) {
    struct session_control *c = e->controls;
    struct err err;
    if (c->what == WIRE_FREEZE) {
        e->frozen = !c->frozen;
    }
    if (jail_freeze(e->jail, e->frozen, false, &err) != 0) {
        jail_fail(e->jail, "freeze", err.code, err.text);
        return;
    }
    session_control_failed(e, EBUSY, "a process of the sandbox did not come to a stop in time");
}

static void session_control_look(void *arg) {
    struct session_jail *e = arg;
    struct session_control *c = e->controls;
    struct err err;
    if (e->failed || e->dying || c == NULL) {
        return;
    }
    bool there = c->what == WIRE_RESTORE ? e->jail->running == 0 : true;
    int settled = c->what == WIRE_RESTORE ? 1 : jail_settled(e->jail, &err);
    if (settled < 0) {
        jail_fail(e->jail, "freeze", err.code, err.text);
    } else if (there && settled) {
        session_control_go(e);
    } else if (clock_mono_ns() > c->deadline_ns) {
        session_control_give_up(e);
    } else {
        (void)loop_timer_at(e->cfg->loop, &e->timer, clock_mono_ns() + SESSION_LOOK_NS,
                            session_control_look, e, NULL);
    }
}

static void session_control_begin(struct session_jail *e) {
    struct session_control *c = e->controls;
    struct err err;
    int rc = 0;
    e->controlling = true;
    c->deadline_ns = clock_mono_ns() + SESSION_SETTLE_NS;
    if (c->what == WIRE_FREEZE) {
        e->frozen = c->frozen;
        rc = jail_freeze(e->jail, e->frozen, false, &err);
    } else if (c->what == WIRE_SNAPSHOT) {
        e->busy_layers = true;
        rc = jail_freeze(e->jail, true, true, &err); /* does nothing when nothing runs */
    } else {
        e->busy_layers = true;
        session_exec_stop_waiting(e, CAUSE_CANCELLED);
        jail_stop_all(e->jail, CAUSE_CANCELLED);
    }
    if (rc != 0) {
        jail_fail(e->jail, "freeze", err.code, err.text);
        return;
    }
    session_control_look(e);
}

int session_sandbox_ask(struct session *s, uint64_t id, const struct session_control *wish,
                        struct err *err) {
    struct session_jail *e = session_find(s, id);
    if (e == NULL || e->failed || e->dying) {
        return 0; /* it crossed our FAILED or CLOSED on the way */
    }
    /* Of a run, only a snapshot between two of its steps. */
    bool between = !e->sandbox && wish->what == WIRE_SNAPSHOT && e->execs == NULL && e->used;
    if (e->jail == NULL || !(between || (e->sandbox && e->opened))) {
        return err_set(err, ERR_PROTOCOL, 0,
                       "a request for a sandbox that is not open, or for a run that is busy");
    }
    struct session_control **at = &e->controls;
    unsigned waiting = 0;
    while (*at != NULL) {
        at = &(*at)->next;
        waiting++;
    }
    if (waiting >= SESSION_CONTROLS_MAX) {
        return err_set(err, ERR_PROTOCOL, 0, "too many requests to one sandbox");
    }
    struct session_control *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_sys(err, "keeping a request");
    }
    *c = *wish;
    *at = c;
    if (!e->controlling) {
        session_control_begin(e);
    }
    return 0;
}

void session_sandbox_drop(struct session *s, const struct wire_key *q) {
    layers_drop(s->cfg->layers, q->key);
}

/* Waiting for another server. */

static void session_hold_over(void *arg) {
    struct session_jail *e = arg;
    session_kill_jail(e);
}

bool session_sandbox_hold(struct session_jail *e) {
    const struct session_hold *hold = e->cfg->hold;
    if (!e->sandbox || !e->opened || e->failed || e->dying || hold->keep_ns == 0) {
        return false;
    }
    session_exec_hold(e);
    /* What waits behind the first was never begun, and its caller is gone. */
    while (e->controls != NULL && e->controls->next != NULL) {
        struct session_control *c = e->controls->next;
        e->controls->next = c->next;
        free(c);
    }
    if (e->controls != NULL) {
        e->controls->orphan = true;
    }
    return loop_timer_at(e->cfg->loop, &e->hold_timer, clock_mono_ns() + hold->keep_ns,
                         session_hold_over, e, NULL) == 0;
}

void session_hold_end(struct session_hold *hold) {
    hold->keep_ns = 0;
    for (struct session_jail *e = hold->first; e != NULL; e = e->next) {
        session_kill_jail(e);
    }
}

int session_sandbox_adopt(struct session *s, const struct wire_key *q, struct err *err) {
    struct session_jail *e = s->cfg->hold->first;
    while (e != NULL && (strcmp(e->key, q->key) != 0 || e->dying || e->failed)) {
        e = e->next;
    }
    if (q->head.jail == 0 || session_find(s, q->head.jail) != NULL) {
        return err_set(err, ERR_PROTOCOL, 0, "ADOPT for a jail that is open");
    }
    struct wire_done msg = {.what = WIRE_ADOPT, .code = e == NULL ? ENOENT : 0};
    wire_head_init(&msg.head, WIRE_DONE, sizeof msg, q->head.jail, 0);
    (void)str_copy(msg.key, sizeof msg.key, q->key);
    if (e == NULL) {
        struct wire_closed closed;
        memset(&closed, 0, sizeof closed);
        wire_head_init(&closed.head, WIRE_CLOSED, sizeof closed, q->head.jail, 0);
        (void)str_copy(msg.text, sizeof msg.text, "the sandbox has ended meanwhile");
        session_send(s, &msg, sizeof msg);
        session_send(s, &closed, sizeof closed);
        return 0;
    }
    loop_timer_stop(s->cfg->loop, &e->hold_timer);
    session_list_remove(&s->cfg->hold->first, e);
    e->session = s;
    e->id = q->head.jail;
    e->looked = 0; /* this connection counts its looks anew */
    session_add(s, e);
    msg.frozen = e->frozen;
    session_exec_tell_kept(e);
    session_send(s, &msg, sizeof msg);
    if (e->session == s) {
        session_exec_tell_ends(e);
    }
    return 0;
}
