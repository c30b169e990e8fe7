/* Samples of one figure, and what is said of them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct bench_series {
    uint64_t *ns; /* owned */
    size_t count, room;
};

/* Accepts NULL and a zeroed struct. */
void bench_series_done(struct bench_series *s);
int bench_series_add(struct bench_series *s, uint64_t ns, struct err *err);

/* The nearest-rank percentile (0 < percent <= 100) in microseconds; 0 of an empty series. Sorts. */
double bench_series_us(struct bench_series *s, unsigned percent);
