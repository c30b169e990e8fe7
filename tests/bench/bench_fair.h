/* Many users at once: does each get its turns, and does the server answer meanwhile? */
#pragma once

#include <stdint.h>

#include "bench_series.h"
#include "bench_service.h"
#include "err.h"

#define BENCH_FAIR_USERS 200u
#define BENCH_FAIR_EACH 20u /* runs of each that wait */

struct bench_fair_result {
    /* When half of all runs have started: the most that a user has, against the fewest; and how
     * many one was ahead of another at worst, at any moment. */
    unsigned most, fewest, ahead;
    uint64_t runs, elapsed_ns; /* from the first start to the last */
    struct bench_series healthz;
};

void bench_fair_result_done(struct bench_fair_result *r);
/* Makes the users, fills the slots, lets all runs wait, and lets them go. */
int bench_fair_run(const struct bench_service *s, struct bench_fair_result *result,
                   struct err *err);
