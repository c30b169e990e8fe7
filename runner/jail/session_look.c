/* What goes on now, for who looks: a few jails in each round of the loop, so that nothing that runs
 * waits for it, and nothing at all while nobody looks. */
#include <string.h>

#include "clock.h"
#include "pool.h"
#include "session_jail.h"
#include "str.h"

#define SESSION_LOOK_SLICE 16 /* jails, about 20 µs each */
#define SESSION_LOOK_PAUSE_NS (CLOCK_NS_PER_MS / 4)
#define SESSION_LOOK_FULL_NS (5 * CLOCK_NS_PER_MS) /* while the server does not read */

static void session_look_kind(void *arg, const char *policy, const char *image, uint32_t warm) {
    struct wire_kind msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_KIND, sizeof msg, 0, 0);
    if (str_copy(msg.policy, sizeof msg.policy, policy) &&
        str_copy(msg.image, sizeof msg.image, image)) {
        msg.warm = warm;
        session_send(arg, &msg, sizeof msg);
    }
}

static void session_look_jail(struct session *s, const struct session_jail *e) {
    struct jail_sight sight;
    if (e->jail == NULL || e->dying || e->failed || jail_look(e->jail, &sight, NULL) != 0) {
        return;
    }
    struct wire_seen msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_SEEN, sizeof msg, e->id, 0);
    msg.cpu_ns = sight.cpu_ns;
    msg.mem_bytes = sight.mem_bytes;
    msg.running = sight.running;
    session_send(s, &msg, sizeof msg);
}

/* True when all have been told of. */
static bool session_look_slice(struct session *s) {
    unsigned n = 0;
    /* Jails come and go between two slices; sending may even end the connection. */
    bool all = (s->look_what & WIRE_LOOK_JAILS) != 0;
    for (struct session_jail *e = s->jails; e != NULL && !s->closing; e = e->next) {
        if (e->looked == s->look_serial || (!all && e->exec_count == 0)) {
            continue;
        }
        if (n++ == SESSION_LOOK_SLICE) {
            return false;
        }
        e->looked = s->look_serial;
        session_look_jail(s, e);
    }
    return true;
}

static void session_look_step(void *arg) {
    struct session *s = arg;
    struct loop *loop = s->cfg->loop;
    uint64_t now = clock_mono_ns();
    if (s->out.head != NULL) {
        (void)loop_timer_at(loop, &s->look_timer, now + SESSION_LOOK_FULL_NS, session_look_step, s,
                            NULL);
        return;
    }
    if (s->look_what & WIRE_LOOK_KINDS) {
        pool_kinds(s->cfg->pool, session_look_kind, s);
        s->look_what &= ~(uint32_t)WIRE_LOOK_KINDS;
    }
    if ((s->look_what & (WIRE_LOOK_JAILS | WIRE_LOOK_BUSY)) && !s->closing &&
        !session_look_slice(s)) {
        (void)loop_timer_at(loop, &s->look_timer, now + SESSION_LOOK_PAUSE_NS, session_look_step, s,
                            NULL);
        return;
    }
    s->look_what = 0;
    struct wire_looked msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_LOOKED, sizeof msg, 0, 0);
    session_send(s, &msg, sizeof msg);
}

void session_look(struct session *s, const struct wire_look *q) {
    bool busy = s->look_what != 0;
    s->look_what |= q->what;
    if (busy) {
        return;
    }
    s->look_serial++;
    (void)loop_timer_at(s->cfg->loop, &s->look_timer, 0, session_look_step, s, NULL);
}
