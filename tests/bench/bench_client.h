/* The client as a process, in a workspace of 10,000 files that nobody changes, side by side with
 * `git status`. */
#pragma once

#include "bench_http.h"
#include "bench_series.h"
#include "bench_service.h"
#include "err.h"

#define BENCH_CLIENT_FILES 10000u

struct bench_client_result {
    struct bench_series exec; /* pinfold exec -- true */
    struct bench_series git;  /* git status; empty when there is no git */
};

int bench_client_run(const struct bench_paths *paths, const struct bench_target *target,
                     unsigned laps, struct bench_client_result *r, struct err *err);
