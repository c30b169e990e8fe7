/* What is kept of one output stream: the first half of the cap (head), the last half (tail), and
 * the exact number of bytes that went by. A program that writes for ever costs no more memory than
 * one that stops at the cap.
 *
 * Bytes have offsets from the start of the stream. [0, head_len) and [tail_start, total) are there;
 * what lies between is gone. While the stream is open the tail may be longer than the cap asks for,
 * so that somebody who follows the stream live has room to lag; capture_finish() cuts it to size.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "err.h"

#define CAPTURE_READ_MAX ((size_t)256 * 1024) /* bytes that one capture_iov() offers at most */
#define CAPTURE_SLACK ((size_t)512 * 1024)    /* tail kept for live followers, at least */
#define CAPTURE_PIECES 3

struct capture {
    uint64_t cap;   /* bytes kept in the end; head_max + tail_keep */
    uint64_t total; /* bytes seen */
    size_t head_max;
    size_t tail_keep;
    char *head;
    size_t head_len, head_alloc;
    char *ring; /* byte at offset o (>= head_max) is ring[(o - ring_base) % ring_alloc] */
    size_t ring_alloc, ring_max;
    uint64_t ring_base;
    bool finished;
};

/* Keeps `cap` bytes. Allocates nothing yet. */
void capture_init(struct capture *c, uint64_t cap);
void capture_done(struct capture *c);

/* Where the next at most `want` bytes of the stream go: fills iov[CAPTURE_PIECES], returns how many
 * are used (at least 1 while want > 0), or -1 when memory is short. The next read of a stream that
 * has been small so far gets little room; one that flows gets CAPTURE_READ_MAX. */
int capture_iov(struct capture *c, size_t want, struct iovec iov[CAPTURE_PIECES], struct err *err);
/* `len` bytes were read into what capture_iov() offered. */
void capture_commit(struct capture *c, size_t len);
/* As both, from memory. */
int capture_append(struct capture *c, const void *data, size_t len, struct err *err);

/* A finished capture of `total` bytes whose kept parts are these (malloc'ed, taken over; NULL when
 * empty). */
void capture_restore(struct capture *c, uint64_t total, char *head, size_t head_len, char *tail,
                     size_t tail_len);

/* First offset of the tail that is still there (head_len when nothing was lost). */
uint64_t capture_tail_start(const struct capture *c);
/* How many more bytes may be read before the byte at `offset` is overwritten. */
size_t capture_room(const struct capture *c, uint64_t offset);
/* Are all bytes of [offset, offset + len) there? */
bool capture_has(const struct capture *c, uint64_t offset, size_t len);
/* The bytes of [offset, offset + len), all of which are there, as at most CAPTURE_PIECES pieces.
 * Returns their number. They stay valid until the next capture_iov() or capture_finish(). */
int capture_view(const struct capture *c, uint64_t offset, size_t len,
                 struct iovec out[CAPTURE_PIECES]);

/* The stream has ended: gives back memory that is not needed. */
void capture_finish(struct capture *c);
/* Bytes of memory that it holds. */
size_t capture_memory(const struct capture *c);

/* The kept bytes of a finished capture: head [0, head) and tail [total - tail, total), and the
 * number of bytes between them. When something was left out and a character was cut in half at the
 * seam, and dropping its fragments makes both parts UTF-8, they are dropped and counted as left
 * out. */
struct capture_text {
    size_t head;
    size_t tail;
    uint64_t omitted;
    bool utf8;
};
void capture_text(const struct capture *c, struct capture_text *out);

/* "\n[N bytes omitted]\n": the one line between head and tail. */
#define CAPTURE_LINE_SIZE 64
void capture_line(uint64_t omitted, char line[CAPTURE_LINE_SIZE]);

/* Tries it: more than the cap goes in, exactly the cap must stay, and the count must be right. The
 * cap on output is kept here and not by the kernel, so this is its proof at start. */
#define CAPTURE_PROBE_CAP 1000u
#define CAPTURE_PROBE_BYTES 1000000u
int capture_probe(struct err *err);
