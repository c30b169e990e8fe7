/* Many connections at once, from one thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bench_http.h"
#include "bench_series.h"
#include "err.h"

#define BENCH_LOAD_CLIENTS_MAX 512u

struct bench_load_result {
    uint64_t runs;
    uint64_t elapsed_ns; /* from the first request to the last answer */
    struct bench_series latency;
};

void bench_load_result_done(struct bench_load_result *r);

/* `clients` keep-alive connections, each sending its next request as soon as it has the answer of
 * the last one. Every client sends at least one and at most `rounds` requests (0 = no bound); after
 * `span_ns` none sends another. Adds to *result. */
int bench_load_run(const struct bench_http_config *config, unsigned clients, unsigned rounds,
                   uint64_t span_ns, struct bench_load_result *result, struct err *err);
