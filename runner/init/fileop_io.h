/* Records in and out of a file operation, buffered; contents go between file and pipe without a
 * stop in this process where the kernel can do that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fileop.h"

#define FILEOP_IO_OUT 262144u
#define FILEOP_IO_IN 65536u
#define FILEOP_IO_SMALL 65536u /* contents up to here are read whole before they are told */

/* What came in. */
struct fileop_in {
    struct fileop_record rec;
    char path[FILEOP_PATH_MAX + 1]; /* NUL-terminated */
    char target[FILEOP_TARGET_MAX + 1];
};

struct fileop_io {
    int in, out;
    bool dead;    /* nobody reads the answer */
    bool copy_in; /* the kernel cannot move data from `in` itself */
    bool copy_out;
    uint32_t data_left; /* of the DATA record that was read last */
    size_t in_pos, in_len;
    size_t out_len;
    char in_buf[FILEOP_IO_IN];
    char out_buf[FILEOP_IO_OUT];
    char data[FILEOP_IO_IN];
};

/* Fills in what stat(2) says; magic and type ENTRY too. */
void fileop_io_entry(struct fileop_record *rec, const struct stat *st);

/* Appends a record; lengths and magic are filled in. 0, or -1 EPIPE when nobody reads. */
int fileop_io_put(struct fileop_io *io, struct fileop_record *rec, const char *path, size_t len,
                  const char *target);
/* An ERROR record about `path`. */
int fileop_io_error(struct fileop_io *io, const char *path, size_t len, int code);
int fileop_io_flush(struct fileop_io *io);

/* DATA records of `size` bytes of a file from `offset` on, and the empty one. *shrunk: there was
 * less. -1: errno of reading, or EPIPE. */
int fileop_io_contents(struct fileop_io *io, int fd, uint64_t offset, uint64_t size, bool *shrunk);
/* An ENTRY with all of the contents of a regular file; an ERROR behind it when it shrank. */
int fileop_io_file(struct fileop_io *io, int fd, const struct stat *st, const char *path,
                   size_t len);

/* The next record. 1, 0 = the stream ends here, -1 = EPROTO. What is left of the data of the one
 * before is skipped. */
int fileop_io_next(struct fileop_io *io, struct fileop_in *item);
/* Writes the data of the DATA record to `fd`. -1 with errno; EPROTO = the stream ended. */
int fileop_io_take(struct fileop_io *io, int fd);
/* Writes the DATA records behind an ENTRY to `fd`, up to the empty one. `item` is overwritten. */
int fileop_io_take_all(struct fileop_io *io, struct fileop_in *item, int fd);
