/* The events that carry output, as runs and executions send them:
 *   {"seq":2,"type":"stdout","data":"…","encoding":"utf-8"} */
#pragma once

#include <stddef.h>

#include "buf.h"
#include "err.h"

struct json_t;

/* 0 = stdout, 1 = stderr, -1 = neither (NULL included). */
int event_data_stream(const char *type);
/* The bytes of such an event: borrowed from it, or decoded into `space`. ERR_PROTOCOL when it is
 * malformed. */
int event_data_bytes(const struct json_t *event, struct buf *space, const char **data, size_t *len,
                     struct err *err);
/* The sentence for a malformed event; returns -1. */
int event_data_bad(struct err *err, const char *type);
