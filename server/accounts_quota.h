/* Quotas as JSON and as words of a command line. */
#pragma once

#include <stdbool.h>

#include "json_out.h"
#include "quota.h"

void accounts_quota_unlimited(struct quota_limits *q);
/* An object by quota_name(): null = no limit. With `all` false only what was said ("none": no
 * limit, whatever the configuration says). */
void accounts_quota_write(struct json_out *j, const char *key, const struct quota_limits *q,
                          bool all);
/* The object again, as text. An unknown name is ignored: a later version may have had it. */
int accounts_quota_read(const char *text, struct quota_limits *q, struct err *err);
/* "runs=10", "mem_bytes=4G", "cpu_ms_per_day=2h", "runs=none", "runs=default". */
int accounts_quota_set(struct quota_limits *q, const char *word, struct err *err);
