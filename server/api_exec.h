/* What the handlers of executions share. */
#pragma once

#include "api.h"
#include "execution.h"

/* The execution of args[0] (sandbox) and args[1] if it is the caller's; else answers 404 or 410 and
 * returns NULL. */
struct exec *api_exec_mine(struct server *s, struct http_req *req, const struct route_args *args);

/* api_exec_answer.c: an execution's answer, now or when it is over. */
void api_exec_answer_now(struct server *s, struct http_req *req, struct exec *x);
/* `cancels`: the client that leaves wants it to end. `remove`: 204 instead. */
enum api_exec_when { API_EXEC_PLAIN, API_EXEC_CANCELS, API_EXEC_REMOVES };
void api_exec_answer_when_done(struct server *s, struct http_req *req, struct exec *x,
                               enum api_exec_when when);

/* api_exec_events.c: answers with the events of one that was just made or found. */
void api_exec_events_stream(struct http_req *req, struct exec *x, bool cancels);
