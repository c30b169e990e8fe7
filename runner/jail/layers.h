/* Layers: the writable file system of a sandbox, its snapshots, and what they share.
 *
 * A volume is the writable file system of one jail: at first the tmpfs that process 1 mounted, with
 * the directories home, tmp, var_tmp, shm and workspace in it. Nothing of it changes before the
 * first snapshot. A snapshot keeps home, var_tmp and workspace:
 *
 *   switch  when no command runs: the live directories become a read-only layer as they are, and an
 *           overlay of a new, empty upper directory over all layers takes their places in the mount
 *           namespace of the jail. Costs the same for a workspace of any size.
 *   copy    when commands run, whose open files cannot change places: the live upper is copied into
 *           a layer, except for files that have not changed since the last copy, which are linked.
 *           The commands must be frozen meanwhile.
 *
 * A layer is a directory on the file system of the volume that it came from. It is counted: by the
 * snapshots that it is a part of and the volumes that stand on it; what nobody needs is removed,
 * and a file system goes with its last layer. Other jails have other user ids, so they see a layer
 * through an id-mapped mount. When a volume stands on LAYERS_DEPTH_MAX layers, the next snapshot
 * merges them into one (the kernel takes 500); in the background that is done when snapshots were
 * dropped and the layers that are left may hold much that nobody can reach. A merge links files, so
 * that it takes no room.
 *
 * Everything that may take time is done by a process of its own, forked from a small one that was
 * forked at start, so that the shard's loop never waits. Such a process acts on files that hostile
 * programs made: it goes by descriptors, follows no link, and when it creates or reads it has the
 * ids and, wherever the kernel allows it, only the powers of the jail's own root.
 *
 * One operation at a time per volume: the caller waits for its callback. Callbacks come from the
 * loop, never from within a call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "loop.h"
#include "wire.h"

#define LAYERS_DEPTH_MAX 32u

struct layers;
struct layers_volume;

struct layers_config {
    struct loop *loop;    /* borrowed */
    int disk_dirfd;       /* STATE/disk, for WIRE_DISK_FILE; borrowed; -1 = not to be had */
    uint64_t layer_bytes; /* no more snapshots once layers hold as much; 0 = any */
    bool rootless;        /* none of it can be done: the kernel keeps it for the host's root */
    /* The process that has all layers mounted, and makes new ones, has ended: from now on every
     * operation fails, and no snapshot can be used. Once; may be NULL. */
    void (*lost)(void *arg);
    void *arg;
};

struct layers_result {
    int code;       /* 0, or an errno as in struct wire_done */
    uint64_t bytes; /* SNAPSHOT: what the whole snapshot holds */
    uint64_t files; /* … in how many files, directories and links */
    uint64_t added_bytes;
    uint32_t depth;           /* layers below the live directories now */
    char text[WIRE_TEXT_MAX]; /* one sentence when code is not 0 */
};

typedef void layers_done(void *arg, const struct layers_result *result);

/* Forks the process that later forks the workers: call it before anything large or secret is in
 * memory. */
struct layers *layers_new(const struct layers_config *cfg, struct err *err);
/* Forgets all snapshots; volumes must be gone. NULL allowed. */
void layers_free(struct layers *layers);

/* Can this host do it? NULL = yes, else one sentence with the remedy. Tried once, at layers_new().
 * Snapshots: of volumes that are made of `disk`. The ids of a tmpfs can be mapped since Linux 6.3,
 * those of ext4 since 5.12 and in layers of an overlay since 5.19; so there are kernels on which
 * only what is in a file can be kept. */
const char *layers_snapshots_missing(const struct layers *layers, enum wire_disk disk);
const char *layers_files_missing(const struct layers *layers);

/* What a volume is made of. */
struct layers_jail {
    pid_t pid;         /* process 1, outside; lives until layers_close(), or see pidfd */
    int pidfd;         /* of it; borrowed. 0 = it is our child, whose number is kept for us */
    int writable_fd;   /* root of its tmpfs; borrowed, must stay open until layers_close() */
    uint32_t writable; /* mask of enum wire_writable */
    uint32_t id_base, id_count;
    uint64_t disk_bytes, inodes; /* limits of all that is writable */
};

/* Makes no system call. */
struct layers_volume *layers_open(struct layers *layers, const struct layers_jail *jail,
                                  struct err *err);
/* The jail is dead, or never needed the volume. An operation that is in progress is ended, its
 * callback does not come. NULL allowed. */
void layers_close(struct layers_volume *v);

/* Before the first command: makes the volume a file system in a file, or has it start from a
 * snapshot ("" = empty), or both. What the snapshot holds counts as used. */
void layers_prepare(struct layers_volume *v, enum wire_disk disk, const char *from,
                    layers_done *done, void *arg);
/* `quiet`: no command runs, so that nothing but file operations has anything open; a switch is
 * tried, and a copy made when it is refused. Keys are never used twice. */
void layers_snapshot(struct layers_volume *v, const char *key, bool quiet, layers_done *done,
                     void *arg);
/* No command runs. */
void layers_restore(struct layers_volume *v, const char *key, layers_done *done, void *arg);

/* Did an operation leave it so that the jail must not go on? Its result said why. */
bool layers_broken(const struct layers_volume *v);

/* The live upper directory (home, var_tmp, workspace in it) for the file operation "upper": a new
 * descriptor, or -1 with ERR_STATE before the first snapshot. */
int layers_upper(const struct layers_volume *v, struct err *err);
/* Bytes and inodes in use beyond what set-up took, all layers of this volume's own file system
 * included; *full when one of the limits is met. */
int layers_use(const struct layers_volume *v, uint64_t *bytes, uint64_t *inodes, bool *full);

/* -> false when there is no such snapshot. `bytes` and `files` may be NULL. */
bool layers_find(const struct layers *layers, const char *key, uint64_t *bytes, uint64_t *files);
/* No new use will be made of it; what stands on it goes on. */
void layers_drop(struct layers *layers, const char *key);
/* Calls fn for each snapshot. */
void layers_each(const struct layers *layers,
                 void (*fn)(void *arg, const char *key, uint64_t bytes, uint64_t files), void *arg);
