/* What a gigabyte costs at best: a static file server of the same HTTP library, without any
 * sandbox, that sends a file in memory and writes what it is sent into one. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct bench_static {
    pid_t pid; /* of the process that serves; 0 = none */
    unsigned port;
};

/* GET /SIZE answers that many bytes; PUT takes any number. */
int bench_static_start(struct bench_static *s, struct err *err);
void bench_static_stop(struct bench_static *s);
