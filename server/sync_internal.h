/* What the files of workspace transfer share. */
#pragma once

#include "fileop_run.h"
#include "sync.h"

/* What is known of one root while the server runs. */
struct sync_root {
    struct sync_root *next;
    struct sync_part *part;
    char *path;
    /* The live layer holds everything that was written since the last sync. */
    bool layer;
    bool tight;               /* all that was there at the sync is below it */
    uint64_t layer_serial;    /* sandbox_layer_serial() of it */
    struct sync_layer *asked; /* one that is being made */
    /* Contents that a sync waits for, and has already. */
    unsigned char (*pins)[SYNC_SHA256_SIZE];
    size_t pin_count;
    struct loop_timer unpin;
    struct sync_manifest manifest; /* of the last sync that was applied */
};

/* Of one sandbox. */
struct sync_part {
    struct sandbox *sandbox;
    struct sync_means means;
    struct sync_root *roots;
    size_t root_count;
    struct sync_op *first, *last; /* the first one is at work */
    size_t op_count;
};

struct sync_op {
    struct work_job job; /* first: a job is its operation */
    struct sync_op *next;
    struct sync_part *part; /* NULL: the sandbox is gone */
    struct sync_root *root; /* NULL then, too, and for changes of what was not synced */
    struct blobs *blobs;
    char user[SANDBOX_OWNER_SIZE];
    char path[FILEOP_PATH_MAX + 1]; /* the root's */
    bool is_sync, contents;
    struct sync_request want;
    struct sync_asker asker;

    int dir;         /* the sandbox's directory */
    uint64_t layers; /* sandbox_layer_serial() at the look at the tree */
    int64_t fresh;   /* sync_index_fresh() of the moment before the tree was looked at */
    struct sandbox_activity began;
    unsigned own_tasks; /* file operations of its own since then */
    bool layered;       /* root->layer holds still, at the look at the tree */
    bool tight;         /* root->tight */
    bool upper;         /* the tree is what the upper layer tells */
    bool known;         /* nothing is new, not even the index */
    bool rescan;
    struct sync_index index;
    struct sync_tree tree;
    struct sync_plan plan;
    struct sync_need *needs;
    size_t need_count;
    size_t sorted, missing;                  /* of them: looked at; not there, which are in front */
    uint64_t total;                          /* bytes of those that were looked at */
    unsigned char (*pins)[SYNC_SHA256_SIZE]; /* pinned, until the root has them; owned */
    size_t pin_count;
    struct loop_defer turn;
    bool applied;
    bool wrote; /* an operation of its own did */
    struct sync_manifest manifest;
    struct err err; /* of a job */
    int rc;
    void (*run)(struct sync_op *op);
    void (*then)(struct sync_op *op);
    struct api_error error; /* status 0: none */
    struct loop_defer soon;
    struct loop_timer later;
    unsigned waits;
};

/* sync.c */
void sync_work(struct sync_op *op, void (*run)(struct sync_op *op),
               void (*then)(struct sync_op *op));
/* Tells op->error, or what `err` means when there is none. */
void sync_fail(struct sync_op *op, const struct err *err);
void sync_finish(struct sync_op *op);

/* sync_stage.c: what comes after LOAD. */
void sync_look(struct sync_op *op);

/* sync_roots.c */
struct sync_root *sync_root_find(const struct sync_part *part, const char *path);
/* Of how many roots something is remembered in this directory. */
size_t sync_root_count(int dir);
/* Finds or makes it. */
struct sync_root *sync_root(struct sync_part *part, const char *path, struct api_error *error);
void sync_root_free(struct sync_root *root);
/* Takes over what the operation has pinned; those of before are pinned no more. */
void sync_root_pin(struct sync_root *root, struct sync_op *op);
void sync_root_unpin(struct sync_root *root);
/* Can its changes be told from a layer at all? */
bool sync_root_has_layers(const struct sync_root *root);
/* Is all that keeps sync_root_layer() from asking for a new layer what the sync itself has begun?
 */
bool sync_root_waits(const struct sync_op *op);
/* A sync was applied: from which layer can changes be told? Asks for a new one if that pays: true,
 * and sync_finish() comes when it is there. Who was told earlier would start a command at once, and
 * what that writes could not be told from what the sync did. */
bool sync_root_layer(struct sync_root *root, struct sync_op *op);
