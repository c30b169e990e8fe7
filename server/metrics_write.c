#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "metrics.h"

/* Writes of one text: the first error sticks. */
struct metrics_write {
    struct buf *out;
    struct err *err;
    int rc;
};

#define METRICS_PUT(w, ...)                                                                        \
    do {                                                                                           \
        if ((w)->rc == 0)                                                                          \
            (w)->rc = buf_printf((w)->out, (w)->err, __VA_ARGS__);                                 \
    } while (0)

static void metrics_write_head(struct metrics_write *w, const char *name, const char *type,
                               const char *help) {
    METRICS_PUT(w, "# HELP pinfold_%s %s\n# TYPE pinfold_%s %s\n", name, help, name, type);
}

static void metrics_write_one(struct metrics_write *w, const char *name, const char *type,
                              const char *help, uint64_t value) {
    metrics_write_head(w, name, type, help);
    METRICS_PUT(w, "pinfold_%s %" PRIu64 "\n", name, value);
}

/* A duration in seconds, as Prometheus wants it, without floating point and without zeros behind
 * it: a bound must read the same everywhere. */
static void metrics_write_seconds(struct metrics_write *w, uint64_t ns) {
    uint64_t rest = ns % CLOCK_NS_PER_S;
    int digits = 9;
    while (digits > 1 && rest % 10 == 0) {
        rest /= 10;
        digits--;
    }
    METRICS_PUT(w, "%" PRIu64 ".%0*" PRIu64, (uint64_t)(ns / CLOCK_NS_PER_S), digits, rest);
}

/* `label` is "" or 'route="runs"'. */
static void metrics_write_buckets(struct metrics_write *w, const char *name, const char *label,
                                  const struct metrics_histogram *h) {
    const char *comma = label[0] != '\0' ? "," : "";
    const char *open = label[0] != '\0' ? "{" : "", *close = label[0] != '\0' ? "}" : "";
    uint64_t sum = 0;
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        sum += h->buckets[i];
        METRICS_PUT(w, "pinfold_%s_bucket{%s%sle=\"", name, label, comma);
        metrics_write_seconds(w, metrics_bound_ns(i));
        METRICS_PUT(w, "\"} %" PRIu64 "\n", sum);
    }
    METRICS_PUT(w, "pinfold_%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\npinfold_%s_sum%s%s%s ", name,
                label, comma, h->count, name, open, label, close);
    metrics_write_seconds(w, h->sum_ns);
    METRICS_PUT(w, "\npinfold_%s_count%s%s%s %" PRIu64 "\n", name, open, label, close, h->count);
}

static void metrics_write_histogram(struct metrics_write *w, const char *name, const char *help,
                                    const struct metrics_histogram *h) {
    metrics_write_head(w, name, "histogram", help);
    metrics_write_buckets(w, name, "", h);
}

static void metrics_write_causes(struct metrics_write *w, const char *name, const char *help,
                                 const uint64_t ends[CAUSE_COUNT]) {
    metrics_write_head(w, name, "counter", help);
    for (uint32_t i = CAUSE_NONE + 1; i < CAUSE_COUNT; i++)
        METRICS_PUT(w, "pinfold_%s{cause=\"%s\"} %" PRIu64 "\n", name, cause_name(i), ends[i]);
}

static void metrics_write_labelled(struct metrics_write *w, const struct metrics *m) {
    metrics_write_causes(w, "step_ends_total", "Steps that ended, by cause.", m->ends);
    metrics_write_causes(w, "execution_ends_total", "Executions in sandboxes that ended, by cause.",
                         m->exec_ends);
    metrics_write_head(w, "runs_ended_total", "counter", "Runs that are over, by how they ended.");
    METRICS_PUT(w,
                "pinfold_runs_ended_total{ok=\"true\"} %" PRIu64
                "\npinfold_runs_ended_total{ok=\"false\"} %" PRIu64 "\n",
                m->runs_ok, m->runs_failed);
    metrics_write_head(w, "http_responses_total", "counter", "Answers, by class of status.");
    for (unsigned i = 1; i < METRICS_STATUS_MAX / 100; i++)
        METRICS_PUT(w, "pinfold_http_responses_total{status=\"%uxx\"} %" PRIu64 "\n", i,
                    m->responses[i]);
    metrics_write_head(w, "refusals_total", "counter", "Answers that were errors, by their code.");
    for (size_t i = 0; i < METRICS_REASONS; i++)
        if (metrics_reason(i) != NULL)
            METRICS_PUT(w, "pinfold_refusals_total{reason=\"%s\"} %" PRIu64 "\n", metrics_reason(i),
                        m->refusals[i]);
}

