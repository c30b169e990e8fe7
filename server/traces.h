/* Traces of requests: what a new run, execution or sandbox hangs under, and all that belongs to one
 * trace. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "http.h"
#include "trace.h"

struct server;

/* A span for what this request makes, under what it says and where its token came from. `inside` is
 * the sandbox's (NULL = none). *state (may be NULL) becomes "TRACESTATE=…", owned, or NULL. */
int traces_begin(struct server *s, struct http_req *req, const struct trace *inside,
                 struct trace *out, char **state, struct err *err);
/* The answer's header `traceparent`. */
void traces_answer(struct http_req *req, const struct trace *t);
