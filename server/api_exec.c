#include "api_exec.h"
#include "clock.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "admit.h"
#include "execs.h"
#include "id.h"
#include "idempotency.h"
#include "json_out.h"
#include "receipt_exec.h"
#include "receipt_run.h"
#include "sandbox.h"
#include "spec.h"
#include "traces.h"

#define API_EXEC_LIST_DEFAULT 50u
#define API_EXEC_LIST_MAX 1000u
#define API_EXEC_LIST_BYTES ((size_t)4 * 1024 * 1024)
/* What env.c adds to what the request names. */
#define API_EXEC_ENV_BYTES 2048u

/* A body that is being decoded, here or by a worker. */
struct api_exec_job {
    struct work_job job;
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    char sandbox[SANDBOX_ID_SIZE];
    char *body;
    size_t len;
    struct http_hold hold;    /* of the body */
    char keyed[EXEC_ID_SIZE]; /* the id that an Idempotency-Key stands for; "" = none */
    uint8_t hash[EXEC_HASH_SIZE];
    struct exec_request request;
    struct exec_send_parts parts; /* of one that is large: copied … */
    uint8_t input_sha256[32];     /* … and hashed, by the worker */
    struct api_error error;
    int rc;
};

static void api_exec_no_exec(struct http_req *req) {
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL, "There is no such execution in this sandbox.");
    http_reply_error(req, &error);
}

/* The sandbox's executions; answers when there is no such sandbox. */
static struct execs *api_exec_set(struct server *s, struct http_req *req, const char *sandbox) {
    struct api_error error = {0};
    struct err err;
    err_clear(&err);
    struct sandbox *sb = sandbox_mine(s, req, sandbox);
    if (sb == NULL)
        return NULL;
    if (execs_attach(s, sb, &err) == 0)
        return execs_of(sb);
    api_error_set(&error, 500, "internal", NULL, "The executions of this sandbox cannot be read.");
    http_reply_error(req, &error);
    return NULL;
}

struct exec *api_exec_mine(struct server *s, struct http_req *req, const struct route_args *args) {
    struct execs *set = api_exec_set(s, req, args->value[0]);
    if (set == NULL)
        return NULL;
    execs_settle(set);
    struct exec *x = execs_find(set, args->value[1]);
    if (x == NULL)
        api_exec_no_exec(req);
    return x;
}

/* What the wire can carry. */
static int api_exec_check_size(const struct sandbox *sb, const struct exec_request *r,
                               struct api_error *error) {
    const struct request_step *step = &r->run.steps[0];
    const struct request_env *both[2] = {sandbox_env(sb), &step->env};
    size_t bytes = strlen(request_cwd(&r->run, 0)) + 1 + API_EXEC_ENV_BYTES;
    for (size_t i = 0; i < step->argc; i++)
        bytes += strlen(step->argv[i]) + 1;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < both[k]->count; i++)
            bytes += strlen(both[k]->items[i]) + 1;
    if (bytes <= WIRE_SPEC_MAX - sizeof(struct spec_head))
        return 0;
    return api_error_set(error, 413, "too_large", NULL,
                         "Arguments and environment have %zu bytes together; at most %u are "
                         "possible.",
                         bytes, WIRE_SPEC_MAX - API_EXEC_ENV_BYTES);
}

static uint32_t api_exec_flags(const struct exec_request *r) {
    uint32_t flags = r->rows > 0 ? EXEC_PTY : 0u;
    if (r->run.steps[0].merge_stderr)
        flags |= EXEC_MERGED;
    if (!r->run.wait)
        flags |= EXEC_BACKGROUND;
    if (r->stdin_open)
        flags |= EXEC_STDIN_OPEN;
    return flags;
}

/* Why it could not be sent. */
static int api_exec_refused(const struct sandbox *sb, const struct err *err,
                            struct api_error *error) {
    if (err->kind == ERR_STATE && sandbox_state(sb) == SANDBOX_PAUSED)
        return api_error_set(error, 409, "paused", NULL,
                             "The sandbox is paused; resume it to run commands.");
    if (err->kind == ERR_STATE)
        return api_error_set(error, 409, "not_ready", NULL, "The sandbox is not ready.");
    if (err->kind == ERR_LIMIT)
        return api_error_set(error, 429, "too_many_executions", NULL,
                             "As many executions run in this sandbox as are possible at once.");
    if (err->code == EMFILE || err->code == ENFILE || err->code == ENOMEM)
        return api_error_set(error, 503, "busy", NULL,
                             "The server has too much at once to do; try again.");
    if (err->code == ENOSPC || err->code == EDQUOT)
        return api_error_set(error, 507, "no_space", NULL,
                             "The server has no room to keep what the command writes.");
    return api_error_set(error, 500, "internal", NULL, "The command could not be sent.");
}

