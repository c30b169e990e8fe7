/* One event of a run: what it changes in the state of the follower, and what it prints. */
#pragma once

#include "err.h"

struct json_t;
struct run_stream;

/* Types that are not known are skipped, and so is an event that was seen before (after a resume).
 * -1: ERR_PROTOCOL for an event that is malformed, or an error of the output. */
int run_event_take(struct run_stream *s, const struct json_t *event, struct err *err);
