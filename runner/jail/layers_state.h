/* What the shard knows about file systems, layers, snapshots and volumes, and the work in progress.
 * Internal to the layers files. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "layers.h"
#include "layers_work.h"
#include "layers_zygote.h"
#include "loop.h"

/* A file system that holds layers: counted by its layers and by the volume that writes to it. */
struct layers_fs {
    struct layers_fs *next;
    struct layers_volume *owner; /* NULL once its jail is gone */
    uint64_t id;
    int root_fd;     /* O_PATH; -1 = not mounted for us yet */
    uint32_t layers; /* how many it holds */
    uint32_t number; /* the last that was given */
    uint64_t bytes;  /* of its layers; files that two of them share count twice */
    bool in_file;
    bool asked; /* a worker may have mounted it */
};

struct layers_layer {
    struct layers_fs *fs;
    uint32_t number;
    unsigned refs;
    unsigned named; /* snapshots that it is the newest layer of */
    uint64_t bytes, files;
};

/* A reference to each of its layers, newest first. */
struct layers_stack {
    uint32_t depth;
    struct layers_layer *layer[LAYERS_DEPTH_MAX];
};

struct layers_snap {
    struct layers_snap *next;
    char key[WIRE_NAME_MAX];
    struct layers_stack stack;
};

struct layers_volume {
    struct layers *layers;
    struct layers_jail jail;
    struct layers_fs *own; /* NULL: nothing but what process 1 made */
    int view_fd;           /* a file system in a file as the jail sees it; else -1 */
    uint32_t live;         /* number of the live directory; 0 = what process 1 made */
    struct layers_stack stack;
    struct layers_layer *copied;      /* last copy of the live directory; no reference */
    struct layers_layer *merged;      /* holds what all of `stack` does; a reference, or NULL */
    uint64_t base_bytes, base_inodes; /* of a file system in a file */
    struct layers_job *compacting;    /* NULL = none */
    uint32_t litter;                  /* number of a layer that was begun and given up; 0 = none */
    bool broken, busy;
};

/* A piece of work: until its worker is gone, which is after its answer when it tidies up. */
struct layers_job {
    struct layers_job *next;
    struct layers *layers;
    struct layers_volume *v; /* NULL: nobody waits, or closed */
    struct layers_fs *fs;    /* fs[0] of the request; used for sending it only */
    layers_done *done;       /* NULL: answered, or nobody to answer */
    void *arg;
    int sock, pidfd;
    int theirs; /* the worker's end, until it was asked for; else -1 */
    bool aside; /* nobody waits; counted in aside_workers */
    struct loop_source src;
    struct loop_defer defer;
    struct layers_request req;
    struct layers_stack stack; /* references to all that the worker needs */
    struct layers_layer *copied;
    char key[WIRE_NAME_MAX];
    struct layers_result result;
};

/* Something to remove, of which nothing was begun. */
struct layers_aside {
    struct layers_aside *next;
    struct layers_fs *fs; /* NULL: it is not known any more, only its id is */
    uint64_t id;
    enum layers_op op;
    uint32_t number;
};

struct layers {
    struct loop *loop;
    int disk_dirfd;
    uint64_t layer_bytes;
    struct layers_zygote zygote;
    struct layers_fs *fs;
    struct layers_snap *snaps;
    struct layers_job *jobs;
    struct loop_source zygote_src; /* its end; and room in its socket, while a job waits for that */
    bool crowded;                  /* a job does */
    void (*lost)(void *arg);
    void *lost_arg;
    struct layers_aside *asides, *asides_end;
    unsigned aside_workers;
    struct loop_defer aside_defer;
    uint64_t ids;
    char snapshots_missing[WIRE_DISK_COUNT][WIRE_TEXT_MAX];
    char files_missing[WIRE_TEXT_MAX];
};

/* ---- layers_store.c: who needs what ---- */

struct layers_fs *layers_store_fs(struct layers *layers, struct layers_volume *owner,
                                  struct err *err);
/* Ends it when it has neither an owner nor a layer. */
void layers_store_fs_check(struct layers *layers, struct layers_fs *fs);
/* One reference, the caller's. */
struct layers_layer *layers_store_layer(struct layers_fs *fs, uint32_t number, struct err *err);
void layers_store_ref(struct layers_layer *layer);
void layers_store_unref(struct layers *layers, struct layers_layer *layer); /* NULL allowed */
void layers_store_copy(struct layers_stack *to, const struct layers_stack *from);
void layers_store_drop(struct layers *layers, struct layers_stack *stack);
struct layers_snap *layers_store_find(const struct layers *layers, const char *key);
void layers_store_sum(const struct layers_stack *stack, const struct layers_fs *except,
                      uint64_t *bytes, uint64_t *files);
/* What its layer turned out to hold. */
void layers_store_size(struct layers_layer *layer, uint64_t bytes, uint64_t files);
/* What all layers hold: what is used where only layers are left, else their sizes, but no more than
 * is used. A volume other than `but` that is being worked on counts with all that it holds. */
uint64_t layers_store_held(const struct layers *layers, const struct layers_volume *but);
/* Inodes on the own file system of a volume that are ours and not the jail's. */
uint64_t layers_store_overhead(const struct layers_volume *v);

/* ---- layers_job.c: handing out work ---- */

struct layers_job *layers_job_new(struct layers *layers, enum layers_op op, struct layers_volume *v,
                                  struct err *err);
/* Fills in the limits of its volume, after job->stack. */
void layers_job_limits(struct layers_job *job);
/* Sends it off with the layers of job->stack. The job ends by itself; on failure it is gone. */
int layers_job_start(struct layers_job *job, struct err *err);
/* Answers with this once the loop runs. */
void layers_job_answer(struct layers_job *job, int code, const char *text);
/* Kills the worker and forgets the job: no callback. */
void layers_job_end(struct layers_job *job);
/* From now on it is noticed when the process that forks the workers ends. */
int layers_job_watch(struct layers *layers, struct err *err);
/* Tries at once whether this host can do it: `missing` is "" or a sentence afterwards. `flags`:
 * enum layers_request_flag; LAYERS_FORMAT = on file systems in files. */
void layers_job_probe(struct layers *layers, enum layers_op op, uint32_t flags,
                      char missing[WIRE_TEXT_MAX]);

/* ---- layers_aside.c: removing what is not needed any more ---- */

/* Nobody waits for these; what cannot be done is left until the file system goes. They begin in a
 * later turn of the loop, in this order, a few at a time. */
void layers_aside_remove(struct layers *layers, struct layers_fs *fs, uint32_t number);
void layers_aside_clean(struct layers *layers, struct layers_fs *fs);
/* The file system is about to be freed: what was not begun in it is spared. */
void layers_aside_forget(struct layers *layers, struct layers_fs *fs);
/* One of its workers is gone. */
void layers_aside_ended(struct layers *layers);
/* Begins nothing any more. */
void layers_aside_free(struct layers *layers);

/* ---- layers_compact.c: space that old layers waste ---- */

/* Begins to merge the layers of a volume, if one is worth it and nothing is merged yet. */
void layers_compact_look(struct layers *layers);
/* Somebody needs the volume. */
void layers_compact_stop(struct layers_volume *v);
/* `reply` is NULL when the worker died. */
void layers_compact_done(struct layers_job *job, const struct layers_reply *reply);

/* ---- layers_done.c: what an answer changes ---- */

/* Takes the answer to a job of a volume in, or NULL when the worker died without one, and calls
 * back. `fds` are what came with it: those that are kept are set to -1. */
void layers_done_take(struct layers_job *job, const struct layers_reply *reply, int *fds,
                      size_t nfds);
