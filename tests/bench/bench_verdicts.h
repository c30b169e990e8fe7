/* Verdicts of the permission engine per second of one processor. */
#pragma once

#include "err.h"

/* Judges the public commands (tests/permission) by their rules, again and again. */
int bench_verdicts_run(double *per_s, struct err *err);
