/* The greeting: what this shard is, which policies it read, what its start-up proved, and what an
 * earlier server left. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "layers.h"
#include "session_jail.h"
#include "str.h"

/* Limits of a policy as this host can give them: never more than its own hard limits. */
struct limits session_ceiling(const struct session_config *cfg, const struct policy *p) {
    struct limits c = p->ceiling;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (c.v[i] > cfg->host_max->v[i]) {
            c.v[i] = cfg->host_max->v[i];
        }
    }
    return c;
}

static struct limits session_preset(const struct session *s, const struct policy *p) {
    struct limits ceiling = session_ceiling(s->cfg, p);
    struct limits preset = p->preset;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (preset.v[i] > ceiling.v[i]) {
            preset.v[i] = ceiling.v[i];
        }
    }
    return preset;
}

static int session_hello_policy(struct session *s, const struct policy *p, struct err *err) {
    size_t size = sizeof(struct wire_policy) + p->text_size;
    struct wire_policy *msg = calloc(1, size);
    if (msg == NULL) {
        return err_sys(err, "sending a policy");
    }
    wire_head_init(&msg->head, WIRE_POLICY, size, 0, 0);
    (void)str_copy(msg->name, sizeof msg->name, p->name);
    memcpy(msg->sha256, p->sha256, sizeof msg->sha256);
    msg->ceiling = session_ceiling(s->cfg, p);
    msg->preset = session_preset(s, p);
    msg->writable = p->writable;
    msg->network = p->network;
    msg->end_on = p->end_on;
    msg->max_steps = p->max_steps;
    msg->backends = (uint16_t)p->backends;
    msg->backend = (uint16_t)p->backend;
    msg->unenforced = s->cfg->unenforced;
    msg->text_size = (uint32_t)p->text_size;
    memcpy(msg + 1, p->text, p->text_size);
    session_send(s, msg, size);
    free(msg);
    return 0;
}

static void session_hello_snapshot(void *arg, const char *key, uint64_t bytes, uint64_t files) {
    struct wire_kept msg = {.bytes = bytes, .files = files};
    wire_head_init(&msg.head, WIRE_KEPT_SNAPSHOT, sizeof msg, 0, 0);
    (void)str_copy(msg.key, sizeof msg.key, key);
    session_send(arg, &msg, sizeof msg);
}

int session_hello(struct session *s, struct err *err) {
    const struct policy_set *set = s->cfg->policies;
    if (s->greeted) {
        return err_set(err, ERR_PROTOCOL, 0, "a second HELLO");
    }
    s->greeted = true;
    struct wire_welcome welcome = {.shard = s->cfg->shard,
                                   .slots = s->cfg->slots,
                                   .policies = (uint32_t)set->count,
                                   .capabilities = s->cfg->capabilities,
                                   .execs = SESSION_EXECS_MAX,
                                   .keep_ms = (uint32_t)(s->cfg->hold->keep_ns / CLOCK_NS_PER_MS),
                                   .sandboxes = s->cfg->sandboxes,
                                   .backend = s->cfg->backend,
                                   .disk = s->cfg->disk};
    if (s->cfg->host_sha256 != NULL) {
        memcpy(welcome.host_sha256, s->cfg->host_sha256, sizeof welcome.host_sha256);
    }
    wire_head_init(&welcome.head, WIRE_WELCOME, sizeof welcome, 0, 0);
    session_send(s, &welcome, sizeof welcome);
    for (size_t i = 0; i < set->count && !s->closing; i++) {
        if (session_hello_policy(s, &set->items[i], err) != 0) {
            return -1;
        }
    }
    for (uint32_t i = 0; i < s->cfg->capabilities && !s->closing; i++) {
        struct wire_capability msg = s->cfg->capability[i];
        wire_head_init(&msg.head, WIRE_CAPABILITY, sizeof msg, 0, 0);
        session_send(s, &msg, sizeof msg);
    }
    for (struct session_jail *e = s->cfg->hold->first; e != NULL && !s->closing; e = e->next) {
        struct wire_kept msg;
        memset(&msg, 0, sizeof msg);
        wire_head_init(&msg.head, WIRE_KEPT, sizeof msg, 0, 0);
        (void)str_copy(msg.key, sizeof msg.key, e->key);
        session_send(s, &msg, sizeof msg);
    }
    layers_each(s->cfg->layers, session_hello_snapshot, s);
    struct wire_ready ready;
    memset(&ready, 0, sizeof ready);
    wire_head_init(&ready.head, WIRE_READY, sizeof ready, 0, 0);
    session_send(s, &ready, sizeof ready);
    session_state_changed(s, true);
    return 0;
}
