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
    struct link_jail *next_closing;
    bool closing;              /* CLOSE is about to be sent */
    void (*closed)(void *arg); /* who wants to know that it is gone; NULL = nobody */
    void *closed_arg;
};

/* It is gone: its number is free again. */
void link_jail_free(struct link_jail *j);
/* What a greeting told of an earlier connection. */
void link_forget_kept(struct link *l);
