/* A redo log: what must not be lost is appended with one write(2) and brought into the database a
 * moment later, many at once.
 *
 * A commit of SQLite costs ten writes and a hundred microseconds; this costs one and ten. Like the
 * database's own log it survives the death of the process, not of the machine (nothing is fsynced).
 * An entry is whole or not there: it carries its length and a hash (BLAKE2b-128), and reading ends
 * at the first that is not whole: nobody was told of that one.
 *
 * The first REDO_ROOM bytes stay the file's own when it is emptied, so that there is room on a full
 * disk as well. What is behind the newest entry is therefore old, and may have been written by
 * anybody: the hashes are keyed, with a key in front of the file that changes whenever it is
 * emptied. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "err.h"

#define REDO_ENTRY_MAX ((size_t)1024 * 1024)
#define REDO_PARTS_MAX 4u
#define REDO_ROOM ((uint64_t)1024 * 1024)
#define REDO_KEY_SIZE 16u

struct redo {
    int fd;       /* owned; -1 = none */
    uint64_t len; /* up to the end of the newest entry */
    size_t entries;
    bool old; /* without a key, from an older server: nothing is added before it is emptied */
    uint8_t key[REDO_KEY_SIZE];
};

/* Opens dir/name, or makes it with mode 0600. What is in it stays until redo_reset(). */
int redo_open(struct redo *r, int dir, const char *name, struct err *err);
void redo_close(struct redo *r); /* fd -1 allowed */
/* Calls fn for each whole entry, in order; a failure of fn ends it. What is not whole is cut off,
 * so that entries can be added. Before that nothing can be. */
int redo_read(struct redo *r, int (*fn)(void *arg, const char *data, size_t len, struct err *err),
              void *arg, struct err *err);
/* Appends one entry made of `count` parts. On failure (ENOSPC, too long) there is none. */
int redo_add(struct redo *r, const struct iovec *parts, size_t count, struct err *err);
/* Everything in it is in the database: it is emptied. */
void redo_reset(struct redo *r);
