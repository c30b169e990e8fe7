/* Two answers of runs, side by side: what is equal and what differs. Pure, and safe on any JSON. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

struct json_t;

#define REPLAY_COMPARE_CELL 120

struct replay_compare_row {
    char what[REPLAY_COMPARE_CELL];
    char before[REPLAY_COMPARE_CELL], now[REPLAY_COMPARE_CELL]; /* "-" = there is none */
    bool equal;
};

struct replay_compare {
    struct replay_compare_row *rows; /* owned */
    size_t count, alloc;
    bool equal; /* all of them */
};

/* Ends, outputs and collected files. Times and usage are not compared: they differ always. -1: out
 * of memory. */
int replay_compare_make(struct replay_compare *c, const struct json_t *before,
                        const struct json_t *now, struct err *err);
void replay_compare_done(struct replay_compare *c);