/* What runs in the background is there to stay: a server, not a step that hangs. */
static void api_exec_stay(const struct request_limits *wish, const struct wire_policy *policy,
                          struct limits_effective *limits) {
    static const enum limit_id ids[] = {LIMIT_WALL_MS, LIMIT_CPU_MS};
    for (size_t i = 0; i < 2; i++) {
        if (wish->set[ids[i]])
            continue;
        limits->values.v[ids[i]] = policy->ceiling.v[ids[i]];
        limits->from[ids[i]] = LIMITS_FROM_POLICY;
    }
}

/* Made of a request that was found good, and not in the table yet. */
static struct exec *api_exec_make(struct execs *set, const struct api_exec_job *job,
                                  const struct limits_effective *limits, const char *id,
                                  struct err *err) {
    const struct exec_request *r = &job->request;
    const struct wire_policy *policy = sandbox_policy(set->sandbox);
    struct trace trace;
    char *state = NULL;
    if (traces_begin(job->server, job->req, &sandbox_spec(set->sandbox)->trace, &trace, &state,
                     err) < 0)
        return NULL;
    struct exec_birth birth = {.id = id,
                               .name = r->run.steps[0].name,
                               .step = &r->run.steps[0],
                               .hash = r->id != NULL ? job->hash : NULL,
                               .limits = limits,
                               .trace = &trace,
                               .flags = api_exec_flags(r),
                               .end_on = r->run.end_on_set ? r->run.end_on : policy->end_on,
                               .rows = r->rows,
                               .cols = r->cols};
    struct exec *x = exec_new(set, &birth, err);
    if (x != NULL)
        x->trace_state = state;
    else
        free(state);
    return x;
}

static int api_exec_record(const struct execs *set, const struct api_exec_job *job,
                           const struct exec *x, struct audit_mark *mark, struct api_error *error) {
    const struct http_req *req = job->req;
    const struct wire_policy *policy = sandbox_policy(set->sandbox);
    uint8_t argv[32];
    receipt_inputs_argv(&job->request.run, argv);
    struct audit_asked asked = {.what = "exec",
                                .id = x->id,
                                .sandbox = sandbox_id(set->sandbox),
                                .user = req->user_name,
                                .token = req->token != NULL ? req->token->id : NULL,
                                .policy = policy->name,
                                .policy_sha256 = policy->sha256,
                                .limits = &x->limits.values,
                                .argv_sha256 = argv};
    return audit_accepted(&job->server->audit, &asked, mark, error);
}

static int api_exec_check_quota(const struct api_exec_job *job, struct api_error *error) {
    struct quota_held who = {0};
    quota_hold(job->server->quota, &who, job->req->token, job->req->user_name);
    int rc = quota_may_exec(job->server->quota, &who, error);
    quota_let_go(job->server->quota, &who);
    return rc;
}

static struct exec *api_exec_start(struct execs *set, struct api_exec_job *job,
                                   struct api_error *error) {
    const struct exec_request *r = &job->request;
    struct sandbox *sb = set->sandbox;
    const struct wire_policy *policy = sandbox_policy(sb);
    const struct request_step *step = &r->run.steps[0];
    struct limits_effective limits;
    char id[EXEC_ID_SIZE];
    struct err err;
    err_clear(&err);
    if (api_exec_check_size(sb, r, error) < 0 || api_exec_check_quota(job, error) < 0 ||
        api_runs_check_policy(job->req, policy->name, error) < 0 ||
        api_tokens_check_env(job->req, &step->env, "/env", error) < 0 ||
        admit_step_limits(&step->limits, "", policy, sandbox_limits(sb), &limits, error) < 0)
        return NULL;
    if (r->id == NULL && id_make(id, sizeof(id), "ex_", &err) < 0) {
        api_error_memory(error);
        return NULL;
    }
    if (!r->run.wait)
        api_exec_stay(&step->limits, policy, &limits);
    uint64_t cpu_ms = limits.values.v[LIMIT_CPU_MS];
    struct accounts_hold hold = {0};
    if (accounts_budget_hold(job->req->token, clock_real_ms(), &cpu_ms, &hold, error) < 0)
        return NULL;
    api_runs_lower_cpu(&limits, cpu_ms);
    struct exec *x = api_exec_make(set, job, &limits, r->id != NULL ? r->id : id, &err);
    if (x == NULL) {
        accounts_budget_release(&hold);
        api_error_memory(error);
        return NULL;
    }
    x->token = accounts_token_ref(job->req->token);
    x->task.token = x->token;
    x->hold = hold;
    struct audit_mark mark;
    if (api_exec_record(set, job, x, &mark, error) < 0) {
        accounts_budget_release(&x->hold);
        exec_free(x);
        return NULL;
    }
    x->receipt = receipt_exec_new(sb, r, &mark);
    execs_insert(set, x);
    if (exec_send(x, r, &job->parts, &err) == 0)
        return x;
    job->req->audit_seq = mark.seq; /* that it failed after all is recorded, too */
    accounts_budget_release(&x->hold);
    execs_log(x, &err);
    api_exec_refused(sb, &err, error);
    execs_forget(x, true);
    return NULL;
}

