/* What users and tokens have used, by day. */
#pragma once

#include <stdint.h>

#include "store.h"

#define STORE_USAGE_DAYS 400u /* how long a day is remembered */

struct store_usage {
    const char *user;
    const char *token; /* its id; "" = of the user as a whole */
    uint32_t day;      /* since the epoch, UTC */
    uint64_t cpu_ms, runs;
};

/* Writes the day's sums, in place of what they were. */
int store_usage_put(struct store *s, const struct store_usage *row, struct err *err);
/* All of one day. The strings are borrowed during the call. */
int store_usage_read(struct store *s, uint32_t day,
                     void (*fn)(void *arg, const struct store_usage *row), void *arg,
                     struct err *err);
/* Forgets days that are too long ago. */
int store_usage_trim(struct store *s, uint32_t today, struct err *err);
