/* What `pinfold top` shows, as text: from the answer of GET /v1/top to lines, from lines to a
 * frame for a terminal. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct json_t;

#define TOP_VIEW_MAX ((size_t)1024 * 1024)

/* Appends lines; texts from the server are cleaned (say.h). ERR_PROTOCOL: it is no such answer. */
int top_view_write(struct buf *out, const struct json_t *answer, const char *url, struct err *err);
/* Appends the first `rows` lines of text, cut at `cols` columns, as a frame that overwrites the one
 * before: ANSI only. When there are more lines, the last row says how many. */
int top_view_paint(struct buf *out, const char *text, unsigned rows, unsigned cols,
                   struct err *err);

#define TOP_VIEW_SHORT 16
/* "850ms", "12.3s", "4m05s", "3h20m", "5d04h" and "12K", "1.5G". */
void top_view_time(char text[TOP_VIEW_SHORT], uint64_t ms);
void top_view_bytes(char text[TOP_VIEW_SHORT], uint64_t bytes);
