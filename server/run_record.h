/* A run as bytes, and back: what the store keeps.
 *
 *   "PFR1", then sections: a tag, a length, bytes. Numbers are LEB128 (seven bits a byte, the
 * lowest first); bytes are a length and the bytes. A reader skips sections that it does not know,
 * and takes what is missing at the end of one as zero: so newer servers may add to both.
 *
 * Of a run that is over it is everything that its answer, its events and its raw outputs are made
 * of. Of one that is not, it is what is needed to end it as interrupted, or to queue it again
 * together with its request.
 *
 * Monotonic times are kept as distances from the moment when the run was accepted. */
#pragma once

#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "run.h"

/* Nothing that run_record_write() makes is longer: all output of all steps, and what was
 * collected. */
#define RUN_RECORD_MAX ((size_t)8 * 1024 * 1024 * 1024)

/* Appends the record. Of a run that is over it only reads, and may be called on any thread. */
int run_record_write(const struct run *run, struct buf *out, struct err *err);
/* As that, without the bytes: of a run that is over, when there is no room for them. Output is
 * counted as left out, and collected files are missing for "no_space". */
int run_record_write_bare(const struct run *run, struct buf *out, struct err *err);
/* Makes the run of a record; it belongs to `runs` but is not in its table. Touches nothing else, so
 * any thread may call it. A run that was over is RUN_DONE; another is RUN_QUEUED, without a
 * request. NULL: ERR_INVALID when it is not a record. */
struct run *run_record_read(struct runs *runs, const void *data, size_t len, struct err *err);
