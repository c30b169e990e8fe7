/* A stream on disk of which the first and the last part are kept, with no byte ever copied: a file
 * in which every byte lies at its offset in the stream. Bytes are appended by splice(2), so that at
 * every moment each byte is either still in the pipe or in the file, whatever happens to this
 * process; the file's size says how many there were. What lies between the two parts is given back
 * to the file system (a hole), at the latest when the tail is twice as long as it has to be.
 *
 * On disk: at most head + 2 * tail, and a tail is at least SPOOL_TAIL_MIN while the stream is open,
 * so that somebody who reads it live may lag.
 *
 * The file of a stream may also be a part of another one (short outputs lie in the journal): then
 * it is only read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define SPOOL_TAIL_MIN ((uint64_t)512 * 1024)
#define SPOOL_NAME_SIZE 32

struct spool {
    const int *dir; /* borrowed: descriptor of where the file is; -1 = nowhere any more */
    char name[SPOOL_NAME_SIZE]; /* "" = there is no file of its own */
    int fd;                     /* of the own file, -1 = not open; owned */
    const int *host; /* borrowed: descriptor of the file that it is a part of, NULL = none */
    uint64_t host_at;
    uint64_t head_max, tail_keep;
    uint64_t total; /* bytes seen */
    char *window;   /* mapping of SPOOL_WINDOW bytes of the file at window_at; NULL = none */
    uint64_t window_at;
    uint64_t gone; /* [head_max, gone) are no longer there; <= head_max: nothing is gone */
};

/* Keeps `cap` bytes in the end, half of them from the front. No file yet. *dir is looked at
 * whenever the file is opened or removed: whoever closes that descriptor says -1 there. */
void spool_init(struct spool *s, const int *dir, uint64_t cap);
void spool_done(struct spool *s); /* closes; the file stays */

/* Makes the file, empty but for what was discarded before. */
int spool_create(struct spool *s, const char *name, struct err *err);
/* Takes up the file that an earlier process wrote: total and gone are read off it. ERR_SYSTEM with
 * ENOENT when there is none. */
int spool_load(struct spool *s, const char *name, struct err *err);
/* Of one that is made up from records: its head ends at byte `at` at the latest, since what came
 * there was discarded; the tail may be longer by as much. */
void spool_end_head(struct spool *s, uint64_t at);
bool spool_has_file(const struct spool *s);
/* Closes the descriptor of a file that is not written to any more; reading opens it again. */
void spool_rest(struct spool *s);
void spool_remove(struct spool *s); /* unlinks the file; nothing is kept */

/* Moves at most `max` bytes from a pipe, which does not block. Returns their number, 0 at its end,
 * -1 when there are none now (ERR_SYSTEM EAGAIN) or on failure. */
ssize_t spool_take(struct spool *s, int pipe, size_t max, struct err *err);
/* Takes at most `max` bytes from a pipe or a terminal and keeps none of them: for when there is no
 * space. They count as seen, and are gone; when that happens within the head, it ends there. As
 * read(2), with what spool_take() returns. */
ssize_t spool_discard(struct spool *s, int from, size_t max, struct err *err);
/* As spool_take(), from a terminal, which cannot be spliced from: it is read into a mapping of the
 * file, so that here as well no byte is ever only in this process. Meanwhile the file is longer
 * than the stream, by zeros; spool_finish() and spool_rest() make it right. */
#define SPOOL_WINDOW ((uint64_t)64 * 1024)
ssize_t spool_take_terminal(struct spool *s, int terminal, struct err *err);
/* After spool_load() of such a file, which may take the zeros for a part of the stream: cuts them
 * off, but for what is known to belong to it, its first `least` bytes. */
int spool_cut_terminal(struct spool *s, uint64_t least, struct err *err);
/* Appends from memory: all of it, or, on failure, nothing. */
int spool_put(struct spool *s, const void *data, size_t len, struct err *err);
/* Nothing more will come: gives back everything that need not be kept. */
void spool_finish(struct spool *s);
/* Forgets what is behind `total`: it belongs to nothing. */
int spool_cut(struct spool *s, uint64_t total, struct err *err);

/* Is all of [offset, offset + len) there? */
bool spool_has(const struct spool *s, uint64_t offset, uint64_t len);
/* Reads exactly [offset, offset + len), which is there. */
int spool_read(struct spool *s, uint64_t offset, void *data, size_t len, struct err *err);
/* For another thread, which only reads: with a descriptor of its own, and nothing is opened by
 * name. No file: only for one of which nothing is read. spool_done() at its end. */
int spool_lend(struct spool *s, struct spool *copy, struct err *err);
/* The kept parts: [0, *head) and [total - *tail, total). */
void spool_kept(const struct spool *s, uint64_t *head, uint64_t *tail);
/* Bytes on disk, roughly. */
uint64_t spool_bytes(const struct spool *s);

/* Tries in `dir` whether its file system can do all this; says what to do when not. */
int spool_probe(int dir, struct err *err);