static void api_exec_accepted(struct http_req *req, const struct exec *x) {
    struct json_out j;
    struct buf out;
    buf_init(&out, 1024);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "id", x->id);
    json_out_str(&j, "state", x->state == EXEC_DONE ? "done" : "running");
    trace_write(&j, &x->trace);
    json_out_close(&j, '}');
    api_reply_buf(req, 202, "application/json", &out, json_out_end(&j, NULL));
}

/* The execution that the client named is there already: is it the same request? */
static int api_exec_again(const struct exec *x, const struct api_exec_job *job,
                          struct api_error *error) {
    if (memcmp(x->hash, job->hash, sizeof(x->hash)) == 0)
        return 0;
    if (job->request.id == job->keyed)
        return api_error_set(error, 409, "idempotency_conflict", NULL,
                             "This Idempotency-Key was used for another request.");
    return api_error_set(error, 409, "id_taken", "/id",
                         "There is an execution with this id, and it is another command.");
}

static void api_exec_reply(struct server *s, struct http_req *req, struct exec *x,
                           const struct exec_request *r, bool mine) {
    bool cancels = mine && r->run.cancel_on_disconnect;
    if (r->run.stream)
        api_exec_events_stream(req, x, cancels);
    else if (r->run.wait)
        api_exec_answer_when_done(s, req, x, cancels ? API_EXEC_CANCELS : API_EXEC_PLAIN);
    else
        api_exec_accepted(req, x);
}

static void api_exec_decoded(struct api_exec_job *job) {
    struct server *s = job->server;
    struct http_req *req = job->req;
    struct exec_request *r = &job->request;
    struct execs *set = api_exec_set(s, req, job->sandbox);
    if (set != NULL) {
        struct exec *x = r->id != NULL ? execs_find(set, r->id) : NULL;
        if (x == NULL)
            x = api_exec_start(set, job, &job->error);
        else if (api_exec_again(x, job, &job->error) < 0)
            x = NULL;
        if (x == NULL) {
            http_reply_error(req, &job->error);
        } else {
            traces_answer(req, &x->trace);
            api_exec_reply(s, req, x, r, true);
        }
    }
}

static void api_exec_decode(struct work_job *job) {
    struct api_exec_job *j = (struct api_exec_job *)(void *)job;
    const char *body = j->body != NULL ? j->body : "";
    j->rc = exec_request_decode(body, j->len, &j->request, &j->error);
    /* An id that the client chose does what a key does. */
    if (j->rc == 0 && j->request.id == NULL && j->keyed[0] != '\0')
        j->request.id = j->keyed;
    if (j->rc == 0 && j->request.id != NULL)
        exec_request_hash(&j->request, j->hash);
}

/* What would hold the loop up for long. */
static void api_exec_decode_large(struct work_job *job) {
    struct api_exec_job *j = (struct api_exec_job *)(void *)job;
    struct run_request *r = &j->request.run;
    api_exec_decode(job);
    if (j->rc < 0)
        return;
    struct request_bytes *input = r->steps[0].input.data != NULL ? &r->steps[0].input : &r->input;
    if (input->data != NULL) {
        crypto_hash_sha256(j->input_sha256, (const unsigned char *)input->data, input->len);
        input->sha256 = j->input_sha256;
    }
    exec_send_parts_make(&j->parts, &j->request);
}

