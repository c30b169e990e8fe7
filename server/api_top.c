#include <string.h>

#include "api.h"
#include "clock.h"
#include "json_out.h"
#include "ready.h"
#include "top.h"

#define API_TOP_LIMIT 100u
#define API_TOP_BYTES ((size_t)8 * 1024 * 1024)
/* Working out a position looks at what waits in front: only for the first ones. */
#define API_TOP_POSITIONS 8u

static void api_top_limits(struct json_out *j, const struct limits *limits) {
    static const enum limit_id ids[] = {LIMIT_MEM_BYTES, LIMIT_CPUS_MILLI, LIMIT_WALL_MS,
                                        LIMIT_DISK_BYTES};
    json_out_open(j, "limits", '{');
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        json_out_u64(j, limit_info(ids[i])->name, limits->v[ids[i]]);
    json_out_close(j, '}');
}

/* What runs at this moment; null when nothing of it does, or its runner did not say. */
static void api_top_live(struct json_out *j, const struct link_jail *jail) {
    struct link_sight sight;
    if (!link_seen(jail, &sight)) {
        json_out_null(j, "live");
        return;
    }
    json_out_open(j, "live", '{');
    json_out_u64(j, "cpu_ms", sight.cpu_ns / CLOCK_NS_PER_MS);
    if (sight.cpus_milli == UINT32_MAX)
        json_out_null(j, "cpus_milli");
    else
        json_out_u64(j, "cpus_milli", sight.cpus_milli);
    json_out_u64(j, "mem_bytes", sight.mem_bytes);
    json_out_close(j, '}');
}

/* What the steps that are over have used. */
static void api_top_used(struct json_out *j, const struct run *run) {
    uint64_t cpu_ns = 0, peak = 0;
    bool known = false;
    for (size_t i = 0; i < run->step_count; i++) {
        const struct wire_usage *u = &run->steps[i].usage;
        if (!run->steps[i].has_usage)
            continue;
        known = true;
        cpu_ns += u->cpu_user_ns + u->cpu_system_ns;
        peak = u->mem_peak_bytes > peak ? u->mem_peak_bytes : peak;
    }
    if (!known) {
        json_out_null(j, "used");
        return;
    }
    json_out_open(j, "used", '{');
    json_out_u64(j, "cpu_ms", cpu_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "mem_peak_bytes", peak);
    json_out_close(j, '}');
}

/* A command may hold secrets: only its owner sees it. */
static void api_top_label(struct json_out *j, const char *label, const char *owner,
                          const struct http_req *req) {
    if (strcmp(owner, req->user_name) == 0)
        json_out_str(j, "label", label);
    else
        json_out_null(j, "label");
}

static void api_top_run(struct json_out *j, const struct server *s, const struct run *run,
                        const struct http_req *req, bool position) {
    uint64_t now = clock_mono_ns();
    json_out_open(j, NULL, '{');
    json_out_str(j, "id", run->id);
    json_out_str(j, "user", run->owner);
    json_out_str(j, "state", run->phase == RUN_QUEUED ? "queued" : "running");
    api_top_label(j, run->label, run->owner, req);
    json_out_str(j, "policy", run->policy.name);
    json_out_str(j, "image", run->image);
    json_out_u64(j, "age_ms", (now - run->created_ns) / CLOCK_NS_PER_MS);
    if (run->phase == RUN_QUEUED) {
        if (position)
            json_out_u64(j, "position", queue_position(&s->runs.queue, &run->queued));
    } else {
        json_out_u64(j, "running_ms", (now - run->dispatched_ns) / CLOCK_NS_PER_MS);
        json_out_u64(j, "step", run->current);
        json_out_str(j, "step_name", run->steps[run->current].name);
    }
    json_out_u64(j, "steps", run->step_count);
    api_top_used(j, run);
    api_top_live(j, run->jail);
    api_top_limits(j, &run->limits.values);
    json_out_close(j, '}');
}

static void api_top_runs(struct json_out *j, const struct server *s, const struct top *t,
                         const struct http_req *req) {
    size_t positions = 0;
    json_out_open(j, "runs", '[');
    for (size_t i = 0; i < t->run_count; i++) {
        bool queued = t->runs[i]->phase == RUN_QUEUED;
        positions += queued;
        api_top_run(j, s, t->runs[i], req, queued && positions <= API_TOP_POSITIONS);
    }
    json_out_close(j, ']');
    json_out_u64(j, "running", t->running);
    json_out_u64(j, "queued", t->queued);
}

static void api_top_sandbox(struct json_out *j, const struct sandbox *sb) {
    static const char *const states[] = {[SANDBOX_OPENING] = "opening",
                                         [SANDBOX_READY] = "ready",
                                         [SANDBOX_PAUSED] = "paused",
                                         [SANDBOX_GONE] = "gone"};
    struct sandbox_sight sight = sandbox_sight(sb);
    uint64_t now = clock_real_ms();
    json_out_open(j, NULL, '{');
    json_out_str(j, "id", sandbox_id(sb));
    json_out_str(j, "user", sandbox_owner(sb));
    json_out_str(j, "state", states[sandbox_state(sb)]);
    json_out_str(j, "policy", sandbox_policy(sb)->name);
    json_out_str(j, "image", sandbox_spec(sb)->image);
    json_out_u64(j, "age_ms", now > sight.created_ms ? now - sight.created_ms : 0);
    json_out_u64(j, "expires_in_ms", sight.expires_ms > now ? sight.expires_ms - now : 0);
    json_out_u64(j, "executions", sight.executions);
    json_out_u64(j, "running", sight.running);
    if (sight.measured) {
        json_out_open(j, "used", '{');
        json_out_u64(j, "mem_peak_bytes", sight.mem_peak_bytes);
        json_out_u64(j, "disk_bytes", sight.disk_bytes);
        json_out_close(j, '}');
    } else {
        json_out_null(j, "used");
    }
    api_top_live(j, sandbox_jail(sb));
    api_top_limits(j, &sandbox_limits(sb)->values);
    json_out_close(j, '}');
}

