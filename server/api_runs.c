#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admit.h"
#include "answer.h"
#include "api.h"
#include "clock.h"
#include "config.h"
#include "fd.h"
#include "idempotency.h"
#include "image_check.h"
#include "json_out.h"
#include "receipt_run.h"
#include "results.h"
#include "spec.h"
#include "str.h"
#include "traces.h"

/* What env.c adds to what the request names. */
#define API_RUNS_ENV_BYTES 2048u

/* A stored request. */
#define API_RUNS_AGAIN_MAX ((size_t)256 * 1024 * 1024)

/* A body that is being decoded, here or by a worker. */
struct api_runs_job {
    struct work_job job;
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    char *body;           /* NULL, and `again` is set: it is in that file */
    char again[STORE_RUNS_FILE_SIZE];
    size_t len;
    struct http_hold hold;              /* of the body */
    uint8_t hash[STORE_RUNS_HASH_SIZE]; /* of the body, which is in a file by then */
    bool filed;
    struct run_request request;
    struct receipt_inputs *inputs; /* digests of a large request */
    struct api_error error;
    struct err err; /* why the body could not be kept */
    int rc;
};

/* What the wire can carry. */
static int api_runs_check_size(const struct run_request *r, struct api_error *error) {
    for (size_t i = 0; i < r->step_count; i++) {
        const struct request_step *step = &r->steps[i];
        size_t bytes = strlen(request_cwd(r, i)) + 1 + API_RUNS_ENV_BYTES;
        for (size_t k = 0; k < step->argc; k++)
            bytes += strlen(step->argv[k]) + 1;
        for (size_t k = 0; k < r->env.count; k++)
            bytes += strlen(r->env.items[k]) + 1;
        for (size_t k = 0; k < step->env.count; k++)
            bytes += strlen(step->env.items[k]) + 1;
        if (bytes > WIRE_SPEC_MAX - sizeof(struct spec_head))
            return api_error_set(error, 413, "too_large", NULL,
                                 "Arguments and environment of step %zu have %zu bytes together; "
                                 "at most %u are possible.",
                                 i, bytes, WIRE_SPEC_MAX - API_RUNS_ENV_BYTES);
    }
    return 0;
}

static int api_runs_check_room(struct server *s, const struct http_req *req,
                               const struct run_request *r, struct api_error *error) {
    struct queue_share share;
    if (req->idem != NULL && s->runs.store == NULL)
        return api_error_set(error, 422, "results_in_memory", NULL,
                             "This server keeps results of runs in memory only, so it cannot "
                             "promise the same answer again; leave the Idempotency-Key out.");
    if (s->draining)
        return api_error_set(error, 503, "draining", NULL,
                             "The server is about to stop and takes no new work.");
    if (store_sick(s->store) != NULL) {
        server_no_store(s, NULL, error);
        return -1;
    }
    switch (queue_fits(&s->runs.queue, req->user_name, 1, r->bytes)) {
    case QUEUE_FULL:
        return api_error_set(error, 429, "queue_full", NULL,
                             "The queue is full: %zu runs wait. Try again later.",
                             s->runs.queue.count);
    case QUEUE_TAKEN:
        queue_share(&s->runs.queue, req->user_name, &share);
        return api_error_set(error, 429, "queue_full", NULL,
                             "%zu of your runs wait; the places that are left are for others. Try "
                             "again later.",
                             share.waiting);
    default:
        return 0;
    }
}

/* The body as it came. */
struct api_runs_body {
    const uint8_t *hash; /* it is in a file already; NULL = it is still the request's */
    size_t len;
    struct receipt_inputs *inputs; /* its digests; NULL = not made yet */
};

/* Whoever is told of it before its end may be told again by another server, which then needs the
 * request; others keep it so that it can be run again. */
static void api_runs_keep_body(struct server *s, struct run *run, struct http_req *req,
                               const struct api_runs_body *body) {
    size_t len = 0;
    run->store.told = !run->request.wait || run->request.stream || req->idem != NULL;
    if (s->runs.store == NULL)
        return; /* results are kept in memory */
    bool keep = s->config->keep_requests || run->store.told;
    if (body->hash != NULL && !keep) {
        run_store_body_unfile(&s->runs, body->hash);
    } else if (body->hash != NULL) {
        run_store_body_filed(run, body->hash, body->len);
    } else if (keep) {
        char *text = http_take_body(req, &len, NULL);
        if (text != NULL)
            run_store_body(run, text, len);
    }
}

