#include "seen.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "execs.h"
#include "ready.h"
#include "route.h"
#include "runs.h"
#include "server.h"

static void seen_trace(struct log_line *line, const struct trace *t) {
    char text[TRACEPARENT_ID_TEXT];
    if (!trace_is_set(t))
        return;
    traceparent_hex(t->id, sizeof(t->id), text);
    log_str(line, "trace", text);
}

/* Runs. */

static void seen_run_fields(struct log_line *line, const struct run *run) {
    log_str(line, "run", run->id);
    log_str(line, "user", run->owner);
    if (run->token != NULL)
        log_str(line, "token", run->token->id);
    seen_trace(line, &run->trace);
    log_str(line, "policy", run->policy.name);
}

void seen_run_accepted(struct runs *runs, const struct run *run) {
    struct log_line line;
    metrics_count(&runs->metrics->rate_accepted, run->created_ns);
    if (runs->log->min > LOG_DEBUG)
        return;
    log_begin(&line, runs->log, LOG_DEBUG, "run_accepted");
    seen_run_fields(&line, run);
    log_u64(&line, "steps", run->step_count);
    log_end(&line);
}

static enum log_level seen_level(enum cause cause) {
    return cause == CAUSE_INTERNAL || cause == CAUSE_INTERRUPTED ? LOG_WARN : LOG_DEBUG;
}

static void seen_end_fields(struct log_line *line, const struct step_end *end) {
    log_str(line, "cause", cause_name(end->cause));
    if (end->exit_code >= 0)
        log_i64(line, "exit_code", end->exit_code);
    if (end->cause == CAUSE_INTERNAL)
        log_str(line, "stage", end->stage);
}

void seen_run_ended(struct runs *runs, const struct run *run) {
    struct metrics *m = runs->metrics;
    const struct step_end *end = &run->steps[run->current].end;
    struct log_line line;
    metrics_count(&m->rate_ended, run->ended_ns);
    if (run->ok)
        m->runs_ok++;
    else
        m->runs_failed++;
    if (run->begun_ns >= run->created_ns) {
        metrics_observe(&m->start, run->begun_ns - run->created_ns);
        if (run->ended_ns >= run->begun_ns)
            metrics_observe(&m->run, run->ended_ns - run->begun_ns);
    }
    enum log_level level = seen_level(end->cause);
    if (runs->log->min > level)
        return;
    log_begin(&line, runs->log, level, "run_ended");
    seen_run_fields(&line, run);
    log_u64(&line, "steps", run->step_count);
    log_u64(&line, "last_step", run->current);
    seen_end_fields(&line, end);
    log_u64(&line, "ms", (run->ended_ns - run->created_ns) / CLOCK_NS_PER_MS);
    log_end(&line);
}

void seen_exec_ended(const struct exec *x) {
    const struct exec_hub *hub = x->set->hub;
    struct metrics *m = hub->metrics;
    const struct sandbox *sb = x->set->sandbox;
    struct log_line line;
    m->exec_ends[x->end.cause]++;
    metrics_count(&m->rate_execs, clock_mono_ns());
    if (x->usage.wall_ns != 0) {
        metrics_observe(&m->setup, x->setup_ns);
        metrics_observe(&m->exec, x->usage.wall_ns);
    }
    enum log_level level = seen_level(x->end.cause);
    if (hub->log->min > level)
        return;
    log_begin(&line, hub->log, level, "exec_ended");
    log_str(&line, "exec", x->id);
    if (sb != NULL) {
        log_str(&line, "sandbox", sandbox_id(sb));
        log_str(&line, "user", sandbox_owner(sb));
    }
    if (x->token != NULL)
        log_str(&line, "token", x->token->id);
    seen_trace(&line, &x->trace);
    seen_end_fields(&line, &x->end);
    log_u64(&line, "ms", x->usage.wall_ns / CLOCK_NS_PER_MS);
    log_end(&line);
}

void seen_ready(struct server *s, const struct ready_reason *reasons, size_t count) {
    struct log_line line;
    if (s->seen.red == (count > 0))
        return;
    s->seen.red = count > 0;
    log_begin(&line, &s->log, count > 0 ? LOG_WARN : LOG_INFO, count > 0 ? "not_ready" : "ready");
    if (count > 0) {
        log_str(&line, "layer", reasons[0].layer);
        log_str(&line, "why", reasons[0].message);
    }
    log_end(&line);
}

/* Requests. */

static bool seen_is_refusal(int status) {
    return status == 401 || status == 403 || status == 429 || status == 503 || status == 507;
}

/* Who watches the server asks often. */
static bool seen_is_public(const struct http_req *req) {
    return req->route != NULL && (req->route->flags & ROUTE_PUBLIC) != 0;
}

/* Users and tokens are changed by it. */
static bool seen_is_admin(const struct http_req *req) {
    const char *pattern = req->route != NULL ? req->route->pattern : "";
    /* Of what was refused before it was understood there is no method. */
    return req->method != NULL && strcmp(req->method, "GET") != 0 &&
           metrics_family(pattern) == METRICS_TOKENS;
}

/* Whoever is refused could fill the disk with it. */
static bool seen_may_log(struct seen *seen, uint64_t now_ns) {
    uint64_t second = now_ns / CLOCK_NS_PER_S;
    if (seen->second != second) {
        seen->second = second;
        seen->lines = 0;
    }
    if (seen->lines < SEEN_REFUSED_MAX) {
        seen->lines++;
        return true;
    }
    seen->left_out++;
    return false;
}

static void seen_log_request(struct server *s, struct http_req *req, enum log_level level,
                             const char *event, uint64_t ns) {
    struct log_line line;
    log_begin(&line, &s->log, level, event);
    log_str(&line, "method", req->method != NULL ? req->method : "");
    log_str(&line, "route", req->route != NULL ? req->route->pattern : "");
    log_i64(&line, "status", req->status);
    if (req->error_code[0] != '\0')
        log_str(&line, "code", req->error_code);
    if (req->user_name[0] != '\0')
        log_str(&line, "user", req->user_name);
    if (req->token != NULL)
        log_str(&line, "token", req->token->id);
    const char *client = http_client(req);
    if (client != NULL && client[0] != '\0')
        log_str(&line, "client", client);
    if (ns != UINT64_MAX)
        log_u64(&line, "us", ns / 1000);
    if (s->seen.left_out > 0 && level == LOG_INFO) {
        log_u64(&line, "left_out", s->seen.left_out);
        s->seen.left_out = 0;
    }
    log_end(&line);
}

void seen_request(struct server *s, struct http_req *req) {
    struct metrics *m = &s->metrics;
    uint64_t now = clock_mono_ns();
    uint64_t ns = req->begun_ns != 0 && now > req->begun_ns ? now - req->begun_ns : UINT64_MAX;
    if (req->status > 0 && req->status < METRICS_STATUS_MAX)
        m->responses[req->status / 100]++;
    if (req->route != NULL && ns != UINT64_MAX)
        metrics_observe(&m->http[metrics_family(req->route->pattern)], ns);
    if (req->status >= 400)
        metrics_refusal(m, req->error_code);
    if (s->log.min <= LOG_DEBUG)
        seen_log_request(s, req, LOG_DEBUG, "request", ns);
    if (seen_is_admin(req))
        seen_log_request(s, req, LOG_INFO, "admin", UINT64_MAX);
    else if (seen_is_refusal(req->status) && !seen_is_public(req) && seen_may_log(&s->seen, now))
        seen_log_request(s, req, LOG_INFO, "refused", UINT64_MAX);
}
