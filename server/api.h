/* The handlers of the HTTP API, by concern. Each answers its request now or later, exactly once. */
#pragma once

#include "http.h"
#include "route.h"
#include "runs.h"
#include "server.h"

/* api_runs.c */
void api_runs_create(struct server *s, struct http_req *req, const struct route_args *args);
void api_runs_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_runs_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_runs_delete(struct server *s, struct http_req *req, const struct route_args *args);

/* The run of this id if it is the caller's; else answers 404 and returns NULL. */
struct run *api_runs_mine(struct server *s, struct http_req *req, const char *id);

/* api_answer.c: a run's answer, now or when it is over. */
void api_answer_now(struct server *s, struct http_req *req, struct run *run);
void api_answer_when_done(struct server *s, struct http_req *req, struct run *run);

/* api_events.c */
void api_events_get(struct server *s, struct http_req *req, const struct route_args *args);
/* Answers with the events of a run that has just been accepted. */
void api_events_stream(struct server *s, struct http_req *req, struct run *run);

/* api_raw.c */
void api_raw_stdout(struct server *s, struct http_req *req, const struct route_args *args);
void api_raw_stderr(struct server *s, struct http_req *req, const struct route_args *args);

/* api_policies.c */
void api_policies_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_policies_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_info.c */
void api_info_healthz(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_readyz(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_metrics(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_capabilities(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_images(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_me(struct server *s, struct http_req *req, const struct route_args *args);

/* openapi.c */
void openapi_get(struct server *s, struct http_req *req, const struct route_args *args);

/* Answers with what json_out or a buffer produced; `rc` < 0 is answered with 500. Takes the memory
 * of `b`, which is empty afterwards. */
struct buf;
void api_reply_buf(struct http_req *req, int status, const char *type, struct buf *b, int rc);
