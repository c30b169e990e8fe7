/* Does what a run's answer shows agree with what its receipt says? Pure, and safe on any JSON. */
#pragma once

#include <stddef.h>

#include "buf.h"

struct json_t;

#define RECEIPT_MATCH_TEXT_MAX ((size_t)64 * 1024)

/* Sentences, one a line; what does not fit any more is only counted. */
struct receipt_match {
    struct buf text; /* of at most RECEIPT_MATCH_TEXT_MAX bytes */
    size_t count;
};

void receipt_match_init(struct receipt_match *m);
void receipt_match_done(struct receipt_match *m);
void receipt_match_say(struct receipt_match *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a sentence for each difference between the answer and the receipt's body. */
void receipt_match_answer(struct receipt_match *m, const struct json_t *answer,
                          const struct json_t *body);
