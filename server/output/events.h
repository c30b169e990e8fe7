/* The events of a run: a list of records with dense numbers 1, 2, 3, …
 *
 * A record of output holds no bytes, only an offset and a length in its stream's capture. So a run
 * that prints for hours keeps a bounded list and bounded bytes; what somebody who comes back late
 * can no longer get is told to him as one event `omitted` with the number of bytes.
 *
 * A record never changes once somebody has seen it (events_seal()); until then the next output of
 * the same stream extends it, so that a program that writes byte by byte makes few events.
 *
 * Kept are the first EVENTS_KEEP records and the last EVENTS_KEEP. Records of output that fall out
 * between are merged into gaps; records of any other type are never dropped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define EVENTS_KEEP 8192u
#define EVENTS_CHUNK_MAX ((size_t)64 * 1024) /* bytes of one output event */

enum events_type {
    EVENTS_STARTED = 1, /* a step's command is about to run */
    EVENTS_STDOUT,
    EVENTS_STDERR,
    EVENTS_END,        /* a step ended */
    EVENTS_SKIPPED,    /* a step that will not run */
    EVENTS_DONE,       /* the run is over; always last */
    EVENTS_GAP_STDOUT, /* merged records: `len` bytes that are gone, numbers up to `seq` */
    EVENTS_GAP_STDERR,
};

struct events_record {
    uint64_t seq;
    uint64_t offset; /* output: where in the stream */
    uint64_t len;    /* output and gaps: bytes */
    uint16_t step;
    uint8_t type; /* enum events_type */
    bool sealed;
};

struct events {
    struct events_record *first; /* records 1 … EVENTS_KEEP */
    size_t first_count, first_alloc;
    struct events_record *mid; /* gaps and what may not be dropped, by seq */
    size_t mid_count, mid_alloc;
    struct events_record *last; /* ring */
    size_t last_start, last_count, last_alloc;
    uint64_t next_seq; /* of the next record */
};

void events_init(struct events *e);
void events_done(struct events *e);

/* Adds a record that is not output. */
int events_add(struct events *e, enum events_type type, uint16_t step, struct err *err);
/* Adds output: `len` bytes at `offset` of the stream of `type`; extends the newest record when that
 * one is of the same stream, ends at `offset`, is not sealed, and has room for all of it. len is at
 * most EVENTS_CHUNK_MAX. */
int events_output(struct events *e, enum events_type type, uint16_t step, uint64_t offset,
                  size_t len, struct err *err);
/* Bytes by which events_output() could extend the newest record for this stream; 0 = none. */
size_t events_extensible(const struct events *e, enum events_type type, uint16_t step,
                         uint64_t offset);

/* The first record whose seq is greater than `after`: NULL when there is none yet. Borrowed until
 * the list changes. */
struct events_record *events_after(struct events *e, uint64_t after);

size_t events_memory(const struct events *e);