/* Nothing begins that the audit log does not know. */
static int api_runs_record(struct server *s, struct run *run, const struct http_req *req,
                           struct api_error *error) {
    struct audit_asked asked;
    audit_record_run(&asked, run);
    asked.user = req->user_name;
    asked.from = req->replay_of;
    return audit_accepted(&s->audit, &asked, &run->accepted, error);
}

int api_runs_check_policy(const struct http_req *req, const char *policy, struct api_error *error) {
    if (accounts_may_use_policy(req->token, policy))
        return 0;
    return api_error_set(error, 403, "policy_not_allowed", "/policy",
                         "This token may not use the policy %s.", policy);
}

static int api_runs_check_env(struct http_req *req, const struct run_request *r,
                              struct api_error *error) {
    char field[32];
    if (api_tokens_check_env(req, &r->env, "/env", error) < 0)
        return -1;
    for (size_t i = 0; i < r->step_count; i++) {
        snprintf(field, sizeof(field), "/steps/%zu/env", i);
        if (api_tokens_check_env(req, &r->steps[i].env, field, error) < 0)
            return -1;
    }
    return 0;
}

void api_runs_lower_cpu(struct limits_effective *limits, uint64_t cpu_ms) {
    if (limits->values.v[LIMIT_CPU_MS] <= cpu_ms)
        return;
    limits->values.v[LIMIT_CPU_MS] = cpu_ms;
    limits->from[LIMIT_CPU_MS] = LIMITS_FROM_BUDGET;
}

/* Takes what the steps may use together from the budget of the token; no step may use more than
 * what there is. */
static int api_runs_hold(struct accounts_token *token, size_t steps, struct admit *admit,
                         struct accounts_hold *hold, struct api_error *error) {
    uint64_t cpu_ms = 0;
    for (size_t i = 0; i < steps; i++)
        cpu_ms += admit->steps[i].values.v[LIMIT_CPU_MS];
    if (accounts_budget_hold(token, clock_real_ms(), &cpu_ms, hold, error) < 0)
        return -1;
    for (size_t i = 0; i < steps; i++)
        api_runs_lower_cpu(&admit->steps[i], cpu_ms);
    api_runs_lower_cpu(&admit->run, cpu_ms);
    return 0;
}

static int api_runs_check_quota(struct server *s, const struct http_req *req,
                                const struct admit *admit, struct api_error *error) {
    const uint64_t *limits = admit->run.values.v;
    struct quota_held who = {0};
    quota_hold(s->quota, &who, req->token, req->user_name);
    int rc =
        quota_may_run(s->quota, &who, limits[LIMIT_MEM_BYTES], limits[LIMIT_DISK_BYTES], error);
    quota_let_go(s->quota, &who);
    return rc;
}

const struct link_policy *api_runs_policy(struct server *s, const char *name, enum backend wish,
                                          enum backend *backend, struct api_error *error) {
    const struct link *shard = links_first_ready(&s->links);
    if (shard == NULL) {
        api_error_set(error, 503, "no_runner", NULL,
                      "No runner is connected, so nothing can be run now.");
        return NULL;
    }
    const struct link_policy *policy = link_policy(shard, name);
    if (policy != NULL && admit_backend(wish, &policy->head, backend, error) < 0)
        return NULL;
    if (policy != NULL && shard->welcome.backend != *backend) {
        shard = links_first_ready_of(&s->links, *backend);
        if (shard == NULL) {
            api_error_set(error, 503, "no_runner", "/backend",
                          "No runner of the back end %s is connected.", backend_name(*backend));
            return NULL;
        }
        policy = link_policy(shard, name); /* each may give less of something */
    }
    if (policy == NULL) {
        api_error_set(error, 400, "unknown_policy", "/policy",
                      "There is no policy named %s; GET /v1/policies lists them.", name);
        return NULL;
    }
    return policy;
}

