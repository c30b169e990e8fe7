#include "metrics.h"

#include <inttypes.h>

/* Upper bounds in microseconds: fine where a warm jail is, coarse above. */
static const uint64_t metrics_bounds_us[METRICS_BUCKETS] = {
    100,   250,    500,    1000,    2500,     5000,     10000,
    25000, 100000, 500000, 2000000, 10000000, 60000000, 300000000,
};

void metrics_observe(struct metrics_histogram *h, uint64_t ns) {
    size_t i = 0;
    while (i < METRICS_BUCKETS && ns > metrics_bounds_us[i] * 1000)
        i++;
    h->buckets[i]++;
    h->sum_ns += ns;
    h->count++;
}

static int metrics_head(struct buf *out, const char *name, const char *type, const char *help,
                        struct err *err) {
    return buf_printf(out, err, "# HELP pinfold_%s %s\n# TYPE pinfold_%s %s\n", name, help, name,
                      type);
}

static int metrics_one(struct buf *out, const char *name, const char *type, const char *help,
                       uint64_t value, struct err *err) {
    if (metrics_head(out, name, type, help, err) < 0)
        return -1;
    return buf_printf(out, err, "pinfold_%s %" PRIu64 "\n", name, value);
}

/* A duration in seconds, as Prometheus wants it, without floating point. */
static int metrics_seconds(struct buf *out, uint64_t ns, struct err *err) {
    return buf_printf(out, err, "%" PRIu64 ".%09" PRIu64, ns / 1000000000u, ns % 1000000000u);
}

static int metrics_histogram_write(struct buf *out, const char *name, const char *help,
                                   const struct metrics_histogram *h, struct err *err) {
    uint64_t sum = 0;
    if (metrics_head(out, name, "histogram", help, err) < 0)
        return -1;
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        sum += h->buckets[i];
        if (buf_printf(out, err, "pinfold_%s_bucket{le=\"", name) < 0 ||
            metrics_seconds(out, metrics_bounds_us[i] * 1000, err) < 0 ||
            buf_printf(out, err, "\"} %" PRIu64 "\n", sum) < 0)
            return -1;
    }
    if (buf_printf(out, err, "pinfold_%s_bucket{le=\"+Inf\"} %" PRIu64 "\npinfold_%s_sum ", name,
                   h->count, name) < 0 ||
        metrics_seconds(out, h->sum_ns, err) < 0)
        return -1;
    return buf_printf(out, err, "\npinfold_%s_count %" PRIu64 "\n", name, h->count);
}

static int metrics_labelled(const struct metrics *m, struct buf *out, struct err *err) {
    if (metrics_head(out, "step_ends_total", "counter", "Steps that ended, by cause.", err) < 0)
        return -1;
    for (uint32_t i = CAUSE_NONE + 1; i < CAUSE_COUNT; i++)
        if (buf_printf(out, err, "pinfold_step_ends_total{cause=\"%s\"} %" PRIu64 "\n",
                       cause_name(i), m->ends[i]) < 0)
            return -1;
    if (metrics_head(out, "http_responses_total", "counter", "Answers, by class of status.", err) <
        0)
        return -1;
    for (unsigned i = 1; i < METRICS_STATUS_MAX / 100; i++)
        if (buf_printf(out, err, "pinfold_http_responses_total{status=\"%uxx\"} %" PRIu64 "\n", i,
                       m->responses[i]) < 0)
            return -1;
    return 0;
}

static int metrics_sandboxes(const struct metrics_gauges *g, struct buf *out, struct err *err) {
    static const char *const states[] = {"opening", "ready", "paused", "gone"};
    if (metrics_head(out, "sandboxes", "gauge", "Sandboxes, by state.", err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (buf_printf(out, err, "pinfold_sandboxes{state=\"%s\"} %" PRIu64 "\n", states[i],
                       g->sandboxes[i]) < 0)
            return -1;
    return 0;
}

static int metrics_gauges_write(const struct metrics_gauges *g, struct buf *out, struct err *err) {
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
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
        {"draining", "gauge", "1 while the server takes no new work.", g->draining},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (metrics_one(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value, err) < 0)
            return -1;
    return 0;
}

int metrics_write(const struct metrics *m, const struct metrics_gauges *g, struct buf *out,
                  struct err *err) {
    if (metrics_one(out, "start_time_seconds", "gauge", "When the server started.",
                    m->started_ms / 1000, err) < 0 ||
        metrics_one(out, "runs_accepted_total", "counter", "Runs accepted.", m->runs_accepted,
                    err) < 0 ||
        metrics_one(out, "runs_refused_total", "counter",
                    "Runs refused: queue full, draining or no runner.", m->runs_refused, err) < 0 ||
        metrics_one(out, "sandboxes_created_total", "counter", "Sandboxes that became ready.",
                    m->sandboxes_created, err) < 0 ||
        metrics_labelled(m, out, err) < 0 || metrics_sandboxes(g, out, err) < 0 ||
        metrics_gauges_write(g, out, err) < 0)
        return -1;
    if (metrics_histogram_write(out, "queue_wait_seconds", "Time from acceptance to a jail.",
                                &m->queue_wait, err) < 0 ||
        metrics_histogram_write(out, "setup_seconds", "Time from the jail to exec of the command.",
                                &m->setup, err) < 0)
        return -1;
    return metrics_histogram_write(out, "step_wall_seconds", "Wall-clock time of steps.",
                                   &m->step_wall, err);
}
