/* Mounts by descriptor. A mount is made detached, gets its flags, and is attached last, so that no
 * path is looked up twice and nothing is ever visible with weaker flags than it is to have. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

/* A file system that was made here: its context (to reconfigure it) and its mount. -1 = none. */
struct mnt_fs {
    int context;
    int mount;
};

struct mnt_option {
    const char *key;
    const char *value;
};

/* Makes a file system of `type` with `options` (ends with .key == NULL), mounted nowhere yet, with
 * MOUNT_ATTR_* flags. The caller owns *out (mnt_fs_done()). */
int mnt_fs_new(const char *type, const struct mnt_option *options, uint64_t attrs,
               struct mnt_fs *out, struct err *err);
void mnt_fs_done(struct mnt_fs *fs);
/* Makes the file system itself read-only, for every mount of it, and adds `attrs` to its mount. */
int mnt_fs_seal(const struct mnt_fs *fs, uint64_t attrs, struct err *err);

/* A detached copy of the mount at `path` (relative to dirfd; "" = dirfd itself), with everything
 * mounted below it when `recursive`, private, with `attrs` added to each of its mounts. The final
 * component must not be a symbolic link. -> descriptor. */
int mnt_clone(int dirfd, const char *path, bool recursive, uint64_t attrs, struct err *err);

/* Opens `path` below `root` as a mount target: O_PATH, no symbolic link in any component, nothing
 * outside of `root`, of the given type (S_IFDIR or S_IFREG). ERR_INVALID with a sentence that names
 * it when it is not. */
int mnt_open_target(int root, const char *path, mode_t type, struct err *err);

/* Attaches a detached mount on the open target. */
int mnt_attach(int mount, int target, struct err *err);
