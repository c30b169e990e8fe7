/* Paths of file operations: absolute ones, which mean what they mean to any program of the jail,
 * and those of records, below a directory, where no link is followed. Failures are in errno. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fileop.h"

#define FILEOP_PATH_NAME 256 /* one name with its NUL */
#define FILEOP_PATH_SECRET 48

/* Absolute, of a sensible length? 0, or -1 EINVAL, ENAMETOOLONG. */
int fileop_path_check(const char *path);
/* Opens a checked path; links are followed, but none of /proc/PID. */
int fileop_path_open(const char *path, uint64_t flags);
/* A directory for fileop_walk(). */
int fileop_path_dir(const char *path);
/* The directory of the last name: O_PATH. `make`: missing ones are made, 0755. The name is "" for
 * the root, and never "." or ".." (EISDIR). */
int fileop_path_parent(const char *path, bool make, char name[FILEOP_PATH_NAME]);
/* The same of a path that may be relative to `base`, as the target of a link is. */
int fileop_path_parent_at(int base, const char *path, bool make, char name[FILEOP_PATH_NAME]);
/* A directory that is made, with its parents, when it is not there. */
int fileop_path_make(const char *path);

/* Opens for reading what the caller has just seen to be a regular file, without following it and
 * without waiting: ENXIO when it is something else by now. (Whoever opens a FIFO to find out lets a
 * program go on that waits to write into it.) *st is of what is open. */
int fileop_path_regular(int dir, const char *name, struct stat *st);
/* Is it something of /proc? */
bool fileop_path_is_proc(int fd);

/* The directory that holds another one: O_PATH. EXDEV when that is another mount. */
int fileop_path_above(int dir);
/* Is something mounted on `name` in `dir`? */
bool fileop_path_mounted(int dir, const char *name);
/* Opens `path` below a directory, following no link at all. */
int fileop_path_below(int dir, const char *path, uint64_t flags);

/* A directory and a cache of one parent below it. */
struct fileop_below {
    int root; /* borrowed */
    int dir;  /* of dir_path; -1 = none */
    char dir_path[FILEOP_PATH_MAX + 1];
    /* Told of each directory that was made on the way, by its path. May be NULL. -1: stop. */
    int (*made)(void *arg, const char *path);
    void *arg;
};

void fileop_below_init(struct fileop_below *b, int root);
void fileop_below_done(struct fileop_below *b);
/* Forgets the parent, which may have been moved. */
void fileop_below_forget(struct fileop_below *b);
/* The parent of `path`, borrowed until the next call, and in *name its last component. `make` as
 * above. ELOOP when a component is a link. */
int fileop_below_parent(struct fileop_below *b, const char *path, bool make, const char **name);

/* A name for work in progress: FILEOP_HIDDEN and random digits. */
void fileop_path_secret(char name[FILEOP_PATH_SECRET]);
bool fileop_path_hidden(const char *name);
/* Has a path such a name in it? */
bool fileop_path_hides(const char *path);
