/* What a step prints, on its way to our own stdout or stderr: everything, or, when the user asked
 * for a cap, the first half of the cap and the last half with one line between them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "outq.h"

struct echo {
    struct outq *out;   /* borrowed */
    uint64_t cap;       /* 0 = everything */
    uint64_t head_left; /* bytes of the first half that are still free */
    size_t tail_max;    /* the last half */
    char *tail;         /* ring; owned; NULL until needed */
    size_t tail_start, tail_len;
    uint64_t omitted;
};

void echo_init(struct echo *e, struct outq *out, uint64_t cap);
void echo_done(struct echo *e);

int echo_put(struct echo *e, const char *data, size_t len, struct err *err);
/* The step's stream is over: writes the line and the last half, and is ready for the next step. */
int echo_flush(struct echo *e, struct err *err);
