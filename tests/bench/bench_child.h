/* Programs that are run to their end. */
#pragma once

#include "err.h"

/* Runs argv[0] (a path) with nothing on stdin and its stdout thrown away, in `dir` when it is not
 * NULL. -1: it could not be started, or did not end with 0. */
int bench_child_run(char *const argv[], const char *dir, struct err *err);
