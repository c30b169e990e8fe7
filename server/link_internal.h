/* What link.c and link_recv.c share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "link.h"

struct link_jail {
    struct link *link;
    uint64_t id;            /* 0 = slot is free */
    struct link_pool *pool; /* whose number it has */
    const struct link_jail_ops *ops;
    void *owner; /* NULL = nobody listens: CLOSE was sent, or is about to be */
    struct link_sight sight;
    uint64_t seen; /* link->look.began then; 0 = never */
    struct link_jail *next_closing;
    bool sent;                                  /* the runner has been told of it */
    bool closing;                               /* CLOSE is about to be sent */
    void (*closed)(void *arg, uint64_t cpu_ns); /* who wants to know that it is gone, or NULL */
    void *closed_arg;
};

/* It is gone: its number is free again. */
void link_jail_free(struct link_jail *j);
/* What a greeting told of an earlier connection. */
void link_forget_kept(struct link *l);

/* link_look.c: a look ends with the connection; and what the runner answers. */
void link_look_reset(struct link *l);
void link_look_kind(struct link *l, const struct wire_kind *kind);
void link_look_seen(struct link_jail *j, const struct wire_seen *seen);
void link_look_done(struct link *l);