/* Takes body->inputs over. */
static struct run *api_runs_accept(struct server *s, struct run_request *r, struct http_req *req,
                                   struct api_runs_body *body, struct api_error *error) {
    if (api_runs_check_policy(req, r->policy, error) < 0 || api_runs_check_env(req, r, error) < 0)
        return NULL;
    enum backend backend = BACKEND_NONE;
    const struct link_policy *policy = api_runs_policy(s, r->policy, r->backend, &backend, error);
    if (policy == NULL)
        return NULL;
    r->backend = backend;
    struct admit admit;
    struct accounts_hold hold = {0};
    uint8_t image_sha256[32];
    if (image_check(policy, r->image, r->image_digest, image_sha256, error) < 0 ||
        admit_check(r, &policy->head, &admit, error) < 0)
        return NULL;
    if (server_check_memory(s, admit.run.values.v[LIMIT_MEM_BYTES], error) < 0 ||
        api_runs_check_quota(s, req, &admit, error) < 0 ||
        api_runs_hold(req->token, r->step_count, &admit, &hold, error) < 0) {
        free(admit.steps);
        return NULL;
    }
    struct err err;
    err_clear(&err);
    struct run *run = run_new(&s->runs, r, &policy->head, &admit, &err);
    free(admit.steps);
    if (run != NULL) {
        run->token = accounts_token_ref(req->token);
        run->hold = hold;
        memcpy(run->image_sha256, image_sha256, sizeof(run->image_sha256));
        run->inputs = body->inputs;
        body->inputs = NULL;
        api_runs_keep_body(s, run, req, body);
    } else {
        accounts_budget_release(&hold);
    }
    if (run == NULL || runs_name(&s->runs, run, &err) < 0 ||
        traces_begin(s, req, NULL, &run->trace, &run->trace_state, &err) < 0 ||
        (run->inputs == NULL && (run->inputs = receipt_inputs_new(&run->request)) == NULL)) {
        log_err(&s->log, LOG_ERROR, "run_not_made", &err);
        api_error_memory(error);
    } else if (api_runs_record(s, run, req, error) == 0) {
        if (runs_add(&s->runs, run, req->user_name, &err) == 0) {
            traces_answer(req, &run->trace);
            return run;
        }
        req->audit_seq = run->accepted.seq; /* that it failed after all is recorded, too */
        if (run->store.told && store_sick(s->store) != NULL) {
            server_no_store(s, &err, error);
        } else {
            log_err(&s->log, LOG_ERROR, "run_not_made", &err);
            api_error_memory(error);
        }
    }
    run_free(run);
    return NULL;
}

static void api_runs_accepted(struct server *s, struct http_req *req, const struct run *run) {
    struct buf out;
    struct json_out j;
    buf_init(&out, 512);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "id", run->id);
    json_out_str(&j, "state",
                 run->phase == RUN_QUEUED ? "queued"
                 : run->phase == RUN_DONE ? "done"
                                          : "running");
    trace_write(&j, &run->trace);
    if (run->phase == RUN_QUEUED)
        json_out_u64(&j, "position", queue_position(&s->runs.queue, &run->queued));
    json_out_close(&j, '}');
    http_add_header(req, "Location", "/v1/runs/%s", run->id);
    api_reply_buf(req, 202, "application/json", &out, json_out_end(&j, NULL));
}

static void api_runs_decoded(struct server *s, struct http_req *req, struct run_request *r,
                             struct api_runs_body *body) {
    struct api_error error = {0};
    if (req->replay_of[0] != '\0') {
        r->wait = true;
        r->stream = false;
    }
    bool wait = r->wait, stream = r->stream;
    struct run *run = NULL;
    if (api_runs_check_room(s, req, r, &error) == 0 && audit_check(&s->audit, &error) == 0 &&
        api_runs_check_size(r, &error) == 0)
        run = api_runs_accept(s, r, req, body, &error);
    request_done(r);
    receipt_inputs_free(body->inputs);
    if (run == NULL && body->hash != NULL)
        run_store_body_unfile(&s->runs, body->hash);
    if (run != NULL && req->idem != NULL)
        idempotency_run(s, req, run, stream ? IDEMPOTENCY_STREAM : wait ? IDEMPOTENCY_WAIT : 0);
    if (run == NULL) {
        if (error.status == 503 || error.status == 429)
            s->metrics.runs_refused++;
        http_reply_error(req, &error);
    } else if (stream) {
        api_events_stream(s, req, run);
    } else if (wait) {
        api_answer_when_done(s, req, run);
    } else {
        api_runs_accepted(s, req, run);
    }
}

