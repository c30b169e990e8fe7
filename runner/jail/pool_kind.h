/* A kind of jails that are kept warm: a policy and an image, and whether they are for somebody who
 * gets what others leave, with the template that they are made
 * of. Inside of the pool (pool.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "jail.h"
#include "policy.h"
#include "pool_backoff.h"
#include "pool_image.h"
#include "rootfs.h"
#include "wire.h"

#define POOL_KIND_WARM_MAX 256

struct pool_kind {
    const struct policy *policy;
    char image[WIRE_NAME_MAX];
    struct rootfs root;
    char ref[JAIL_IMAGE_MAX]; /* contained: how the engine names the image; else "" */
    struct pool_image made_of;
    bool keep; /* kept warm whether asked for or not */
    bool left; /* for those who get what others leave: jail_plan.left */
    struct pool_backoff backoff;
    bool rush; /* refills do not stand back for what runs */
    uint64_t used_ns;
    unsigned want;
    unsigned count; /* building and ready, in jail[] */
    struct jail *jail[POOL_KIND_WARM_MAX];
};

/* Nobody gets those that wait; their `gone` gives their slots back. */
void pool_kind_discard(struct pool_kind *k);
/* A template follows its image, and with it go the warm jails that were made of the one before. */
int pool_kind_template(struct pool_kind *k, const struct jail_host *host, int images_dirfd,
                       struct err *err);
/* The policy's list once more, with the digest of what is there; and what is there must be what the
 * server saw when it took the request (32 bytes). */
int pool_kind_check_image(const struct pool_kind *k, const uint8_t *wanted, struct err *err);
