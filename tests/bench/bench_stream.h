/* One run with a large stdout. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "bench_http.h"
#include "err.h"

struct bench_stream_result {
    uint64_t ns;         /* from the request to the last byte of the answer */
    uint64_t wire_bytes; /* of the answer */
    uint64_t rss_before_bytes, rss_peak_bytes, rss_after_bytes; /* of the server */
};

/* The run must end well: "ok":true in the last 4 KiB of the answer (stream) or anywhere in it. */
int bench_stream_run(const struct bench_http_config *config, pid_t server,
                     struct bench_stream_result *result, struct err *err);
