/* The handlers of the HTTP API, by concern. Each answers its request now or later, exactly once. */
#pragma once

#include "http.h"
#include "route.h"
#include "runs.h"
#include "server.h"

/* api_runs.c */
void api_runs_create(struct server *s, struct http_req *req, const struct route_args *args);
/* The same with the request that is kept in `file`, a name among the results. */
void api_runs_create_again(struct server *s, struct http_req *req, const char *file);
void api_runs_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_runs_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_runs_delete(struct server *s, struct http_req *req, const struct route_args *args);

/* The run of this id if it is the caller's; else answers 404 and returns NULL. */
/* Finds a run of the caller, in memory or in the store, and goes on with it, now or later. When
 * there is none it has answered. The run is pinned until `fn` returns. */
void api_runs_with(struct server *s, struct http_req *req, const struct route_args *args,
                   void (*fn)(struct server *s, struct http_req *req, struct run *run,
                              const struct route_args *args));

/* May the token use this policy? Else *error is 403. */
int api_runs_check_policy(const struct http_req *req, const char *policy, struct api_error *error);
/* The token's budget leaves this much CPU time. */
struct limits_effective;
void api_runs_lower_cpu(struct limits_effective *limits, uint64_t cpu_ms);

/* The policy `name`, as the runner knows it that will serve the request: one of the back end that
 * is wished for, or (BACKEND_NONE) of the policy's own. NULL with *error: no such policy, not
 * allowed by it, or no such runner. */
const struct link_policy *api_runs_policy(struct server *s, const char *name, enum backend wish,
                                          enum backend *backend, struct api_error *error);
/* api_sandboxes.c, api_sandbox_life.c */
void api_sandboxes_create(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandboxes_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandboxes_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandbox_life_delete(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandbox_life_ttl(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandbox_life_pause(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandbox_life_resume(struct server *s, struct http_req *req, const struct route_args *args);
void api_sandbox_life_restore(struct server *s, struct http_req *req,
                              const struct route_args *args);
/* Has the caller's quota room for so many sandboxes of this kind? */
int api_sandboxes_check_quota(struct server *s, const struct http_req *req,
                              const struct sandbox_spec *spec, uint64_t count,
                              struct api_error *error);
/* Answers with the object of a sandbox. */
void api_sandboxes_reply(struct http_req *req, int status, const struct sandbox *sb);
/* Answers why a request to a sandbox could not be made: 409 `state`, 429, 500. */
void api_sandboxes_refuse(struct http_req *req, const struct err *err);
/* Answers what went wrong at the runner; NULL: the sandbox went away meanwhile. */
void api_sandboxes_undone(struct http_req *req, const struct sandbox *sb,
                          const struct wire_done *done);

/* api_snapshots.c */
void api_snapshots_create(struct server *s, struct http_req *req, const struct route_args *args);
void api_snapshots_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_snapshots_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_snapshots_delete(struct server *s, struct http_req *req, const struct route_args *args);
/* The snapshot that a user means by "snap_…" or "run_…@5"; NULL: *error is filled (404, 503). */
struct snapshot *api_snapshots_named(struct server *s, const char *user, const char *ref,
                                     const char *field, struct api_error *error);

/* api_fork.c */
void api_fork(struct server *s, struct http_req *req, const struct route_args *args);

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

/* api_files.c, api_files_get.c, api_files_put.c, api_files_list.c, api_files_watch.c: files of a
 * sandbox. */
void api_files_stat(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_delete(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_mkdir(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_move(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_put(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_files_watch(struct server *s, struct http_req *req, const struct route_args *args);

/* api_archive_get.c, api_archive_put.c: trees of files as tar. */
void api_archive_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_archive_put(struct server *s, struct http_req *req, const struct route_args *args);

/* api_policies.c */
void api_policies_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_policies_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_info.c */
void api_info_healthz(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_readyz(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_capabilities(struct server *s, struct http_req *req, const struct route_args *args);
void api_info_images(struct server *s, struct http_req *req, const struct route_args *args);

/* api_me.c */
void api_me_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_metrics.c */
void api_metrics_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_top.c */
void api_top_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_traces.c */
void api_traces_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_sync.c */
void api_sync_post(struct server *s, struct http_req *req, const struct route_args *args);
void api_sync_changes(struct server *s, struct http_req *req, const struct route_args *args);

/* api_blobs.c */
void api_blobs_put(struct server *s, struct http_req *req, const struct route_args *args);
void api_blobs_get(struct server *s, struct http_req *req, const struct route_args *args);

/* api_replay.c */
void api_replay(struct server *s, struct http_req *req, const struct route_args *args);

/* api_receipt.c */
void api_receipt_key(struct server *s, struct http_req *req, const struct route_args *args);

/* openapi.c */
void openapi_get(struct server *s, struct http_req *req, const struct route_args *args);

/* Answers with what json_out or a buffer produced; `rc` < 0 is answered with 500. Takes the memory
 * of `b`, which is empty afterwards. */
struct buf;
void api_reply_buf(struct http_req *req, int status, const char *type, struct buf *b, int rc);

/* api_exec.c */
void api_exec_create(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_delete(struct server *s, struct http_req *req, const struct route_args *args);
/* api_exec_answer.c */
void api_exec_receipt(struct server *s, struct http_req *req, const struct route_args *args);
/* api_exec_events.c, api_exec_raw.c */
void api_exec_events_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_stdout(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_stderr(struct server *s, struct http_req *req, const struct route_args *args);
/* api_exec_stdin.c */
void api_exec_stdin_post(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_signal(struct server *s, struct http_req *req, const struct route_args *args);
void api_exec_resize(struct server *s, struct http_req *req, const struct route_args *args);

/* api_users.c */
void api_users_create(struct server *s, struct http_req *req, const struct route_args *args);
void api_users_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_users_get(struct server *s, struct http_req *req, const struct route_args *args);
void api_users_change(struct server *s, struct http_req *req, const struct route_args *args);
void api_users_delete(struct server *s, struct http_req *req, const struct route_args *args);
/* Answers that a change of users or tokens could not be written. */
void api_users_not_stored(struct server *s, struct http_req *req, const struct err *why);
/* The names of quotas, as account_request.h wants them. */
void api_users_quota_names(const char *names[]);

/* api_tokens.c */
/* 400 when a variable holds the token that asks: it must not get into a jail. */
struct request_env;
int api_tokens_check_env(struct http_req *req, const struct request_env *env, const char *field,
                         struct api_error *error);
void api_tokens_create(struct server *s, struct http_req *req, const struct route_args *args);
void api_tokens_child(struct server *s, struct http_req *req, const struct route_args *args);
void api_tokens_list(struct server *s, struct http_req *req, const struct route_args *args);
void api_tokens_delete(struct server *s, struct http_req *req, const struct route_args *args);

/* Answers with fn() when it is known what goes on in the jails (look.h), or when that takes too
 * long. */
void api_look_then(struct server *s, struct http_req *req, uint32_t what,
                   void (*fn)(struct server *s, struct http_req *req));
