#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admit.h"
#include "answer.h"
#include "api.h"
#include "clock.h"
#include "fd.h"
#include "image.h"
#include "json_out.h"
#include "receipt_run.h"
#include "spec.h"
#include "str.h"
#include "traces.h"

#define API_RUNS_LIST_DEFAULT 50u
#define API_RUNS_LIST_MAX 1000u
#define API_RUNS_LIST_BYTES ((size_t)1024 * 1024)
/* What env.c adds to what the request names. */
#define API_RUNS_ENV_BYTES 2048u

/* A body that is being decoded, here or by a worker. */
struct api_runs_job {
    struct work_job job;
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    char *body;
    size_t len;
    struct run_request request;
    struct receipt_inputs *inputs; /* digests of a large request */
    struct api_error error;
    int rc;
};

static void api_runs_no_run(struct http_req *req) {
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL, "There is no such run.");
    http_reply_error(req, &error);
}

struct run *api_runs_mine(struct server *s, struct http_req *req, const char *id) {
    struct run *run = runs_find(&s->runs, id);
    if (run != NULL && strcmp(run->owner, req->user_name) == 0)
        return run;
    api_runs_no_run(req);
    return NULL;
}

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

int api_runs_check_image(const char *image, struct api_error *error) {
    char path[WIRE_NAME_MAX + 32];
    if (strcmp(image, IMAGE_HOST) == 0)
        return 0;
    snprintf(path, sizeof(path), STATE_IMAGES "/%s/manifest.json", image);
    if (access(path, F_OK) == 0)
        return 0;
    return api_error_set(error, 400, "unknown_image", "/image", "There is no image named %s.",
                         image);
}

