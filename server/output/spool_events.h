/* The output events of one execution: numbered records 0, 1, 2, … that say which bytes of which
 * stream came in which order. A record holds no bytes.
 *
 * The newest record grows with its stream's output until somebody has seen it (or the other stream
 * wrote); from then on it never changes. Records wait in memory and are written in groups, at the
 * latest before anybody is told of them: so what was told has the same numbers after a restart. A
 * few that nobody was told of need no file; they are kept with the end of the execution. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "spool.h"

#define SPOOL_EVENTS_WAIT 64u
#define SPOOL_EVENTS_CHUNK ((uint64_t)64 * 1024) /* bytes of one event, unless they are gone */
#define SPOOL_EVENTS_CAP ((uint64_t)1024 * 1024) /* of the file: so many bytes of records stay */

enum spool_stream { SPOOL_STDOUT, SPOOL_STDERR, SPOOL_STREAMS };

/* As on disk. */
struct spool_event {
    uint64_t end[SPOOL_STREAMS]; /* where both streams are after it */
    uint32_t len;                /* bytes of `stream` that it is about; never 0 */
    uint32_t stream;             /* enum spool_stream */
};

struct spool_events {
    struct spool file;
    uint64_t count;              /* records, those that wait included */
    uint64_t end[SPOOL_STREAMS]; /* after the newest one */
    struct spool_event *wait;    /* the newest wait_count records; owned */
    size_t wait_count;
    bool sealed; /* the newest one must not grow */
};

void spool_events_init(struct spool_events *e, const int *dir); /* as spool_init() */
void spool_events_done(struct spool_events *e);

/* Bytes by which the newest record could grow for this stream; 0 = none. */
uint64_t spool_events_room(const struct spool_events *e, enum spool_stream stream);
/* `len` more bytes of a stream: grows the newest record when there is room, else adds one. `name`
 * is that of the file, should it be needed. */
int spool_events_add(struct spool_events *e, enum spool_stream stream, uint32_t len,
                     const char *name, struct err *err);
/* Somebody is about to be told of everything that is there: on disk, and unchangeable. */
int spool_events_seal(struct spool_events *e, const char *name, struct err *err);
/* The execution is over. When there is a file, the rest is written to it; else the records stay in
 * `wait` for whoever keeps them. */
int spool_events_finish(struct spool_events *e, struct err *err);

/* The first record from `index` on that is still there: its index, or UINT64_MAX when there is
 * none. */
uint64_t spool_events_find(const struct spool_events *e, uint64_t index);
/* A record that is not sound (the disk is broken) is ERR_STATE. */
int spool_events_get(struct spool_events *e, uint64_t index, struct spool_event *out,
                     struct err *err);

/* Takes up what an earlier process wrote: the file `name`, as far as its records are whole, in
 * order, and about bytes that are there (`total`); the rest of it is cut off. No file: no records.
 */
int spool_events_load(struct spool_events *e, const char *name, const uint64_t total[SPOOL_STREAMS],
                      struct err *err);
/* `count` records that lie in the file *host (borrowed) at `at`. */
void spool_events_load_part(struct spool_events *e, const int *host, uint64_t at, uint64_t count,
                            const uint64_t total[SPOOL_STREAMS]);