static void metrics_write_sandboxes(struct metrics_write *w, const struct metrics_gauges *g) {
    static const char *const states[] = {"opening", "ready", "paused", "gone"};
    metrics_write_head(w, "sandboxes", "gauge", "Sandboxes, by state.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        METRICS_PUT(w, "pinfold_sandboxes{state=\"%s\"} %" PRIu64 "\n", states[i], g->sandboxes[i]);
}

/* One row of struct metrics_gauges, or of struct metrics_shard. */
struct metrics_write_row {
    const char *name, *type, *help;
    uint64_t value;
};

static void metrics_write_gauges(struct metrics_write *w, const struct metrics_gauges *g) {
    const struct metrics_write_row rows[] = {
        {"ready", "gauge", "1 while a run would be accepted.", g->ready},
        {"queue_runs", "gauge", "Runs that wait for a jail.", g->queued},
        {"queue_bytes", "gauge", "Bytes of their requests.", g->queued_bytes},
        {"runs_active", "gauge", "Runs in a jail.", g->active},
        {"runs_kept", "gauge", "Finished runs in memory.", g->kept},
        {"runs_kept_bytes", "gauge", "Bytes of their results.", g->kept_bytes},
        {"http_connections", "gauge", "Open connections.", g->connections},
        {"http_requests_in_flight", "gauge", "Requests without a whole answer.", g->requests},
        {"shards", "gauge", "Runner shards known.", g->shards},
        {"shards_ready", "gauge", "Runner shards connected and ready.", g->shards_ready},
        {"shards_healthy", "gauge", "Runner shards that can make jails.", g->shards_healthy},
        {"shards_lost_total", "counter", "Connections to shards that ended.", g->shards_lost},
        {"slots", "gauge", "Jails that all shards can have at once.", g->slots},
        {"slots_in_use", "gauge", "Jails that exist for this server.", g->slots_in_use},
        {"warm_jails", "gauge", "Jails that are ready for use.", g->warm},
        {"jails_made_total", "counter", "Jails made by the shards.", g->jails_made},
        {"jails_taken_warm_total", "counter", "Jails that were ready when asked for.",
         g->jails_taken_warm},
        {"sandboxes_waiting", "gauge", "Sandboxes that wait for a place.", g->sandboxes_waiting},
        {"sandbox_places", "gauge", "Sandboxes that all shards take at once.", g->sandbox_places},
        {"snapshots", "gauge", "Snapshots kept, those of steps included.", g->snapshots},
        {"snapshot_bytes", "gauge", "What they hold that no earlier one does.", g->snapshot_bytes},
        {"users", "gauge", "Users, those that are disabled included.", g->users},
        {"users_active", "gauge", "Users with a run or a sandbox now.", g->users_active},
        {"tokens", "gauge", "Tokens that are valid.", g->tokens},
        {"state_free_bytes", "gauge", "Free space where the state directory is.",
         g->disk_free_bytes},
        {"state_free_inodes", "gauge", "Files that can be made there.", g->disk_free_inodes},
        {"log_lines_lost_total", "counter", "Lines of the log that could not be written.",
         g->log_lost},
        {"draining", "gauge", "1 while the server takes no new work.", g->draining},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        metrics_write_one(w, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
}

static uint64_t metrics_write_shard_value(const struct metrics_shard *s, int which) {
    const uint64_t values[] = {s->ready, s->ready && s->healthy, s->slots,           s->in_use,
                               s->warm,  s->sandboxes,           s->sandboxes_in_use};
    return values[which];
}

static void metrics_write_shards(struct metrics_write *w, const struct metrics_gauges *g) {
    static const struct metrics_write_row rows[] = {
        {"shard_ready", "gauge", "1 while the shard is connected.", 0},
        {"shard_healthy", "gauge", "1 while it can make jails.", 0},
        {"shard_slots", "gauge", "Jails for runs that it can have at once.", 0},
        {"shard_slots_in_use", "gauge", "Jails of runs that it has for this server.", 0},
        {"shard_warm_jails", "gauge", "Jails that it has ready for use.", 0},
        {"shard_sandbox_places", "gauge", "Sandboxes that it takes at once.", 0},
        {"shard_sandboxes", "gauge", "Sandboxes that it has.", 0},
    };
    for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])) && g->shard_count > 0; i++) {
        metrics_write_head(w, rows[i].name, rows[i].type, rows[i].help);
        for (size_t k = 0; k < g->shard_count; k++)
            METRICS_PUT(w, "pinfold_%s{shard=\"%u\"} %" PRIu64 "\n", rows[i].name,
                        g->shard[k].number, metrics_write_shard_value(&g->shard[k], i));
    }
}

static void metrics_write_layers(struct metrics_write *w, const struct metrics_gauges *g) {
    metrics_write_head(w, "layer_healthy", "gauge", "1 while the layer works; see /readyz.");
    for (size_t i = 0; i < g->layer_count; i++)
        METRICS_PUT(w, "pinfold_layer_healthy{layer=\"%s\"} %d\n", g->layer[i].name,
                    g->layer[i].healthy ? 1 : 0);
}

