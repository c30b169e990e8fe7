/* What the operations of files share. Each is a function that returns 0 when END is to be sent, and
 * -1 with errno when the operation as a whole failed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fileop_io.h"

struct fileop_op {
    char **argv; /* argv[0] is the operation */
    int upper;   /* the overlay's upper directory, or -1 */
    uint32_t end_flags;
    struct fileop_in item;
    struct fileop_io io;
};

/* Arguments: EINVAL. */
int fileop_op_number(const char *text, uint64_t max, uint64_t *value);
int fileop_op_yes(const char *text, bool *yes);
/* -1 gives *none. */
int fileop_op_mode(const char *text, mode_t *mode, bool *none);
/* Closes and keeps errno. */
void fileop_op_close(int fd);

/* An ENTRY without contents: `name` in `dir`, told as `path`. */
int fileop_op_entry(struct fileop_op *o, int dir, const char *name, const struct stat *st,
                    const char *path, size_t len);
/* The same of what is there now; ENOENT and the like are the operation's own failure. */
int fileop_op_entry_of(struct fileop_op *o, int dir, const char *name, const char *path);

/* fileop_look.c */
int fileop_stat(struct fileop_op *o);
int fileop_list(struct fileop_op *o);
int fileop_scan(struct fileop_op *o);
int fileop_upper(struct fileop_op *o);
int fileop_look(struct fileop_op *o);
/* fileop_read.c */
int fileop_read(struct fileop_op *o);
int fileop_pack(struct fileop_op *o);
int fileop_fetch(struct fileop_op *o);
/* fileop_write.c */
int fileop_write(struct fileop_op *o);
int fileop_mkdir(struct fileop_op *o);
int fileop_move(struct fileop_op *o);
/* fileop_remove.c */
int fileop_remove(struct fileop_op *o);
/* Removes a tree without following a link; not there is no failure. */
int fileop_remove_tree(int dir, const char *name);
/* Removes from a directory what an apply has left that was killed: it would take room, unseen. */
void fileop_remove_stale(int dir);
/* fileop_unpack.c */
int fileop_unpack(struct fileop_op *o);
/* fileop_apply.c */
int fileop_apply(struct fileop_op *o);
/* fileop_watch.c */
int fileop_watch(struct fileop_op *o);
