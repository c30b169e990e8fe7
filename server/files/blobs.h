/* Contents by the SHA-256 of their bytes: what workspace transfer sends ahead and fetches later.
 *
 *   STATE/server/blobs/ab/cdef…              the bytes, once for all users
 *                      owners/NAME/ab/cdef…  a hard link to them per user who may use them
 *                      tmp/N                 being written
 *
 * A user may use what he uploaded, whole, or what was read out of his sandbox for him: knowing a
 * hash is not having the contents, and nobody can find out what others have. Bytes whose last owner
 * is gone go, too.
 *
 * Each user has a quota, in which every blob counts as the blocks that it takes. What was used
 * longest ago makes room for what comes, unless it is pinned: named by a sync that waits for the
 * rest of its contents. What nobody used for days goes as well.
 *
 * The bytes are not synced to the disk, since they are only a copy of what somebody has elsewhere:
 * a file may be cut after a crash of the machine. So all of them go when it was restarted, as the
 * sandboxes that they were for. All calls are for the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"

#define BLOBS_SHA256_SIZE 32u

struct blobs;
struct blobs_put;

struct blobs_options {
    uint64_t user_bytes; /* quota of each user */
    uint64_t age_ms;
    /* Where files of what was evicted are removed, a few per turn; it counts as gone at once. NULL:
     * all at once. What is left of them at the end is there again at the next start. */
    struct loop *loop;
};

/* In the directory `server_dir` (borrowed), which is STATE/server: removes leftovers. */
struct blobs *blobs_open(int server_dir, const struct blobs_options *options, struct err *err);
void blobs_close(struct blobs *b); /* NULL allowed */

/* Does this user have it? */
bool blobs_has(struct blobs *b, const char *user, const unsigned char *sha256, uint64_t *size);
/* A descriptor for reading it, which counts as use. -1: ERR_INVALID when he does not have it. */
int blobs_read(struct blobs *b, const char *user, const unsigned char *sha256, uint64_t *size,
               struct err *err);
/* What is pinned is not evicted; also what comes only later. Each pin is taken back once. -1 only
 * when memory is short. */
int blobs_pin(struct blobs *b, const char *user, const unsigned char *sha256);
void blobs_unpin(struct blobs *b, const char *user, const unsigned char *sha256);
/* The same for many, in pieces when there is a loop. `pins` is taken over (malloc, NULL allowed).
 */
void blobs_unpin_all(struct blobs *b, const char *user, unsigned char (*pins)[BLOBS_SHA256_SIZE],
                     size_t count);

struct blobs_usage {
    uint64_t bytes, count; /* as counted for the quota */
    uint64_t quota;
};
struct blobs_usage blobs_usage(const struct blobs *b, const char *user);

/* Takes in a blob in pieces. `length`: how many bytes are to come, UINT64_MAX = not known.
 * ERR_LIMIT: over the quota; ERR_SYSTEM with ENOSPC or EDQUOT: the disk is full. */
struct blobs_put *blobs_put_start(struct blobs *b, const char *user, uint64_t length,
                                  struct err *err);
int blobs_put_write(struct blobs_put *p, const void *data, size_t len, struct err *err);
/* The blob is whole. `expected` (may be NULL): ERR_INVALID when it has another hash. 0: it is his;
 * sha256 (may be NULL) is what it is, *had (may be NULL) says that he had it before. Frees p in any
 * case. */
int blobs_put_finish(struct blobs_put *p, const unsigned char *expected,
                     unsigned char sha256[BLOBS_SHA256_SIZE], bool *had, struct err *err);
/* Nothing is kept. NULL allowed. */
void blobs_put_abort(struct blobs_put *p);
