/* A large file up and down. */
#pragma once

#include <stdint.h>

#include "bench_http.h"
#include "err.h"

#define BENCH_FILE_BYTES 1000000000u

/* Each in ns, the shortest of `laps`. */
struct bench_file_result {
    uint64_t up_ns, down_ns;               /* a file of a sandbox */
    uint64_t static_up_ns, static_down_ns; /* a static file server */
};

int bench_file_run(const struct bench_target *target, unsigned laps,
                   struct bench_file_result *result, struct err *err);
