/* The body of POST …/exec. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "exec_options.h"

#define EXEC_ID_MAX 68
/* Input that is known from the start goes along with the request; more is fed afterwards. */
#define EXEC_BODY_INLINE_MAX ((size_t)1024 * 1024)
#define EXEC_BODY_STDIN_MAX ((size_t)64 * 1024 * 1024)

struct exec_body {
    char
        id[EXEC_ID_MAX]; /* of the execution: chosen here, so that a lost request can be repeated */
    struct buf json;
    int input; /* what is to be fed; owned, -1 = nothing */
};

/* What a terminal adds. rows 0 = none. */
struct exec_body_tty {
    unsigned rows, cols;
    const char *term; /* TERM; NULL = not known */
    int input;        /* whose keys are fed: borrowed, -1 = nobody's */
};

/* Opens what --stdin names. On success the caller owns *out. */
int exec_body_make(const struct exec_options *o, const struct exec_body_tty *tty,
                   struct exec_body *out, struct err *err);
void exec_body_done(struct exec_body *b); /* zeroed allowed (input 0 is left alone) */
