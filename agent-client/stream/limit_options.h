/* The options that set limits, as several subcommands have them. */
#pragma once

#include <stdint.h>

#include "err.h"
#include "limit.h"
#include "opt.h"

#define LIMIT_OPTIONS_UNSET UINT64_MAX
#define LIMIT_OPTIONS_MAX 11

struct limit_options {
    uint64_t value[LIMIT_COUNT]; /* LIMIT_OPTIONS_UNSET = not given */
    const char *cpus;            /* as typed; limit_options_check() makes a value of it */
};

void limit_options_init(struct limit_options *o);
/* Writes the rows that belong to `o` into `rows`, which has LIMIT_OPTIONS_MAX places. `per_step`:
 * only those that a single command may set. -> their number. */
size_t limit_options_rows(struct limit_options *o, bool per_step,
                          struct opt rows[LIMIT_OPTIONS_MAX]);
/* After parsing: the bounds that hold for everybody. ERR_INVALID names the option. */
int limit_options_check(struct limit_options *o, struct err *err);