/* As long as it takes to make it. */
static void api_exec_free(struct work_job *job) {
    struct api_exec_job *j = (struct api_exec_job *)(void *)job;
    if (j->rc == 0)
        exec_request_done(&j->request);
    exec_send_parts_done(&j->parts);
    free(j->body);
    free(j);
}

static void api_exec_decode_done(struct work_job *job) {
    struct api_exec_job *j = (struct api_exec_job *)(void *)job;
    http_hold_end(&j->hold);
    if (j->req != NULL)
        j->req->gone = NULL;
    if (j->req != NULL && j->rc == 0)
        api_exec_decoded(j);
    else if (j->req != NULL)
        http_reply_error(j->req, &j->error);
    /* If the client is gone, nobody was told of it, so nothing is owed. */
    j->job = (struct work_job){.run = api_exec_free};
    work_add(j->server->work, &j->job);
}

static void api_exec_gone(struct http_req *req) {
    struct api_exec_job *j = req->owner;
    j->req = NULL;
}

void api_exec_create(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    struct api_exec_job here = {.server = s, .req = req, .body = req->body, .len = req->body_len};
    bool large = req->body_len > SERVER_INLINE_MAX;
    exec_send_parts_init(&here.parts);
    if (sandbox_mine(s, req, args->value[0]) == NULL)
        return;
    idempotency_exec_id(req, here.keyed, &error);
    if (error.status != 0) {
        http_reply_error(req, &error);
        return;
    }
    struct api_exec_job *j = large ? calloc(1, sizeof(*j)) : &here;
    if (j == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    if (!large) {
        memcpy(here.sandbox, args->value[0], strnlen(args->value[0], sizeof(here.sandbox) - 1));
        api_exec_decode(&here.job);
        if (here.rc == 0)
            api_exec_decoded(&here);
        else
            http_reply_error(req, &here.error);
        exec_request_done(&here.request);
        return;
    }
    *j = here; /* keyed is looked at in its new place */
    memcpy(j->sandbox, args->value[0], strnlen(args->value[0], sizeof(j->sandbox) - 1));
    j->job = (struct work_job){.run = api_exec_decode_large, .done = api_exec_decode_done};
    j->body = http_take_body(req, &j->len, &j->hold);
    req->owner = j;
    req->gone = api_exec_gone;
    work_add(s->work, &j->job);
}

void api_exec_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    traces_answer(req, &x->trace);
    api_exec_answer_now(s, req, x);
}

void api_exec_delete(struct server *s, struct http_req *req, const struct route_args *args) {
    static const struct http_body nothing = {.data = "", .len = 0};
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    if (x->state == EXEC_DONE) {
        execs_forget(x, true);
        http_reply(req, 204, "application/json", &nothing);
        return;
    }
    exec_kill(x, CAUSE_CANCELLED);
    api_exec_answer_when_done(s, req, x, API_EXEC_REMOVES);
}

static int api_exec_write_list(const struct exec *from, uint64_t limit, struct buf *out,
                               struct err *err) {
    const struct exec *x = from, *last = NULL;
    if (buf_puts(out, "{\"execs\":[", err) < 0)
        return -1;
    for (uint64_t n = 0; x != NULL && n < limit; n++, x = x->older) {
        if ((n > 0 && buf_puts(out, ",", err) < 0) || exec_answer_encode_summary(x, out, err) < 0)
            return -1;
        last = x;
    }
    if (x == NULL || last == NULL)
        return buf_puts(out, "],\"next\":null}", err);
    return buf_printf(out, err, "],\"next\":\"%s\"}", last->id);
}

void api_exec_list(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    uint64_t limit = API_EXEC_LIST_DEFAULT;
    const char *after = http_query(req, "after");
    struct execs *set = api_exec_set(s, req, args->value[0]);
    if (set == NULL)
        return;
    execs_settle(set);
    const struct exec *from = set->newest;
    if (route_query_u64(req, "limit", 1, API_EXEC_LIST_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (after != NULL && after[0] != '\0') {
        from = execs_find(set, after);
        if (from == NULL) {
            api_exec_no_exec(req);
            return;
        }
        from = from->older;
    }
    struct buf out;
    buf_init(&out, API_EXEC_LIST_BYTES);
    int rc = api_exec_write_list(from, limit, &out, NULL);
    api_reply_buf(req, 200, "application/json", &out, rc);
}
