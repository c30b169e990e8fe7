/* What the engine is asked to make: the container of a jail, and the image that it is made of.
 * Whatever an image says of users, volumes, ports, health checks or programs to start has no
 * effect. There is no way to say here that a container is to be privileged, to have a mount of the
 * host's, a device, a network or a name space of the host's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "limit.h"

#define RECIPE_INIT "/.pinfold-init" /* process 1, in the image */
/* What is bound over the files of these names in /etc: an engine empties those, whatever is in the
 * image, to mount its own there. */
#define RECIPE_HOSTS "/.pinfold-hosts"
#define RECIPE_HOSTNAME "/.pinfold-hostname"
#define RECIPE_LABEL_OWNER "dev.pinfold.owner"
#define RECIPE_LABEL_JAIL "dev.pinfold.jail"

struct recipe {
    const char *owner;   /* of the runner: how a later start finds what this one left */
    const char *name;    /* of the container */
    const char *image;   /* one that recipe_layer() is in */
    const char *seccomp; /* the profile, as JSON or as a path */
    struct limits limits;
    struct limits ceiling; /* of the hard rlimits */
    uint64_t core_bytes;
    bool podman;
};

/* Paths of which nobody is to see what is there. The engine is asked to cover them; some cover
 * those of a list of their own instead. */
#define RECIPE_MASKED_MAX 21
extern const char *const recipe_masked[RECIPE_MASKED_MAX];

/* The body of POST /containers/create. */
int recipe_container(const struct recipe *r, struct buf *out, struct err *err);

/* A tar of what every image gets on top: process 1, the directories that are mounted on, and what
 * is bound over files in /etc. `whole`: all that an image needs that has nothing else. */
int recipe_layer(int init_fd, bool whole, struct buf *out, struct err *err);
