/* Whatever happens to the benchmark, nothing of it stays behind. */
#pragma once

#include "err.h"

#define BENCH_GUARD_LIMIT_S 480

/* Splits into two processes and returns 0 in the one that is to do the work. The other one waits
 * for it, ends it when it takes too long or when SIGINT, SIGTERM or SIGHUP comes, stops every
 * process that it left behind, removes its cgroups, and exits with its exit code. */
int bench_guard_split(struct err *err);
