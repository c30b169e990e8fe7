/* A server's connection to one runner shard: decodes requests, checks every field of them again,
 * against the policy files that this side read itself, and answers. Whatever is malformed or out of
 * order ends the connection. With the connection every run's jail that it opened dies; sandboxes
 * are held for the next server, for a while. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"
#include "policy.h"
#include "pool.h"
#include "wire.h"

struct session;
struct session_jail;
struct layers;

#define SESSION_EXECS_MAX 128u /* in one sandbox at once */

/* Sandboxes that wait for a server. One per shard; zeroed at start. */
struct session_hold {
    struct session_jail *first;
    uint64_t keep_ns; /* from the loss of the server to their end; 0 = not at all */
};

struct session_config {
    struct loop *loop;
    struct pool *pool;
    struct layers *layers;
    struct session_hold *hold;
    const struct policy_set *policies;
    const struct limits *host_max;            /* what the host itself can give; lowers ceilings */
    const struct wire_capability *capability; /* what the start-up probes found */
    uint32_t capabilities;
    uint32_t unenforced; /* mask of 1 << enum limit_id */
    uint32_t shard, slots, sandboxes;
    enum backend backend;       /* what its jails are made of */
    const uint8_t *host_sha256; /* 32 bytes: what image "host" is; NULL: it has no digest */
    enum wire_disk disk;        /* what sandboxes get that ask for none */
    /* The connection is over; `why` is "" when the server closed it. The session is freed by itself
     * once its jails are gone, and must not be used after this call. */
    void (*closed)(void *arg, const char *why);
    void *arg;
};

/* Takes over `sock`; borrows `cfg`, which must outlive also the jails that are held. */
struct session *session_new(int sock, const struct session_config *cfg, struct err *err);
/* The pool can make jails again: serves those who wait. */
void session_room(struct session *s);
/* The pool's counts changed, or its health (urgent): tells the server, counts at most every 100 ms.
 */
void session_state_changed(struct session *s, bool urgent);
/* Ends the connection, as if the server had closed it. */
void session_end(struct session *s);
/* The shard stops: nobody will come for the sandboxes that are held. */
void session_hold_end(struct session_hold *hold);
