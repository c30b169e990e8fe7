/* A server's connection to one runner shard: decodes requests, checks every field of them again,
 * against the policy files that this side read itself, and answers. Whatever is malformed or out of
 * order ends the connection, and with the connection every jail that it opened. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"
#include "policy.h"
#include "pool.h"
#include "wire.h"

struct session;

struct session_config {
    struct loop *loop;
    struct pool *pool;
    const struct policy_set *policies;
    const struct limits *host_max;            /* what the host itself can give; lowers ceilings */
    const struct wire_capability *capability; /* what the start-up probes found */
    uint32_t capabilities;
    uint32_t shard, slots;
    /* The connection is over; `why` is "" when the server closed it. The session is freed by itself
     * once its jails are gone, and must not be used after this call. */
    void (*closed)(void *arg, const char *why);
    void *arg;
};

/* Takes over `sock`. */
struct session *session_new(int sock, const struct session_config *cfg, struct err *err);
/* The pool can make jails again: serves those who wait. */
void session_room(struct session *s);
/* The pool's counts changed, or its health (urgent): tells the server, counts at most every 100 ms.
 */
void session_state_changed(struct session *s, bool urgent);
/* Ends the connection and kills its jails, as if the server had closed it. */
void session_end(struct session *s);
