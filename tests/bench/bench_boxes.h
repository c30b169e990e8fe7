/* Many sandboxes at once, from one thread. */
#pragma once

#include <stddef.h>

#include "bench_box.h"
#include "bench_series.h"
#include "err.h"

#define BENCH_BOXES_MAX 4096u
#define BENCH_BOXES_LINES 256u /* connections at most */

struct bench_boxes {
    struct bench_target target;
    size_t count;
    char (*id)[BENCH_BOX_ID_SIZE]; /* [count]; "" = not made. Owned */
};

/* Makes `count` sandboxes over `lines` connections, all requests as early as possible. With
 * `first`, a command is run in each as soon as it is there, and the time from the common start to
 * its answer is added (may be NULL). On failure what was made is in *boxes all the same. */
int bench_boxes_make(struct bench_boxes *boxes, const struct bench_target *target, size_t count,
                     size_t lines, struct bench_series *first, struct err *err);
/* Deletes those that are there and frees the list. Accepts a zeroed struct. */
int bench_boxes_delete(struct bench_boxes *boxes, struct err *err);
