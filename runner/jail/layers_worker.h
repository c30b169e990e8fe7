/* What the parts of a worker share. Internal to the layers files; everything here runs in a process
 * of its own, may block, and ends with it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "layers_work.h"

/* A directory of the jail that can be written, as process 1 made it (setup_dirs in init/setup.c).
 */
struct layers_place {
    uint32_t bit;     /* enum wire_writable */
    const char *name; /* in a live directory or a layer, one component */
    const char *path; /* in the jail, relative to its root */
    mode_t mode;
    uid_t owner; /* inside */
};

#define LAYERS_PLACES 5
extern const struct layers_place layers_places[LAYERS_PLACES];

struct layers_work {
    const struct layers_home *home;
    struct layers_request req;
    struct layers_reply reply;
    int fd[LAYERS_FDS_MAX]; /* what came with the request */
    int own_root;           /* a new root of the own file system, for the shard; -1 = none */
    int proc_self;
    int proc, sys;  /* the host's /proc and /sys */
    int scratch_ns; /* mount namespace of this worker … */
    int scratch;    /* … and the directory in it where everything is attached */
    int own;        /* root of the own file system, below scratch */
};

/* ---- layers_view.c: the worker's own view of the file systems ---- */

/* Makes own file system known when asked to, then a scratch mount namespace with each file system
 * of the request as scratch/fN, with the ids of the jail. The worker ends up in it, with the ids of
 * the jail's root and few capabilities. */
int layers_view_open(struct layers_work *w, struct err *err);
/* Attaches a detached mount of the whole own file system where it stays. */
int layers_view_keep(struct layers_work *w, int tree, struct err *err);
/* Into the mount namespace of the jail. */
int layers_view_jail(const struct layers_work *w, struct err *err);
/* Mounts the layers of the request, under layer `top` of the own file system unless that is 0, as
 * scratch/`name`: over them live directory `live`, or read-only when that is 0. */
int layers_view_overlay(const struct layers_work *w, const char *name, uint32_t top, uint32_t live,
                        struct err *err);
/* Size of the own file system: what the limits leave. `spare`: inodes beside, for what is about to
 * be made. */
int layers_view_resize(const struct layers_work *w, uint32_t spare, struct err *err);
/* No way back: the scratch directory becomes the root, and the powers that mount things go. */
int layers_view_confine(const struct layers_work *w, struct err *err);
/* The ids of the jail's root, outside, for the system calls that look at them; no powers but those
 * over files, and, when `mounts`, those to mount and to look at processes. */
int layers_view_ids(uint32_t id, bool mounts, struct err *err);

/* A directory "kind/number" of the own file system. */
int layers_view_dir(const struct layers_work *w, const char *kind, uint32_t number,
                    struct err *err);

/* ---- layers_disk.c ---- */

/* Makes a file system of this size in a file that has no name, and mounts it. -> detached mount */
int layers_disk_make(const struct layers_work *w, struct err *err);
/* Takes what layers of other file systems hold from what the own one may give. */
int layers_disk_limit(const struct layers_work *w, struct err *err);

/* ---- layers_switch.c: changing what a jail writes to ---- */

/* The live directory becomes layer `layer`, and live_next takes its place. 0, 1 = in use (nothing
 * has changed), -1. */
int layers_switch_snapshot(struct layers_work *w, struct err *err);
/* live_next over the layers of the request takes the place of the live directory, whoever has it
 * open. */
int layers_switch_restore(struct layers_work *w, struct err *err);
/* The directories of a new file system take the places of those of process 1. */
int layers_switch_plain(struct layers_work *w, struct err *err);
/* Does a command or a file operation have something open? 1, 0, -1. Leaves the worker in the mount
 * namespace of the jail. */
int layers_switch_busy(const struct layers_work *w, struct err *err);

/* ---- layers_probe.c ---- */

int layers_probe_snapshots(struct layers_work *w, struct err *err);
int layers_probe_files(struct layers_work *w, struct err *err);
