/* A manifest of many files, none of which has changed. */
#pragma once

#include "bench_http.h"
#include "bench_series.h"
#include "err.h"

#define BENCH_SYNC_FILES 10000u

/* Brings a tree of BENCH_SYNC_FILES files (500 different contents) into a sandbox; then sends its
 * manifest `laps` times. Times are from the request to the answer: those of the server and of
 * 1.6 MB on the loopback interface. */
int bench_sync_run(const struct bench_target *target, unsigned laps, struct bench_series *times,
                   struct err *err);
