/* One valid packet of each type of the wire, for unit_wire.c. */
#pragma once

#include <string.h>

#include "wire.h"

/* One valid packet of each type; a test spoils one field of a copy. */
struct packet {
    union {
        struct wire_head head;
        struct wire_hello hello;
        struct wire_open open;
        struct wire_exec exec;
        struct wire_kill kill;
        struct wire_close close;
        struct wire_welcome welcome;
        struct wire_policy policy;
        struct wire_capability capability;
        struct wire_ready ready;
        struct wire_end end;
        struct wire_failed failed;
        struct wire_closed closed;
        struct wire_state state;
        struct wire_signal signal;
        struct wire_weigh weigh;
        struct wire_freeze freeze;
        struct wire_key key;
        struct wire_done done;
        struct wire_kept kept;
        struct wire_kept_exec kept_exec;
        struct wire_look look;
        struct wire_kind kind;
        struct wire_seen seen;
        struct wire_looked looked;
        char bytes[WIRE_SPEC_INLINE_MAX + sizeof(struct wire_policy)];
    };
    size_t size;
    size_t nfds;
};

static struct limits some_limits(void) {
    struct limits l;
    for (int i = 0; i < LIMIT_COUNT; i++)
        l.v[i] = limit_info((enum limit_id)i)->min;
    return l;
}

static void start(struct packet *p, enum wire_type type, size_t size, uint64_t jail,
                  uint32_t exec) {
    memset(p, 0, sizeof(*p));
    p->size = size;
    wire_head_init(&p->head, type, size, jail, exec);
}

static void make_open(struct packet *p) {
    start(p, WIRE_OPEN, sizeof(p->open), 7, 0);
    memcpy(p->open.policy, "default", 8);
    memcpy(p->open.image, "host", 5);
    p->open.limits = some_limits();
}

static void make_exec(struct packet *p) {
    start(p, WIRE_EXEC, sizeof(p->exec) + 40, 7, 3);
    p->exec.fds = WIRE_FD_STDOUT | WIRE_FD_STDERR;
    p->exec.limits = some_limits();
    p->exec.spec_size = 40;
    p->nfds = 2;
}

static void make_kill(struct packet *p) {
    start(p, WIRE_KILL, sizeof(p->kill), 7, 0);
    p->kill.cause = CAUSE_CANCELLED;
}

static void make_welcome(struct packet *p) {
    start(p, WIRE_WELCOME, sizeof(p->welcome), 0, 0);
    p->welcome.slots = 1;
    p->welcome.policies = 1;
    p->welcome.execs = 1;
    p->welcome.backend = BACKEND_NATIVE;
}

static void make_policy(struct packet *p) {
    start(p, WIRE_POLICY, sizeof(p->policy) + 2, 0, 0);
    memcpy(p->policy.name, "ci", 3);
    p->policy.ceiling = p->policy.preset = some_limits();
    p->policy.writable = WIRE_WRITABLE_WORKSPACE;
    p->policy.max_steps = 1;
    p->policy.text_size = 2;
    p->policy.backend = BACKEND_DOCKER;
    p->policy.backends = BACKEND_BITS_ALL;
}

static void make_capability(struct packet *p) {
    start(p, WIRE_CAPABILITY, sizeof(p->capability), 0, 0);
    p->capability.status = WIRE_CAP_ENFORCED;
    memcpy(p->capability.name, "pids", 5);
}

static void make_end(struct packet *p) {
    start(p, WIRE_END, sizeof(p->end), 7, 3);
    p->end.cause = CAUSE_EXIT;
}

static void make_failed(struct packet *p) {
    start(p, WIRE_FAILED, sizeof(p->failed), 7, 0);
    memcpy(p->failed.stage, "mount", 6);
}

static void make_state(struct packet *p) {
    start(p, WIRE_STATE, sizeof(p->state), 0, 0);
}

