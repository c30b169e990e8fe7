/* New files that take their place whole: under no name, or a hidden one, until they are done. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "fileop.h"
#include "fileop_path.h"

struct fileop_temp {
    int fd;                        /* open for reading and writing */
    int dir;                       /* borrowed */
    char name[FILEOP_PATH_SECRET]; /* "" = none */
};

/* A new regular file in `dir`, mode 0600. */
int fileop_make_temp(struct fileop_temp *t, int dir);
/* Gives it its name, in place of what has it, unless `replace` is false (EEXIST). A directory is
 * replaced when it is empty and `replace` says so (EISDIR). The descriptor stays open. */
int fileop_make_place(struct fileop_temp *t, const char *name, bool replace);
/* Closes it; it is gone unless it was placed. */
void fileop_make_done(struct fileop_temp *t);

/* Renames what was made under a hidden name; removes it on failure. An empty directory gives way.
 */
int fileop_make_settle(int dir, const char *secret, const char *name);
/* Makes the link or FIFO of a record, in place of what is there: mode and time included. */
int fileop_make_special(int dir, const char *name, const struct fileop_record *rec,
                        const char *target);
/* rename(2) with one of the flags. */
enum fileop_make_how {
    FILEOP_MAKE_REPLACE = 0,
    FILEOP_MAKE_NOREPLACE = 1, /* EEXIST */
    FILEOP_MAKE_EXCHANGE = 2,  /* both stay, each under the other's name */
};
int fileop_make_rename(int from, const char *from_name, int to, const char *to_name,
                       enum fileop_make_how how);
/* Sets mode and time of an open file or directory. */
int fileop_make_attributes(int fd, const struct fileop_record *rec);
/* The times for utimensat(2). */
void fileop_make_times(const struct fileop_record *rec, struct timespec times[2]);
