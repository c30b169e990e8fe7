/* Idempotency-Key: a request that makes something may be sent again, and gets the first answer.
 *
 * Keys are the user's own, 1 to 255 printable characters, and kept for a day. The same key with the
 * same request gets the answer that the first one got, status and body, also after a restart, and
 * also while the first is still being worked on: then it waits for it. The same key with another
 * request is 409. An answer that is an error is not kept: nothing was made.
 *
 * A run is not kept as an answer but by its name: who asks again waits for it, or follows it, as
 * the first did. */
#pragma once

#include <stdbool.h>

#include "execution.h"
#include "http.h"
#include "route.h"
#include "run.h"

struct server;
struct idempotency;
struct idempotency_claim;

#define IDEMPOTENCY_KEY_MAX 255u

struct idempotency *idempotency_new(struct server *s, uint64_t keep_ms, struct err *err);
void idempotency_free(struct idempotency *all); /* NULL allowed */

/* Takes a request whose route says so. True: it has been, or will be, answered or handed to its
 * handler. False: it has no key; the handler is to be called. */
bool idempotency_take(struct server *s, struct http_req *req, const struct route_args *args);

/* What a run was made for: how it is answered. */
enum idempotency_way { IDEMPOTENCY_ASYNC, IDEMPOTENCY_WAIT, IDEMPOTENCY_STREAM };
/* A request with `idem` has become this run. */
void idempotency_run(struct server *s, struct http_req *req, const struct run *run,
                     enum idempotency_way way);

/* For http and route.c: an answer is made; the request is over. */
void idempotency_answered(void *server, struct http_req *req, int status,
                          const struct http_body *body);
void idempotency_over(struct server *s, struct http_req *req);

/* For executions, which a client may name anyway: the id that the request's key stands for; "" = it
 * has none, or *error is set. */
void idempotency_exec_id(struct http_req *req, char id[EXEC_ID_SIZE], struct api_error *error);
