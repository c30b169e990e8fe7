/* Runs one file operation (fileop.h) in a sandbox: sends the EXEC, feeds its stdin, reads and
 * checks its records. Everything that comes is hostile: lengths and paths are checked before they
 * are used.
 *
 * All on the loop's thread; contents go through in pieces, so that a gigabyte needs no memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "fileop.h"
#include "sandbox.h"

struct fileop_run;

/* One record, with what follows it. Valid during the call. */
struct fileop_item {
    struct fileop_record rec;
    const char *path; /* NUL-terminated */
    const char *target;
    const char *data; /* rec.data_len bytes */
};

struct fileop_result {
    enum fileop_code code; /* FILEOP_OK, or why it failed as a whole */
    int sys;               /* errno, 0 = none */
    bool more;             /* of list */
    char message[256];     /* one plain sentence when code is not OK; names the path */
};

struct fileop_run_ops {
    /* A record of the answer other than END and the final ERROR. -1: give up (done() follows with
     * FILEOP_IO). While paused none comes. */
    int (*item)(void *arg, const struct fileop_item *item);
    /* There is room in the operation's stdin: write on (fileop_run_put…). May be NULL. */
    void (*writable)(void *arg);
    /* Last call, always. The run is freed afterwards. */
    void (*done)(void *arg, const struct fileop_result *result);
};

/* argv: the operation and its arguments, argc strings. `upload`: it reads its stdin. NULL: *err
 * (ERR_STATE: not READY or PAUSED; ERR_LIMIT: too many at once). */
struct fileop_run *fileop_run_start(struct sandbox *sb, const char *const *argv, size_t argc,
                                    bool upload, const struct fileop_run_ops *ops, void *arg,
                                    struct err *err);
/* Reads no more until resumed: whoever takes the records is slow. */
void fileop_run_pause(struct fileop_run *r);
void fileop_run_resume(struct fileop_run *r);
/* Stops it; done() comes with FILEOP_IO unless it was called already. */
void fileop_run_cancel(struct fileop_run *r);

/* Puts a record into the stream to the operation's stdin. Bytes are copied into a bounded buffer;
 * returns 1 when there is room for more, 0 when `writable` should be waited for, -1 when the
 * operation is over (done() comes). */
int fileop_run_put(struct fileop_run *r, const struct fileop_record *rec, const char *path,
                   const char *target, const void *data);
/* END, then end of file. */
void fileop_run_finish(struct fileop_run *r);

/* How HTTP says it: 404 not_found, 403 denied, 409 …, 413, 507 no_space, 500 io. */
int fileop_status(enum fileop_code code);
