/* Writing below a local directory what came from elsewhere: no path leaves the directory, no link
 * is followed on the way, each file appears whole or not at all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "err.h"

/* 0 when `path` (relative, `len` bytes) stays below: no "..", no empty component, not absolute.
 * With `git` false nothing may be in a .git either: its hooks and settings run programs. */
int local_tree_check(const char *path, size_t len, bool git, struct err *err);
/* Opens the directory that holds `path` below `top`, making directories as needed, and points *name
 * at the last component. `path` is cut into pieces. -> descriptor */
int local_tree_parent(int top, char *path, const char **name, struct err *err);
/* Opens the directory `name` of `dir`, which must be one, or makes it with that mode. */
int local_tree_enter(int dir, const char *name, mode_t mode, struct err *err);

#define LOCAL_TREE_TEMP_MAX 48
/* A name that nobody can guess, for what is to be renamed when it is complete. */
int local_tree_temp_name(char temp[LOCAL_TREE_TEMP_MAX], struct err *err);
/* A new file under such a name; the umask takes its part of the mode. -> descriptor */
int local_tree_temp(int dir, char temp[LOCAL_TREE_TEMP_MAX], mode_t mode, struct err *err);
/* Puts it in place, over what is there. It is removed on failure. */
int local_tree_place(int dir, const char *temp, const char *name, struct err *err);