static void metrics_write_http(struct metrics_write *w, const struct metrics *m) {
    static const char *const labels[METRICS_FAMILIES] = {
        [METRICS_RUNS] = "route=\"runs\"",     [METRICS_SANDBOXES] = "route=\"sandboxes\"",
        [METRICS_EXEC] = "route=\"exec\"",     [METRICS_FILES] = "route=\"files\"",
        [METRICS_SYNC] = "route=\"sync\"",     [METRICS_SNAPSHOTS] = "route=\"snapshots\"",
        [METRICS_EVENTS] = "route=\"events\"", [METRICS_TOKENS] = "route=\"tokens\"",
        [METRICS_INFO] = "route=\"info\"",
    };
    metrics_write_head(w, "http_request_duration_seconds", "histogram",
                       "From a request's first byte to its whole answer, by kind of route.");
    for (int i = 0; i < METRICS_FAMILIES; i++)
        metrics_write_buckets(w, "http_request_duration_seconds", labels[i], &m->http[i]);
}

int metrics_write(const struct metrics *m, const struct metrics_gauges *g, struct buf *out,
                  struct err *err) {
    struct metrics_write w = {.out = out, .err = err};
    metrics_write_one(&w, "start_time_seconds", "gauge", "When the server started.",
                      m->started_ms / 1000);
    metrics_write_one(&w, "runs_accepted_total", "counter", "Runs accepted.", m->runs_accepted);
    metrics_write_one(&w, "runs_refused_total", "counter",
                      "Runs refused: queue full, draining or no runner.", m->runs_refused);
    metrics_write_one(&w, "sandboxes_created_total", "counter", "Sandboxes that became ready.",
                      m->sandboxes_created);
    metrics_write_one(&w, "jails_failed_total", "counter", "Jails that broke.", m->jails_failed);
    metrics_write_labelled(&w, m);
    metrics_write_sandboxes(&w, g);
    metrics_write_gauges(&w, g);
    metrics_write_shards(&w, g);
    metrics_write_layers(&w, g);
    metrics_write_histogram(&w, "queue_wait_seconds", "Time from acceptance to a jail.",
                            &m->queue_wait);
    metrics_write_histogram(&w, "setup_seconds", "Time from the jail to exec of the command.",
                            &m->setup);
    metrics_write_histogram(&w, "start_latency_seconds",
                            "Time from acceptance of a run to exec of its first command.",
                            &m->start);
    metrics_write_histogram(&w, "run_duration_seconds",
                            "Time from that exec to the end of the run's last step.", &m->run);
    metrics_write_histogram(&w, "step_wall_seconds", "Wall-clock time of steps.", &m->step_wall);
    metrics_write_histogram(&w, "execution_wall_seconds",
                            "Wall-clock time of executions in sandboxes.", &m->exec);
    metrics_write_histogram(&w, "loop_round_seconds",
                            "How long a round of the server's loop kept all others waiting; "
                            "more than some milliseconds are a fault, or a busy processor.",
                            &m->loop);
    metrics_write_http(&w, m);
    return w.rc;
}

/* A label's value: a backslash, a quote and a line feed must be escaped. Names of users have none
 * of them, but this is not the place that knows. */
static void metrics_write_escaped(struct metrics_write *w, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            METRICS_PUT(w, "\\n");
        else if (*text == '\\' || *text == '"')
            METRICS_PUT(w, "\\%c", *text);
        else
            METRICS_PUT(w, "%c", *text);
    }
}

int metrics_write_users(const struct metrics_user *users, size_t count, struct buf *out,
                        struct err *err) {
    struct metrics_write w = {.out = out, .err = err};
    metrics_write_head(&w, "user_used", "gauge", "What a user uses of what has a quota.");
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < QUOTA_COUNT; k++) {
            METRICS_PUT(&w, "pinfold_user_used{user=\"");
            metrics_write_escaped(&w, users[i].name);
            METRICS_PUT(&w, "\",quota=\"%s\"} %" PRIu64 "\n", quota_name((enum quota_kind)k),
                        users[i].use->v[k]);
        }
    return w.rc;
}

int metrics_write_kinds(const struct metrics_kind *kinds, size_t count, struct buf *out,
                        struct err *err) {
    struct metrics_write w = {.out = out, .err = err};
    if (count == 0)
        return 0;
    metrics_write_head(&w, "pool_warm_jails", "gauge",
                       "Jails that are ready for use, by policy and image.");
    for (size_t i = 0; i < count; i++) {
        METRICS_PUT(&w, "pinfold_pool_warm_jails{shard=\"%u\",policy=\"", kinds[i].shard);
        metrics_write_escaped(&w, kinds[i].policy);
        METRICS_PUT(&w, "\",image=\"");
        metrics_write_escaped(&w, kinds[i].image);
        METRICS_PUT(&w, "\"} %" PRIu64 "\n", kinds[i].warm);
    }
    return w.rc;
}
