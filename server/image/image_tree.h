/* Writes a file tree below one directory, for a caller that is root and names that are hostile.
 *
 * Every path is resolved by openat2 below the directory, through real directories only; so no
 * symbolic link, made by an earlier entry or by anybody else, leads a write elsewhere. Nothing that
 * exists is followed, and nothing changes its type. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define IMAGE_TREE_DEPTH_MAX 128u

struct image_tree {
    int root; /* borrowed */
    /* The directory of the last entry, since entries come in clusters. */
    int parent;
    char parent_path[4096];
};

void image_tree_init(struct image_tree *t, int root);
void image_tree_done(struct image_tree *t);

/* Brings `path` (len bytes, any) into the form "a/b/c" in out[4096]: strips "./", doubled and final
 * slashes. 1 = done, 0 = it is the root itself. ERR_INVALID: absolute, "..", a NUL, a name of more
 * than 255 bytes, too long or too deep. */
int image_tree_normalise(const char *path, size_t len, char out[4096], struct err *err);

/* In all of these `path` is normalised. Missing parents are made, 0755. Modes are taken & 0777. */

/* A directory; one that exists gets the mode. */
int image_tree_dir(struct image_tree *t, const char *path, mode_t mode, struct err *err);
/* A new, empty regular file open for writing; an existing regular file is replaced. -> fd, with the
 * mode to be set by image_tree_file_end(). */
int image_tree_file(struct image_tree *t, const char *path, struct err *err);
int image_tree_file_end(int fd, uint64_t size, mode_t mode, int64_t mtime, struct err *err);
int image_tree_symlink(struct image_tree *t, const char *path, const char *text, struct err *err);
/* `target` (normalised) must be a regular file or a symbolic link of this tree. */
int image_tree_hardlink(struct image_tree *t, const char *path, const char *target,
                        struct err *err);

/* For layers, where an entry takes the place of what is there. `path` is normalised, and without
 * links (image_follow.h): on the way to it only real directories are passed. */

/* Makes room for an entry: removes what is there and everything below it, but for a directory that
 * is to be one (`dir`). */
int image_tree_displace(struct image_tree *t, const char *path, bool dir, struct err *err);
/* Removes what is there, if there is anything. */
int image_tree_take_away(struct image_tree *t, const char *path, struct err *err);
/* Removes everything in the directory ("" = the root), if there is one. */
int image_tree_clear_dir(struct image_tree *t, const char *path, struct err *err);

/* Opens the regular file `path` below `root` for reading, without waiting; no symbolic link is
 * followed, unless `links`, and then none that leads out. -> fd */
int image_tree_open_file(int root, const char *path, bool links, struct err *err);
/* Opens the directory `path` of the tree, no link on the way. -> fd. ERR_SYSTEM with ENOENT, ELOOP,
 * ENOTDIR. */
int image_tree_open_dir(int root, const char *path, struct err *err);

/* Removes `name` of `dir` and everything below. Follows nothing. */
int image_tree_remove(int dir, const char *name, struct err *err);
