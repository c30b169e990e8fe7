/* Makes jails of containers: the jail_maker of a shard whose jails an engine makes.
 *
 * A container is made for one jail: create, start, take its process 1 (take.h), prepare it from
 * outside (place.h); from then on it is a jail like any other, and the engine is not asked again
 * before the end. Killing does not need the engine either: process 1 is killed, and with it goes
 * all that is in its pid namespace. What the engine keeps of it is removed, now or, when the engine
 * does not answer, when it does again: by the label that every container has.
 *
 * Snapshots and forks are not images of the engine: what can be written is no part of a container's
 * layers but one limited tmpfs, which no commit would hold. They are layers of that file system
 * (jail/layers.h), so that they count against the sandbox's disk limit, take milliseconds, keep
 * what was written while commands run, and leave nothing in the engine to be removed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "err.h"
#include "host.h"
#include "jail.h"
#include "log.h"
#include "loop.h"

struct maker;

struct maker_config {
    struct loop *loop; /* borrowed, as all that follows */
    struct log *log;
    const char *socket;         /* of the engine */
    const char *owner;          /* labels and names what is made; nobody else's has it (home.h) */
    struct host_image host;     /* what image "host" stands for */
    int images_dirfd;           /* STATE/images; -1 = none */
    int init_fd;                /* sealed memfd of pinfold-init */
    const char *run_dir;        /* path of STATE/run */
    bool prunes;                /* removes images of which nothing will be made any more */
    void (*changed)(void *arg); /* the health of the engine */
    void *arg;
};

/* Images of ours in the engine: the prefix, the owner, "-", and
 *   of an imported one     its digest
 *   of a derived one       what makes it different: process 1, and the image below it */
#define MAKER_IMAGE_PREFIX "pinfold-image:"
#define MAKER_JAIL_PREFIX "pinfold-jail:"
#define MAKER_IMAGE_EMPTY "" /* of a plan: nothing but process 1, for the self-test */

struct maker *maker_new(const struct maker_config *cfg, struct err *err);
/* Its jails must be gone. NULL allowed. */
void maker_free(struct maker *m);
const struct jail_maker *maker_jails(const struct maker *m);
struct engine *maker_engine(const struct maker *m);
/* Are all containers of this owner gone that nobody here knows? False while that is not known. */
bool maker_swept(const struct maker *m);
