/* A chain of audit records on disk: segments NAME-FIRSTSEQ.jsonl in STATE/server/audit, and a head.
 *
 * The server appends to the chain "log". Commands of the administrator, which are other processes,
 * append to a chain of their own, "cmd", one at a time under a lock: so the server needs no lock
 * and asks nobody where the end is.
 *
 * The head, STATE/server/audit.head (audit.cmd.head), is a signed copy of the newest place that is
 * known to be on disk; it is written about once a second. With it a log that was cut at its end
 * is found out, as long as the head is the newer one. Who can write both can put an older head next
 * to a cut log: only a head that is kept on another machine (`audit head`, `audit verify
 * --expect-head`) or a receipt (each names the record that accepted its run) shows that.
 *
 * Nothing here waits for the disk but audit_log_sync() and audit_log_head_write(), which touch only
 * their arguments and so may run on a thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit_line.h"
#include "buf.h"
#include "err.h"
#include "receipt_key.h"

#define AUDIT_LOG_DIR "audit" /* in STATE/server */
#define AUDIT_LOG_SERVER "log"
#define AUDIT_LOG_COMMANDS "cmd"
#define AUDIT_LOG_SEGMENT_BYTES ((uint64_t)8 * 1024 * 1024)
/* What is read of a segment at most; one is longer than AUDIT_LOG_SEGMENT_BYTES only by what was
 * written at once. */
#define AUDIT_LOG_SEGMENT_MAX ((size_t)32 * 1024 * 1024)
/* Records that could not be written and wait. */
#define AUDIT_LOG_PENDING_MAX ((size_t)1024 * 1024)
#define AUDIT_LOG_NAME_SIZE 40
#define AUDIT_LOG_HEAD_SIZE 512

struct audit_log {
    char chain[AUDIT_LINE_CHAIN_SIZE];
    int dir;                   /* owned */
    int fd;                    /* of the newest segment, -1 = none yet */
    int full;                  /* one that is full and may not be on disk yet; -1 = none */
    uint64_t size;             /* of the newest segment: bytes that are records */
    uint64_t segment_bytes;    /* AUDIT_LOG_SEGMENT_BYTES */
    struct audit_mark last;    /* the newest record, pending ones included */
    struct audit_mark written; /* the newest that was written */
    struct buf pending;
    struct audit_mark undo; /* before the newest record … */
    size_t undo_len;        /* … and the length of `pending` then */
};

/* What was found when the chain was opened. */
struct audit_log_found {
    uint64_t partial;   /* bytes of an unfinished record that were cut off */
    bool unsound;       /* the newest line is no record: a new segment was begun */
    uint64_t head_seq;  /* > 0: the head says that there were this many; records are missing */
    uint64_t cut_after; /* with head_seq: the newest record that is there */
};

/* Opens the chain in the directory STATE/server, which is made when missing; its newest segment is
 * repaired. As root, what is made gets the owner of the directory. */
int audit_log_open(struct audit_log *l, int server_dir, const char *chain,
                   struct audit_log_found *found, struct err *err);
/* Writes nothing. A zeroed or closed one is allowed. */
void audit_log_close(struct audit_log *l);

/* Adds a record to what is to be written. */
int audit_log_add(struct audit_log *l, const struct buf *fields, struct err *err);
/* Takes the newest record back, which has not been written. */
void audit_log_undo(struct audit_log *l);
/* Writes what is pending with one write(2); all of it or nothing is in the segment then. */
int audit_log_write(struct audit_log *l, struct err *err);
/* Is the segment still the file that it was? (Removed, cut or written to by another: no.) */
bool audit_log_intact(const struct audit_log *l);
/* The next record begins a new segment. */
void audit_log_begin_new(struct audit_log *l);

int audit_log_sync(int fd, struct err *err);
/* The text of a head for `mark`. */
void audit_log_head_text(const char *chain, const struct audit_mark *mark,
                         const struct receipt_key *key, char text[AUDIT_LOG_HEAD_SIZE]);
int audit_log_head_write(int server_dir, const char *chain, const char *text, struct err *err);
/* What a head says. 1 = read, 0 = there is none, -1 = it is no head. `signature` has 129 bytes,
 * `key` RECEIPT_KEY_ID_SIZE. */
struct audit_log_head {
    struct audit_mark mark;
    uint64_t time_ms;
    char key[RECEIPT_KEY_ID_SIZE];
    uint8_t signature[RECEIPT_SIGNATURE_SIZE];
};
int audit_log_head_read(int server_dir, const char *chain, struct audit_log_head *out,
                        struct err *err);
const char *audit_log_head_name(const char *chain);

/* The first numbers of all segments of a chain, ascending; malloc'ed. */
int audit_log_segments(int dir, const char *chain, uint64_t **first, size_t *count,
                       struct err *err);
void audit_log_segment_name(const char *chain, uint64_t first, char name[AUDIT_LOG_NAME_SIZE]);
