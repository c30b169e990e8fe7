/* The child of the floor loop: the ordered steps between clone and exec. It shares its parent's
 * memory, so it makes system calls and nothing else. */
#pragma once

#include <linux/filter.h>
#include <stdatomic.h>
#include <stdint.h>

#define BENCH_CHILD_STEPS_MAX 16
#define BENCH_CHILD_MASKS_MAX 8

/* How far the parent is. */
enum bench_child_gate {
    BENCH_CHILD_WAIT = 0,
    BENCH_CHILD_MAPPED = 1,   /* the id maps are written */
    BENCH_CHILD_ATTACHED = 2, /* it is in its cgroups */
};

struct bench_child {
    struct sock_fprog filter;
    const char *mask[BENCH_CHILD_MASKS_MAX + 1]; /* files of /proc to cover; ends with NULL */
    atomic_uint gate;                            /* enum bench_child_gate; a futex */
    uint64_t mark_ns[BENCH_CHILD_STEPS_MAX + 1]; /* [0] start, [n + 1] end of step n */
    unsigned failed;                             /* 1 + the step that failed, 0 = none did */
    int code;                                    /* its errno */
};

/* Fills filter and masks; the filter's code is borrowed. */
void bench_child_init(struct bench_child *c, const struct sock_fprog *filter);
/* For clone(): `arg` is a struct bench_child. Never returns. */
int bench_child_main(void *arg);
/* For the parent. */
void bench_child_open(struct bench_child *c, enum bench_child_gate gate);
const char *bench_child_step(unsigned step); /* NULL past the last one */
