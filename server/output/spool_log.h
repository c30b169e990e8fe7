/* The journal of a sandbox's executions: records that are only appended, each by one write. A short
 * execution leaves nothing else. What is not needed any more goes when the journal is written anew.
 *
 * What is being done must be written down when it is over, also should the disk be full by then:
 * whoever begins something first takes the room for that (spool_log_room()).
 *
 * A process that is killed in the middle of a write leaves a record that is too short at the end:
 * it was told to nobody, and loading cuts it off. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "err.h"

#define SPOOL_LOG_RECORD_MAX (1u << 20)
#define SPOOL_LOG_PARTS 8
#define SPOOL_LOG_OVERHEAD 24u /* of a record, at most */

enum spool_log_type {
    SPOOL_LOG_START = 1, /* an execution is about to begin */
    SPOOL_LOG_END,       /* it is over; short outputs and few events lie in it */
    SPOOL_LOG_FORGET,    /* its owner does not want it any more */
    SPOOL_LOG_INPUT,     /* its stdin was closed, and after how many bytes */
    SPOOL_LOG_TYPES
};

struct spool_log {
    int dir; /* borrowed */
    int fd;  /* -1 = not open */
    uint64_t size;
    uint64_t room; /* up to here blocks are the file's own, its size notwithstanding */
};

/* Where a record lies. */
struct spool_log_place {
    uint64_t at; /* of its payload */
    uint32_t len;
};

struct spool_log_record {
    enum spool_log_type type;
    uint32_t number; /* of the execution */
    struct spool_log_place place;
    const char *payload; /* place.len bytes, 8-aligned; valid during the call */
};

void spool_log_init(struct spool_log *l, int dir);
bool spool_log_exists(const struct spool_log *l);
void spool_log_close(struct spool_log *l); /* it may be opened again */
/* Opens it, makes it when it is missing. Idempotent. */
int spool_log_open(struct spool_log *l, struct err *err);

/* From now on `bytes` can be appended whatever happens to the disk. ENOSPC: they cannot. A file
 * system that knows nothing of the kind promises nothing. */
int spool_log_room(struct spool_log *l, uint64_t bytes, struct err *err);

/* Appends a record that consists of these parts; without room (ENOSPC) nothing of it is written. */
int spool_log_append(struct spool_log *l, enum spool_log_type type, uint32_t number,
                     const struct iovec *parts, size_t count, struct spool_log_place *place,
                     struct err *err);

/* Opens it and tells of every record; a tail that is not sound is cut off. */
int spool_log_load(struct spool_log *l, void (*each)(void *arg, const struct spool_log_record *r),
                   void *arg, struct err *err);

/* Writing it anew: begin, copy what stays, then commit (or drop). `next` becomes the journal. */
int spool_log_anew(const struct spool_log *l, struct spool_log *next, struct err *err);
int spool_log_copy(const struct spool_log *l, struct spool_log *next, enum spool_log_type type,
                   uint32_t number, struct spool_log_place *place, struct err *err);
int spool_log_commit(struct spool_log *l, struct spool_log *next, struct err *err);
void spool_log_drop(struct spool_log *next);
