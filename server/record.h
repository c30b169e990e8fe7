/* The bytes of a record: numbers, bytes, sections. What is written fails once and then stays
 * failed; what is read is bad once and then yields zeros. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct record_out {
    struct buf *buf;
    bool failed;
    struct err err;
};

void record_raw(struct record_out *o, const void *data, size_t len);
void record_put(struct record_out *o, uint64_t value);
void record_put_signed(struct record_out *o, int64_t value);
void record_bytes(struct record_out *o, const void *data, size_t len); /* with their length */
void record_text(struct record_out *o, const char *text);
/* A section: record_close() gets what record_open() returned. */
size_t record_open(struct record_out *o, uint64_t tag);
void record_close(struct record_out *o, size_t at);

struct record_in {
    const char *data;
    size_t len; /* left */
    bool bad;
};

void record_get_raw(struct record_in *in, void *to, size_t len);
/* 0 at the end: a writer that was older knew of no such number. */
uint64_t record_get(struct record_in *in);
int64_t record_get_signed(struct record_in *in);
/* Exactly `size` bytes. */
void record_get_bytes(struct record_in *in, void *to, size_t size);
/* Bad when it does not fit with its NUL, or has one within. */
void record_get_text(struct record_in *in, char *to, size_t size);
/* malloc'ed and NUL-terminated; NULL when it is bad, or memory is short (bad, too). */
char *record_get_copy(struct record_in *in, size_t *len);
/* The next section; false when there is none, or it is cut (bad). */
bool record_next(struct record_in *in, uint64_t *tag, struct record_in *section);