/* It is held before it is looked for: what is found stays. */
static bool api_runs_file_body(struct runs *runs, const char *file, struct api_runs_job *j) {
    if (bodies_hold(&runs->bodies, file, &j->err) < 0)
        return false;
    if (results_write(runs->results, file, j->body, j->len, &j->err) == 0)
        return true;
    (void)bodies_let_go(&runs->bodies, file);
    return false;
}

/* It is read where it is decoded: one that waited for its decoder in memory would cost whoever
 * asked for it nothing. */
static int api_runs_read_body(struct api_runs_job *j) {
    struct buf body;
    buf_init(&body, API_RUNS_AGAIN_MAX);
    j->rc = results_read(j->server->runs.results, j->again, &body, &j->err);
    if (j->rc < 0) {
        api_error_set(&j->error, 500, "internal", NULL, "The inputs of this run cannot be read.");
    } else {
        j->len = body.len;
        j->body = buf_take(&body);
    }
    buf_done(&body);
    return j->rc;
}

static void api_runs_decode(struct work_job *job) {
    struct api_runs_job *j = (struct api_runs_job *)(void *)job;
    char file[STORE_RUNS_FILE_SIZE];
    if (j->again[0] != '\0' && api_runs_read_body(j) < 0)
        return;
    j->rc = request_decode(j->body != NULL ? j->body : "", j->len, &j->request, &j->error);
    if (j->rc == 0)
        j->inputs = receipt_inputs_new(&j->request);
    if (j->rc == 0 && j->body != NULL && j->server->runs.store != NULL) {
        results_hash(j->body, j->len, j->hash);
        results_name(j->hash, file);
        j->filed = api_runs_file_body(&j->server->runs, file, j);
    }
    free(j->body);
    j->body = NULL;
}

static void api_runs_decode_done(struct work_job *job) {
    struct api_runs_job *j = (struct api_runs_job *)(void *)job;
    struct http_req *req = j->req;
    http_hold_end(&j->hold);
    if (req != NULL)
        req->gone = NULL;
    if (j->rc == 0 && !j->filed && j->server->runs.store != NULL) {
        store_failed(j->server->store, &j->err);
        server_no_store(j->server, &j->err, &j->error);
        request_done(&j->request);
        receipt_inputs_free(j->inputs);
        j->rc = -1;
    }
    struct api_runs_body body = {
        .hash = j->filed ? j->hash : NULL, .len = j->len, .inputs = j->inputs};
    if (req != NULL && j->rc == 0) {
        api_runs_decoded(j->server, req, &j->request, &body);
    } else if (req != NULL) {
        http_reply_error(req, &j->error);
    } else if (j->rc == 0) {
        request_done(&j->request); /* nobody was told of it, so nothing is owed */
        receipt_inputs_free(j->inputs);
        if (j->filed)
            run_store_body_unfile(&j->server->runs, j->hash);
    }
    free(j);
}

static void api_runs_gone(struct http_req *req) {
    struct api_runs_job *j = req->owner;
    j->req = NULL;
}

static void api_runs_create_later(struct server *s, struct http_req *req, const char *again) {
    struct api_error error = {0};
    struct api_runs_job *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    j->job = (struct work_job){.run = api_runs_decode, .done = api_runs_decode_done};
    j->server = s;
    j->req = req;
    str_copy(j->again, sizeof(j->again), again);
    j->body = http_take_body(req, &j->len, &j->hold);
    if (again[0] != '\0') { /* what came with the request is nothing */
        http_hold_end(&j->hold);
        free(j->body);
        j->body = NULL;
    }
    req->owner = j;
    req->gone = api_runs_gone;
    work_add(s->work, &j->job);
}

void api_runs_create_again(struct server *s, struct http_req *req, const char *file) {
    api_runs_create_later(s, req, file);
}

void api_runs_create(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct run_request request;
    if (req->body_len <= RUN_STORE_INLINE) {
        const char *body = req->body != NULL ? req->body : "";
        struct api_runs_body here = {.len = req->body_len};
        if (request_decode(body, req->body_len, &request, &error) == 0)
            api_runs_decoded(s, req, &request, &here);
        else
            http_reply_error(req, &error);
        return;
    }
    api_runs_create_later(s, req, "");
}
