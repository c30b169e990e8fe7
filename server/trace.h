/* Where a run, an execution or a sandbox stands in a trace: W3C Trace Context.
 *
 * Everything that is made has a span of its own. Its trace and its parent come from, in this order:
 * the run or execution inside which the token that asks was made (its trace always counts, so that
 * what an agent inside starts stays in sight; a `traceparent` of the same trace may name a nearer
 * parent), the request's `traceparent`, the sandbox that an execution is in; else a trace begins.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "request.h"
#include "traceparent.h"

#define TRACE_FROM_SIZE 32
#define TRACE_LABEL_SIZE 64

/* Plain bytes, as on disk. */
struct trace {
    uint8_t id[TRACEPARENT_ID];
    uint8_t span[TRACEPARENT_SPAN];
    uint8_t parent[TRACEPARENT_SPAN]; /* all 0 = none */
    char from[TRACE_FROM_SIZE];       /* the run or execution that the token came from; "" = none */
};

/* Random bytes for ids, fetched in advance. */
struct trace_pool {
    unsigned char bytes[1024];
    size_t left;
};

/* What a new one may hang under; each may be NULL. */
struct trace_above {
    const struct traceparent *header; /* of the request */
    const struct trace *from;         /* of the run or execution that the token came from … */
    const char *from_id;              /* … and its id */
    const struct trace *inside;       /* of the sandbox */
};

/* A span of its own under what is above it. */
int trace_begin(struct trace_pool *pool, const struct trace_above *above, struct trace *out,
                struct err *err);
bool trace_has_parent(const struct trace *t);
bool trace_is_set(const struct trace *t);

/* The header that names it as the parent. */
void trace_header(const struct trace *t, char text[TRACEPARENT_TEXT]);

/* "trace": {"id", "span", "parent"}, and "from" when there is one. */
struct json_out;
void trace_write(struct json_out *j, const struct trace *t);

/* As text for a file: "ID SPAN PARENT FROM". trace_read_text(): false, and *t untouched, when it is
 * not sound. */
#define TRACE_TEXT_SIZE (32 + 16 + 16 + TRACE_FROM_SIZE + 4)
void trace_write_text(const struct trace *t, char text[TRACE_TEXT_SIZE]);
bool trace_read_text(const char *text, struct trace *t);

/* What a command is called for people: its arguments with blanks between, in one line, cut at a
 * character. */
void trace_label(char label[TRACE_LABEL_SIZE], const char *const *argv, size_t argc);
/* The command of a run, or the names of its steps. */
void trace_label_request(char label[TRACE_LABEL_SIZE], const struct run_request *r);