static void make_hello(struct packet *p) {
    start(p, WIRE_HELLO, sizeof(p->hello), 0, 0);
}

static void make_close(struct packet *p) {
    start(p, WIRE_CLOSE, sizeof(p->close), 7, 0);
}

static void make_ready(struct packet *p) {
    start(p, WIRE_READY, sizeof(p->ready), 0, 0);
}

static void make_closed(struct packet *p) {
    start(p, WIRE_CLOSED, sizeof(p->closed), 7, 0);
}

static void make_signal(struct packet *p) {
    start(p, WIRE_SIGNAL, sizeof(p->signal), 7, 3);
    p->signal.signal = 15;
}

static void make_freeze(struct packet *p) {
    start(p, WIRE_FREEZE, sizeof(p->freeze), 7, 0);
    p->freeze.frozen = 1;
}

static void make_key(struct packet *p, enum wire_type type) {
    start(p, type, sizeof(p->key), type == WIRE_DROP ? 0 : 7, 0);
    memcpy(p->key.key, "snap_1", 7);
}

static void make_snapshot(struct packet *p) {
    make_key(p, WIRE_SNAPSHOT);
}

static void make_restore(struct packet *p) {
    make_key(p, WIRE_RESTORE);
}

static void make_drop(struct packet *p) {
    make_key(p, WIRE_DROP);
}

static void make_adopt(struct packet *p) {
    make_key(p, WIRE_ADOPT);
}

static void make_opened(struct packet *p) {
    start(p, WIRE_OPENED, sizeof(struct wire_opened), 7, 0);
}

static void make_started(struct packet *p) {
    start(p, WIRE_STARTED, sizeof(struct wire_started), 7, 3);
    p->nfds = 1;
}

static void make_done(struct packet *p) {
    start(p, WIRE_DONE, sizeof(p->done), 7, 0);
    p->done.what = WIRE_SNAPSHOT;
    memcpy(p->done.key, "snap_1", 7);
}

static void make_kept(struct packet *p) {
    start(p, WIRE_KEPT, sizeof(p->kept), 0, 0);
    memcpy(p->kept.key, "sb_1", 5);
}

static void make_kept_snapshot(struct packet *p) {
    make_kept(p);
    p->head.type = WIRE_KEPT_SNAPSHOT;
}

static void make_kept_exec(struct packet *p) {
    start(p, WIRE_KEPT_EXEC, sizeof(p->kept_exec), 7, 3);
    p->kept_exec.fds = WIRE_FD_KEEP_STDOUT;
    p->nfds = 1;
}

static void make_look(struct packet *p) {
    start(p, WIRE_LOOK, sizeof(p->look), 0, 0);
    p->look.what = WIRE_LOOK_ALL;
}

static void make_weigh(struct packet *p) {
    start(p, WIRE_WEIGH, sizeof(p->weigh), 7, 0);
    p->weigh.shares = WIRE_SHARES / 2;
}

static void make_kind(struct packet *p) {
    start(p, WIRE_KIND, sizeof(p->kind), 0, 0);
    memcpy(p->kind.policy, "default", 8);
    memcpy(p->kind.image, "host", 5);
}

static void make_seen(struct packet *p) {
    start(p, WIRE_SEEN, sizeof(p->seen), 7, 0);
}

static void make_looked(struct packet *p) {
    start(p, WIRE_LOOKED, sizeof(p->looked), 0, 0);
}

typedef void maker(struct packet *p);
static maker *const request_makers[] = {
    make_hello,    make_open,    make_exec, make_kill,  make_close, make_signal, make_freeze,
    make_snapshot, make_restore, make_drop, make_adopt, make_look,  make_weigh};
static maker *const reply_makers[] = {
    make_welcome,       make_policy,    make_capability, make_ready,   make_end,   make_failed,
    make_closed,        make_state,     make_opened,     make_started, make_done,  make_kept,
    make_kept_snapshot, make_kept_exec, make_kind,       make_seen,    make_looked};
