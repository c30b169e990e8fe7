#include "bench_results.h"

#include <jansson.h>
#include <sys/utsname.h>

json_t *bench_json_series(struct bench_series *s) {
    if (!s->count)
        return json_null();
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "runs", (json_int_t)s->count, "p1_us",
                     bench_series_us(s, 1), "p50_us", bench_series_us(s, 50), "p99_us",
                     bench_series_us(s, 99), "max_us", bench_series_us(s, 100));
}

static json_t *bench_json_laps(struct bench_results *r) {
    static const char *const keys[BENCH_ROWS] = {"spawn", "floor",        "bubblewrap",    "warm",
                                                 "cold",  "sandbox_exec", "sandbox_create"};
    json_t *all = json_object();
    for (int i = 0; i < BENCH_ROWS; i++) {
        struct bench_times *t = r->laps[i];
        json_t *row = json_pack("{s:o, s:o}", "closed", bench_json_series(&t[BENCH_CLOSED].done),
                                "paced", bench_json_series(&t[BENCH_PACED].done));
        if (i == BENCH_ROW_FLOOR) {
            json_object_set_new(row, "closed_with_removal",
                                bench_json_series(&t[BENCH_CLOSED].removed));
            json_object_set_new(row, "paced_with_removal",
                                bench_json_series(&t[BENCH_PACED].removed));
        }
        json_object_set_new(all, keys[i], row);
    }
    return all;
}

static json_t *bench_json_phases(const struct bench_results *r) {
    json_t *all = json_object();
    for (unsigned i = 0; bench_floor_phase(i); i++)
        json_object_set_new(all, bench_floor_phase(i), json_real(bench_results_phase_us(r, i)));
    return all;
}

static json_t *bench_json_rates(struct bench_results *r) {
    json_t *clients = json_array();
    for (int i = 0; i < BENCH_CROWDS; i++)
        json_array_append_new(clients,
                              json_pack("{s:i, s:f, s:o}", "clients",
                                        (int)bench_results_clients((enum bench_crowd)i), "per_s",
                                        bench_results_load_rate(&r->load[i]), "latency",
                                        bench_json_series(&r->load[i].latency)));
    return json_pack("{s:f, s:f, s:f, s:o}", "spawn_per_s", bench_results_rate(&r->spawn_rate),
                     "floor_per_s", bench_results_rate(&r->floor_rate), "memory_per_s",
                     bench_results_load_rate(&r->memory_load), "http", clients);
}

static json_t *bench_json_flows(const struct bench_results *r) {
    json_t *all = json_array();
    for (int i = 0; i < BENCH_FLOWS; i++) {
        const struct bench_stream_result *f = &r->flow[i];
        json_array_append_new(all, json_pack("{s:s, s:f, s:I, s:I, s:I, s:I}", "what",
                                             bench_results_flow((enum bench_flow)i), "mb_per_s",
                                             bench_results_flow_rate(f), "wire_bytes",
                                             (json_int_t)f->wire_bytes, "rss_before_bytes",
                                             (json_int_t)f->rss_before_bytes, "rss_peak_bytes",
                                             (json_int_t)f->rss_peak_bytes, "rss_after_bytes",
                                             (json_int_t)f->rss_after_bytes));
    }
    return all;
}

static json_t *bench_json_idle(const struct bench_idle *i) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "server_pss_bytes", (json_int_t)i->server_bytes,
                     "runner_pss_bytes", (json_int_t)i->runner_bytes, "runner_processes",
                     (json_int_t)i->runner_processes, "warm_jails", (json_int_t)i->jails,
                     "warm_jails_pss_bytes", (json_int_t)i->jailed_bytes);
}

static json_t *bench_json_memory(const struct bench_results *r) {
    const struct bench_jail_cost *j = &r->jail;
    json_t *jail =
        json_pack("{s:I, s:I, s:I, s:I}", "jails", (json_int_t)j->jails, "available_bytes",
                  (json_int_t)j->available_bytes, "kernel_bytes", (json_int_t)j->kernel_bytes,
                  "process_bytes", (json_int_t)j->process_bytes);
    return json_pack("{s:o, s:o, s:o}", "idle_at_first", bench_json_idle(&r->idle_start),
                     "idle_at_the_end", bench_json_idle(&r->idle_end), "per_warm_jail", jail);
}

static json_t *bench_json_goals(struct bench_results *r) {
    struct bench_goal_list l = {0};
    bench_goals_judge(r, &l);
    const struct bench_goal *goals = l.goal;
    json_t *all = json_array();
    for (size_t i = 0; i < l.count; i++)
        json_array_append_new(all,
                              json_pack("{s:s, s:s, s:f, s:s, s:f, s:b}", "what", goals[i].what,
                                        "unit", goals[i].unit, "measured", goals[i].measured,
                                        "bound", goals[i].at_least ? "at_least" : "at_most",
                                        "target", goals[i].target, "met", (int)goals[i].met));
    return all;
}

int bench_json_write(const char *path, struct bench_results *r, struct err *err) {
    struct utsname host = {0};
    uname(&host);
    json_t *root = json_pack(
        "{s:s, s:i, s:o, s:o, s:o, s:{s:I, s:f, s:f, s:f}, s:o, s:o, s:o}", "kernel", host.release,
        "cores", (int)r->cores, "true", bench_json_laps(r), "floor_phases_p50_us",
        bench_json_phases(r), "throughput", bench_json_rates(r), "burst", "requests",
        (json_int_t)BENCH_BURST_CLIENTS, "first_us", r->burst.first_us, "median_us",
        r->burst.median_us, "last_us", r->burst.last_us, "stdout_100mb", bench_json_flows(r),
        "memory", bench_json_memory(r), "targets", bench_json_goals(r));
    if (!root)
        return err_set(err, ERR_INVALID, 0, "cannot compose the results");
    json_object_set_new(root, "sandboxes", bench_sandboxes_json(r));
    json_object_set_new(root, "workspace", bench_workspace_json(r));
    int rc = json_dump_file(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    return rc < 0 ? err_sys(err, "write %s", path) : 0;
}
