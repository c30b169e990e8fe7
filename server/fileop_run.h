/* Runs one file operation (fileop.h) in a sandbox: sends the EXEC, feeds its stdin, reads and
 * checks its records. Everything that comes is hostile: lengths and paths are checked before they
 * are used.
 *
 * At most FILEOP_RUN_SLOTS of them work in one sandbox at once; more wait in a queue, which is
 * bounded, too. Watches count on their own, and none waits.
 *
 * All on the loop's thread; contents go through in pieces, so that a gigabyte needs no memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "fileop.h"
#include "fileop_parse.h"
#include "fileop_status.h"
#include "sandbox.h"

#define FILEOP_RUN_SLOTS 32u
#define FILEOP_RUN_WATCHES 8u
#define FILEOP_RUN_QUEUE 256u

struct fileop_run;

struct fileop_run_ops {
    /* A record of the answer other than END and the final ERROR (fileop_parse.h says how contents
     * come). -1: give up (done() follows with FILEOP_IO). While paused none comes. */
    int (*item)(void *arg, const struct fileop_item *item);
    /* There is room in the operation's stdin: write on (fileop_run_put…), or nobody reads it any
     * more. May be NULL. */
    void (*writable)(void *arg);
    /* Not NULL: contents are not told as items, but taken by fileop_run_read(). This says that
     * there are some, or that their end or failure can be read. */
    void (*readable)(void *arg);
    /* Last call, always. The run is freed afterwards. */
    void (*done)(void *arg, const struct fileop_result *result);
};
/* No callback comes from within a call of the functions below. */

/* argv: the operation and its arguments, argc strings. `upload`: it reads its stdin. NULL: *err
 * (ERR_STATE: not READY or PAUSED; ERR_LIMIT: too many wait). */
struct fileop_run *fileop_run_start(struct sandbox *sb, const char *const *argv, size_t argc,
                                    bool upload, const struct fileop_run_ops *ops, void *arg,
                                    struct err *err);
/* Reads no more until resumed: whoever takes the records is slow. */
void fileop_run_pause(struct fileop_run *r);
void fileop_run_resume(struct fileop_run *r);
/* Contents of the current file into `data`: how many bytes, at most `size`. 0: none now, readable()
 * will say when. -1: that was all of this file; items come again. -2: cut short; done() says why.
 */
ssize_t fileop_run_read(struct fileop_run *r, char *data, size_t size);
/* The same, but the bytes go straight into a socket that does not block, without being copied.
 * FILEOP_RUN_FULL: the socket takes none now. -2 stands for a socket that has failed, too. */
#define FILEOP_RUN_FULL (-3)
ssize_t fileop_run_read_to(struct fileop_run *r, int socket, size_t size);
/* What is left of contents is thrown away; done() comes when the operation is over. */
void fileop_run_skip(struct fileop_run *r);
/* Stops it; done() comes with FILEOP_IO unless it was called already. */
void fileop_run_cancel(struct fileop_run *r);

/* Puts a record into the stream to the operation's stdin (magic is filled in). It is taken whole;
 * returns 1 when there is room for more, 0 when `writable` should be waited for, -1 when the
 * operation reads no more (done() comes). */
int fileop_run_put(struct fileop_run *r, const struct fileop_record *rec, const char *path,
                   const char *target, const void *data);
/* For contents that come in pieces: a DATA record is put with `data` NULL, which announces its
 * data_len bytes, and these follow here. Takes as many as there is room for: their number; 0 = wait
 * for `writable`; -1 = it reads no more. */
ssize_t fileop_run_put_bytes(struct fileop_run *r, const void *data, size_t len);
/* END, then end of file. */
void fileop_run_finish(struct fileop_run *r);
/* For who has records written elsewhere: takes the writing end of stdin away, which blocks;
 * nothing may have been put. */
int fileop_run_take_stdin(struct fileop_run *r);
/* Likewise for who reads the records elsewhere: the reading end of stdout, which blocks. No item
 * comes; done() has FILEOP_OK when the process ended by itself, and the records say the rest. */
int fileop_run_take_stdout(struct fileop_run *r);
