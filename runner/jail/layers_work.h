/* What the shard and the processes that do the work of layers say to each other. Internal to the
 * layers files.
 *
 * One socket per piece of work. The shard sends one layers_request and the descriptors that it
 * names, layers_descriptors of them in each packet, before the worker is even born; the worker
 * answers with one layers_reply, tidies up, and ends. The process that forks workers sends a
 * layers_birth with the pidfd of the worker on the same socket.
 *
 * A file system that holds layers looks like this, and nothing in a jail can see its root:
 *
 *   home tmp var_tmp shm workspace   what process 1 made; the first snapshot moves three of them
 *   layers/N/{home,var_tmp,workspace}
 *   live/N/{home,var_tmp,workspace}  the upper directory of a jail
 *   work/N                           … and the directory that its overlay needs beside it
 *   trash/N                          what is about to be removed
 *
 * Numbers are given by the shard and never used twice on one file system. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "layers.h"

#define LAYERS_FS_MAX (LAYERS_DEPTH_MAX + 1)
/* The directories that a layer has. */
#define LAYERS_KEPT (WIRE_WRITABLE_HOME | WIRE_WRITABLE_VAR_TMP | WIRE_WRITABLE_WORKSPACE)
/* What the kernel makes of one working directory: itself, work, incompat, volatile, dirty. */
#define LAYERS_WORK_INODES 5u

enum layers_op {
    LAYERS_OP_PROBE_SNAPSHOTS = 1,
    LAYERS_OP_PROBE_FILES,
    LAYERS_OP_PREPARE,
    LAYERS_OP_SNAPSHOT,
    LAYERS_OP_RESTORE,
    LAYERS_OP_MERGE,  /* `stack` into layer `merge`; the jail notices nothing */
    LAYERS_OP_REMOVE, /* fs[0]: layer `layer` */
    LAYERS_OP_CLEAN,  /* fs[0]: everything but layers */
    LAYERS_OP_FORGET, /* fs[0] is not needed any more */
    LAYERS_OP_COUNT
};

enum layers_request_flag {
    LAYERS_QUIET = 1,  /* SNAPSHOT: try a switch */
    LAYERS_ADOPT = 2,  /* the tmpfs of the jail is not known as a file system of layers yet */
    LAYERS_FORMAT = 4, /* PREPARE, PROBE_SNAPSHOTS: make a file system in a file */
    LAYERS_FROM = 8,   /* PREPARE: start from `stack` */
};

struct layers_request_fs {
    uint64_t id;
    uint32_t mapped; /* belongs to another user namespace than the jail */
    uint32_t reserved;
};

struct layers_request_layer {
    uint32_t fs; /* index into fs[] */
    uint32_t number;
};

struct layers_request {
    uint32_t op;
    uint32_t flags;
    int32_t pid; /* process 1 */
    uint32_t writable;
    uint32_t id_base;
    uint32_t in_file;                  /* fs[0] is a file system in a file */
    uint64_t disk_bytes, inodes;       /* limits of the jail */
    uint64_t other_bytes, other_files; /* what layers of other file systems count against them */
    uint32_t live, live_next;
    uint32_t layer;      /* number of the new layer */
    uint32_t merge;      /* number of another new layer that `stack` is merged into first; 0 = no */
    uint32_t copied;     /* number of the last copy of the live directory; 0 = none */
    uint32_t merge_room; /* inodes that it may take */
    uint32_t litter;     /* number of a layer that was begun and given up; 0 = none */
    uint32_t own_layers; /* on fs[0], before this */
    uint32_t depth;
    struct layers_request_layer stack[LAYERS_DEPTH_MAX]; /* newest first */
    uint32_t fds;      /* descriptors that follow: enum layers_fd, then one of each fs */
    uint32_t fs_count; /* fs[0] is the volume's own */
    struct layers_request_fs fs[LAYERS_FS_MAX];
};

/* The first descriptors; those of file systems follow. An own file system that is to be made or
 * adopted has none. A placeholder stands where there is nothing to send. */
enum layers_fd { LAYERS_FD_MNT, LAYERS_FD_USER, LAYERS_FD_WRITABLE, LAYERS_FD_DISK, LAYERS_FD_FS };

#define LAYERS_FDS_MAX (LAYERS_FD_FS + LAYERS_FS_MAX)

enum layers_reply_type { LAYERS_BIRTH = 1, LAYERS_REPLY };

struct layers_birth {
    uint32_t type; /* one descriptor: the pidfd */
    int32_t pid;
};

enum layers_reply_flag {
    LAYERS_SWITCHED = 1,  /* the live directory is live_next now, over the layers asked for */
    LAYERS_BROKEN = 2,    /* neither the old nor the new state: the jail cannot go on */
    LAYERS_OWN = 4,       /* descriptors: the root of the volume's own file system; for FORMAT,
                             the same with the ids of the jail */
    LAYERS_LAYER = 8,     /* `layer` is there */
    LAYERS_MERGED = 16,   /* `merge` is there */
    LAYERS_LINKABLE = 32, /* `layer` is a copy that the next copy may link to */
};

struct layers_reply {
    uint32_t type;
    uint32_t flags;
    int32_t code; /* 0, or errno */
    uint32_t reserved;
    uint64_t layer_bytes, layer_files;
    uint64_t merge_bytes, merge_files;
    uint64_t linked_bytes;            /* of layer_bytes: in files that the last copy has as well */
    uint64_t base_bytes, base_inodes; /* OWN: in use before anything of the jail's is there */
    char text[WIRE_TEXT_MAX];
};

/* What a worker is given by the process that forks it. */
struct layers_home {
    int sock;     /* where its request waits */
    int store;    /* directory under which file systems of layers are mounted … */
    int store_ns; /* … and the mount namespace that it is in, which the worker is born in */
};

/* Does one piece of work and ends the process. */
void layers_work_run(const struct layers_home *home) __attribute__((noreturn));
