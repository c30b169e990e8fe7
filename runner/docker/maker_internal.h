/* Inside of the maker: its containers (container.c), the images that they are made of (derive.c),
 * what is left of an earlier life (sweep.c), images that nobody needs any more (prune.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "maker.h"

#define MAKER_NAME_MAX 96
#define MAKER_PATH_MAX 4300
#define MAKER_ID_SIZE 65 /* of a container, with NUL */
#define MAKER_IMAGES_MAX 64
#define MAKER_NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-"

/* An image, and the one with process 1 in it that was made of it. */
struct maker_image {
    char ref[JAIL_IMAGE_MAX];
    char derived[JAIL_IMAGE_MAX];
};

/* An imported image on its way to the engine (load.h), one at a time. It goes on when whoever asked
 * for it has given up: the next one finds it there. */
struct maker_load {
    char ref[JAIL_IMAGE_MAX]; /* "" = none yet */
    uint64_t number;          /* counts up */
    bool busy;
    int code; /* of the last one that ended; 0 = done */
    char text[256];
    int sock;
    pid_t pid;
    struct loop_source src;
};

struct maker_prune {
    bool busy, again;
    unsigned left; /* answers that are still to come */
    int watch;     /* inotify, of STATE/images */
    struct loop_source src;
    struct loop_timer timer;
};

enum container_phase {
    CONTAINER_LOOK,   /* for the image */
    CONTAINER_LOAD,   /* it is on its way to the engine */
    CONTAINER_FIND,   /* for the one that was derived of it */
    CONTAINER_BASE,   /* a container is made to derive it */
    CONTAINER_FILL,   /* process 1 is put into that */
    CONTAINER_KEEP,   /* it becomes an image */
    CONTAINER_SCRAP,  /* it goes */
    CONTAINER_IMPORT, /* the empty image */
    CONTAINER_CREATE,
    CONTAINER_START,
    CONTAINER_INSPECT,
    CONTAINER_TAKE,
    CONTAINER_PLACE,
    CONTAINER_UP,
    CONTAINER_END,
};

struct container {
    struct maker *maker;
    struct container *next;
    struct jail *jail; /* borrowed; it outlives the container */
    enum container_phase phase;
    bool asked;  /* a call is in progress */
    bool ending; /* end() was called */
    bool made;   /* the engine may have it */
    char name[MAKER_NAME_MAX];
    char scrap[MAKER_NAME_MAX]; /* of the container that an image is derived with */
    char id[MAKER_ID_SIZE];
    char ref[JAIL_IMAGE_MAX]; /* what was asked for */
    char image_name[WIRE_NAME_MAX];
    uint64_t load;              /* the number of the one that it waits for */
    char image[JAIL_IMAGE_MAX]; /* the derived one */
    enum policy_syscalls syscalls;
    uint32_t writable;
    struct limits limits, ceiling;
    pid_t pid;
    int pidfd, control;
    int report; /* socket of the process that places */
    pid_t placer;
    struct loop_source report_src;
    struct loop_timer timer;
    uint64_t deadline_ns;
};

struct maker {
    struct maker_config cfg;
    struct jail_maker jails;
    struct engine *engine;
    uint64_t life; /* of the engine, when it was last swept */
    uint64_t serial;
    char tag[24]; /* of this pinfold-init */
    /* By enum policy_syscalls; and the path of the same as a file, which is what Podman takes. */
    char *profile[2];
    char profile_path[2][MAKER_PATH_MAX];
    struct container *containers;
    struct maker_image image[MAKER_IMAGES_MAX];
    unsigned images, image_next;
    struct maker_load load;
    bool sweeping, sweep_again, swept;
    unsigned sweep_left;
    struct loop_timer sweep_timer;
    struct maker_prune prune;
};

/* maker.c: how the engine calls an imported image. */
void maker_image_ref(const struct maker *m, const uint8_t sha256[32], char out[JAIL_IMAGE_MAX]);

/* container.c */
int container_begin(void *arg, struct jail *jail, const struct jail_plan *plan, struct err *err);
void container_end(void *arg, struct jail *jail);
/* Its image is there: c->image. */
void container_create(struct container *c);
/* It cannot be made. `stage`: JAIL_STAGE_IMAGE, or what failed. */
void container_fail(struct container *c, const char *stage, const struct err *err);
int container_ask(struct container *c, enum container_phase phase, const struct engine_request *q,
                  engine_done *done);
/* Was it ended meanwhile? Then everything else is over. To be called first in every callback. */
bool container_stopped(struct container *c);

/* derive.c: container_create() or container_fail() follows. */
void derive_image(struct container *c);
/* The name of what is derived of the image with this id of the engine's; "" = of none. */
int derive_name(const struct maker *m, const char *id, char out[JAIL_IMAGE_MAX]);

/* Ends what is being loaded. */
void derive_stop(struct maker *m);

/* sweep.c: removes what nobody knows, as soon as the engine answers. */
void sweep_soon(struct maker *m, uint64_t wait_ns);

/* prune.c: the same for images, also whenever the state directory has others. */
int prune_start(struct maker *m, struct err *err);
void prune_stop(struct maker *m);
void prune_soon(struct maker *m, uint64_t wait_ns);