static int api_runs_check_room(struct server *s, const struct http_req *req,
                               const struct run_request *r, struct api_error *error) {
    struct queue_share share;
    if (s->draining)
        return api_error_set(error, 503, "draining", NULL,
                             "The server is about to stop and takes no new work.");
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

/* Which image it was, whatever is imported under this name later. */
static void api_runs_image(struct run *run) {
    struct image image;
    if (strcmp(run->image, IMAGE_HOST) == 0)
        return;
    fd_cleanup int dir = open(STATE_IMAGES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && image_read(dir, run->image, &image, NULL) == 0)
        str_copy(run->inputs->image_sha256, sizeof(run->inputs->image_sha256), image.sha256);
}

/* Nothing begins that the audit log does not know. */
static int api_runs_record(struct server *s, struct run *run, const struct http_req *req,
                           struct api_error *error) {
    api_runs_image(run);
    struct audit_asked asked = {.what = "run",
                                .id = run->id,
                                .user = req->user_name,
                                .token = req->token != NULL ? req->token->id : NULL,
                                .policy = run->policy.name,
                                .policy_sha256 = run->policy.sha256,
                                .image = run->image,
                                .limits = &run->limits.values,
                                .argv_sha256 = run->inputs->argv_sha256,
                                .files = run->inputs->files,
                                .files_sha256 = run->inputs->files_sha256};
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

/* Takes *inputs over, which may be NULL. */
static struct run *api_runs_accept(struct server *s, struct run_request *r, struct http_req *req,
                                   struct receipt_inputs **inputs, struct api_error *error) {
    const struct link *shard = links_first_ready(&s->links);
    if (shard == NULL) {
        api_error_set(error, 503, "no_runner", NULL,
                      "No runner is connected, so nothing can be run now.");
        return NULL;
    }
    if (api_runs_check_policy(req, r->policy, error) < 0 || api_runs_check_env(req, r, error) < 0)
        return NULL;
    const struct link_policy *policy = link_policy(shard, r->policy);
    if (policy == NULL) {
        api_error_set(error, 400, "unknown_policy", "/policy", "There is no policy named %s.",
                      r->policy);
        return NULL;
    }
    struct admit admit;
    struct accounts_hold hold = {0};
    if (admit_check(r, &policy->head, &admit, error) < 0)
        return NULL;
    if (api_runs_hold(req->token, r->step_count, &admit, &hold, error) < 0) {
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
        run->inputs = *inputs;
        *inputs = NULL;
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
        log_err(&s->log, LOG_ERROR, "run_not_made", &err);
        api_error_memory(error);
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
                             struct receipt_inputs *inputs) {
    struct api_error error = {0};
    bool wait = r->wait, stream = r->stream;
    struct run *run = NULL;
    if (api_runs_check_room(s, req, r, &error) == 0 && audit_check(&s->audit, &error) == 0 &&
        api_runs_check_size(r, &error) == 0 && api_runs_check_image(r->image, &error) == 0)
        run = api_runs_accept(s, r, req, &inputs, &error);
    request_done(r);
    receipt_inputs_free(inputs);
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

static void api_runs_decode(struct work_job *job) {
    struct api_runs_job *j = (struct api_runs_job *)(void *)job;
    j->rc = request_decode(j->body != NULL ? j->body : "", j->len, &j->request, &j->error);
    if (j->rc == 0)
        j->inputs = receipt_inputs_new(&j->request);
    free(j->body);
    j->body = NULL;
}

static void api_runs_decode_done(struct work_job *job) {
    struct api_runs_job *j = (struct api_runs_job *)(void *)job;
    struct http_req *req = j->req;
    if (req != NULL)
        req->gone = NULL;
    if (req != NULL && j->rc == 0)
        api_runs_decoded(j->server, req, &j->request, j->inputs);
    else if (req != NULL)
        http_reply_error(req, &j->error);
    else if (j->rc == 0) {
        request_done(&j->request); /* nobody was told of it, so nothing is owed */
        receipt_inputs_free(j->inputs);
    }
    free(j);
}

static void api_runs_gone(struct http_req *req) {
    struct api_runs_job *j = req->owner;
    j->req = NULL;
}

void api_runs_create(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct run_request request;
    if (req->body_len <= SERVER_INLINE_MAX) {
        const char *body = req->body != NULL ? req->body : "";
        if (request_decode(body, req->body_len, &request, &error) == 0)
            api_runs_decoded(s, req, &request, NULL);
        else
            http_reply_error(req, &error);
        return;
    }
    struct api_runs_job *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    j->job = (struct work_job){.run = api_runs_decode, .done = api_runs_decode_done};
    j->server = s;
    j->req = req;
    j->body = http_take_body(req, &j->len);
    req->owner = j;
    req->gone = api_runs_gone;
    work_add(s->work, &j->job);
}

void api_runs_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct run *run = api_runs_mine(s, req, args->value[0]);
    if (run == NULL)
        return;
    traces_answer(req, &run->trace);
    api_answer_now(s, req, run);
}

void api_runs_delete(struct server *s, struct http_req *req, const struct route_args *args) {
    struct run *run = api_runs_mine(s, req, args->value[0]);
    if (run == NULL)
        return;
    runs_pin(run);
    if (run->phase == RUN_DONE)
        run_keep_drop(run);
    run_cancel(run, CAUSE_CANCELLED);
    api_answer_when_done(s, req, run);
    runs_unpin(run);
}

static int api_runs_write_list(const struct run *from, const char *owner, uint64_t limit,
                               struct buf *out, struct err *err) {
    const struct run *last = NULL;
    uint64_t n = 0;
    if (buf_puts(out, "{\"runs\":[", err) < 0)
        return -1;
    const struct run *run = from;
    for (; run != NULL; run = run->older) {
        if (strcmp(run->owner, owner) != 0)
            continue;
        if (n == limit)
            break;
        if ((n++ > 0 && buf_puts(out, ",", err) < 0) || answer_encode_summary(run, out, err) < 0)
            return -1;
        last = run;
    }
    if (run == NULL || last == NULL)
        return buf_puts(out, "],\"next\":null}", err);
    return buf_printf(out, err, "],\"next\":\"%s\"}", last->id);
}

void api_runs_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    uint64_t limit = API_RUNS_LIST_DEFAULT;
    const char *after = http_query(req, "after");
    const struct run *from = s->runs.newest;
    if (route_query_u64(req, "limit", 1, API_RUNS_LIST_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (after != NULL && after[0] != '\0') {
        const struct run *run = runs_find(&s->runs, after);
        if (run == NULL || strcmp(run->owner, req->user_name) != 0) {
            api_runs_no_run(req);
            return;
        }
        from = run->older;
    }
    struct buf out;
    buf_init(&out, API_RUNS_LIST_BYTES);
    int rc = api_runs_write_list(from, req->user_name, limit, &out, NULL);
    api_reply_buf(req, 200, "application/json", &out, rc);
}
