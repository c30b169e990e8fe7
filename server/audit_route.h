/* What the audit log says of requests: every one that changes something is recorded before its
 * handler is called ("asked": {op: method and route, id, sandbox, user, token, path}); runs and
 * executions have records of their own, made where more is known. What fails then ("failed") and
 * who is turned away ("denied") is recorded when the answer is out. */
#pragma once

#include "api_error.h"
#include "http.h"
#include "route.h"
#include "server.h"

/* -1: it could not be recorded, so the handler must not be called; *error is 503. */
int audit_route_begin(struct server *s, struct http_req *req, const struct route *r,
                      const struct route_args *args, struct api_error *error);
void audit_route_ended(struct server *s, struct http_req *req);