static void api_top_sandboxes(struct json_out *j, const struct top *t) {
    json_out_open(j, "sandboxes", '[');
    for (size_t i = 0; i < t->sandbox_count; i++)
        api_top_sandbox(j, t->sandboxes[i]);
    json_out_close(j, ']');
    json_out_u64(j, "sandboxes_total", t->sandbox_total);
}

static void api_top_users(struct json_out *j, const struct top *t) {
    json_out_open(j, "users", '[');
    for (size_t i = 0; i < t->user_count; i++) {
        const struct top_user *u = &t->users[i];
        if (u->running + u->queued + u->sandboxes == 0)
            continue;
        json_out_open(j, NULL, '{');
        json_out_str(j, "user", u->name);
        json_out_u64(j, "running", u->running);
        json_out_u64(j, "queued", u->queued);
        json_out_u64(j, "sandboxes", u->sandboxes);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

/* Warm jails by policy and image: of all shards together. */
static void api_top_kinds(struct json_out *j, const struct server *s) {
    struct link_kinds sum = {0};
    for (size_t i = 0; i < s->links.count; i++) {
        const struct link_kinds *kinds = &s->links.items[i]->look.kinds;
        for (size_t k = 0; k < kinds->count; k++) {
            const struct link_kind *one = &kinds->items[k];
            size_t at = 0;
            while (at < sum.count && (strcmp(sum.items[at].policy, one->policy) != 0 ||
                                      strcmp(sum.items[at].image, one->image) != 0))
                at++;
            if (at < sum.count)
                sum.items[at].warm += one->warm;
            else if (at < LINK_KINDS_MAX)
                sum.items[sum.count++] = *one;
        }
    }
    json_out_open(j, "kinds", '[');
    for (size_t i = 0; i < sum.count; i++) {
        json_out_open(j, NULL, '{');
        json_out_str(j, "policy", sum.items[i].policy);
        json_out_str(j, "image", sum.items[i].image);
        json_out_u64(j, "warm", sum.items[i].warm);
        json_out_close(j, '}');
    }
    json_out_close(j, ']');
}

/* How busy the others are is nobody's business: what is in use is for administrators. */
static void api_top_pool(struct json_out *j, const struct server *s, bool all) {
    struct links_totals t;
    links_sum(&s->links, BACKEND_NONE, &t);
    json_out_open(j, "pool", '{');
    json_out_u64(j, "shards", t.ready);
    json_out_u64(j, "slots", t.slots);
    json_out_u64(j, "sandbox_places", t.sandboxes);
    if (all) {
        json_out_u64(j, "slots_in_use", t.in_use);
        json_out_u64(j, "sandboxes_in_use", t.sandboxes_in_use);
        json_out_u64(j, "warm", t.warm);
        api_top_kinds(j, s);
    }
    json_out_close(j, '}');
}

static void api_top_rates(struct json_out *j, const struct metrics *m) {
    uint64_t now = clock_mono_ns();
    json_out_open(j, "per_minute", '{');
    json_out_u64(j, "runs_accepted", metrics_per_minute(&m->rate_accepted, now));
    json_out_u64(j, "runs_ended", metrics_per_minute(&m->rate_ended, now));
    json_out_u64(j, "executions_ended", metrics_per_minute(&m->rate_execs, now));
    json_out_close(j, '}');
}

static void api_top_ready(struct json_out *j, struct server *s) {
    struct ready_reason reasons[READY_MAX];
    size_t n = ready_reasons(s, reasons);
    json_out_bool(j, "ready", n == 0);
    if (n > 0)
        json_out_str(j, "why", reasons[0].message);
    else
        json_out_null(j, "why");
}

static void api_top_answer(struct server *s, struct http_req *req) {
    struct api_error error = {0};
    struct top t;
    struct buf out;
    struct json_out j;
    uint64_t limit = API_TOP_LIMIT, now = clock_real_ms();
    bool all = req->user_admin;
    if (route_query_u64(req, "limit", 1, TOP_ROWS_MAX, &limit, &error) < 0 ||
        (top_gather(s, all ? NULL : req->user_name, (size_t)limit, &t) < 0 &&
         api_error_memory(&error) < 0)) {
        http_reply_error(req, &error);
        return;
    }
    buf_init(&out, API_TOP_BYTES);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "at", now);
    json_out_str(&j, "of", all ? "all" : "own");
    json_out_u64(&j, "up_ms", now > s->metrics.started_ms ? now - s->metrics.started_ms : 0);
    api_top_ready(&j, s);
    api_top_runs(&j, s, &t, req);
    api_top_sandboxes(&j, &t);
    api_top_users(&j, &t);
    api_top_pool(&j, s, all);
    if (all)
        api_top_rates(&j, &s->metrics);
    else
        json_out_null(&j, "per_minute");
    json_out_close(&j, '}');
    top_done(&t);
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

void api_top_get(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    api_look_then(s, req, WIRE_LOOK_ALL, api_top_answer);
}
