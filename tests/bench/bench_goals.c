#include "bench_results.h"

#include <stdarg.h>

#define BENCH_GOAL_WARM 1.3         /* times the paced bare spawn, p50 against p50 */
#define BENCH_GOAL_WARM_P99 4.0     /* times it: p99 against its p50, and against its p99 */
#define BENCH_GOAL_COLD 1.3         /* times the floor … */
#define BENCH_GOAL_COLD_PLUS_US 500 /* … plus this */
#define BENCH_GOAL_RATE 0.7         /* of the floor loop on all cores, with 8 clients */
#define BENCH_GOAL_GROWTH 0.15      /* times the spawn: what results on disk add to p50 */
#define BENCH_GOAL_DURABLE 0.85     /* of the throughput with results in memory */
#define BENCH_GOAL_FLOW_MB 200      /* per second */
#define BENCH_GOAL_FLAT_MB 16 /* that the server may grow by: the capped answer, not the stream */
#define BENCH_GOAL_IDLE_MB 30 /* server and runner together */
#define BENCH_GOAL_VERDICTS 100000 /* per second */
#define BENCH_GOAL_FAIR 1.2
/* One start, and one that is on its way. */
#define BENCH_GOAL_AHEAD 2
#define BENCH_GOAL_HEALTHZ_MS 20
#define BENCH_MB 1e6

struct bench_goal bench_goals_at_most(double measured, double target, const char *unit) {
    struct bench_goal goal = {.measured = measured, .target = target};
    snprintf(goal.unit, sizeof(goal.unit), "%s", unit);
    return goal;
}

struct bench_goal bench_goals_at_least(double measured, double target, const char *unit) {
    struct bench_goal goal = bench_goals_at_most(measured, target, unit);
    goal.at_least = true;
    return goal;
}

void bench_goals_add(struct bench_goal_list *l, struct bench_goal goal, const char *what, ...) {
    if (l->count == BENCH_GOALS_MAX)
        return;
    va_list ap;
    va_start(ap, what);
    vsnprintf(goal.what, sizeof(goal.what), what, ap);
    va_end(ap);
    goal.met = goal.at_least ? goal.measured >= goal.target : goal.measured <= goal.target;
    l->goal[l->count++] = goal;
}

static double bench_ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static void bench_goals_latency(struct bench_goal_list *l, struct bench_results *r) {
    double spawn = bench_results_us(r, BENCH_ROW_SPAWN, BENCH_PACED, 50);
    double p50 = bench_results_us(r, BENCH_ROW_WARM, BENCH_PACED, 50);
    double p99 = bench_results_us(r, BENCH_ROW_WARM, BENCH_PACED, 99);
    bench_goals_add(l, bench_goals_at_most(bench_ratio(p50, spawn), BENCH_GOAL_WARM, "x"),
                    "warm run, paced, p50, against the paced bare spawn's p50");
    bench_goals_add(l, bench_goals_at_most(bench_ratio(p99, spawn), BENCH_GOAL_WARM_P99, "x"),
                    "warm run, paced, p99, against the paced bare spawn's p50");
    double spawn_p99 = bench_results_us(r, BENCH_ROW_SPAWN, BENCH_PACED, 99);
    bench_goals_add(l, bench_goals_at_most(bench_ratio(p99, spawn_p99), BENCH_GOAL_WARM_P99, "x"),
                    "warm run, paced, p99, against the paced bare spawn's p99");
    double memory = bench_results_us(r, BENCH_ROW_MEMORY, BENCH_PACED, 50);
    bench_goals_add(l,
                    bench_goals_at_most(bench_ratio(p50 - memory, spawn), BENCH_GOAL_GROWTH, "x"),
                    "what durable results add to its p50, against the bare spawn's");
    for (int pace = BENCH_PACES - 1; pace >= 0; pace--) {
        double cold = bench_results_us(r, BENCH_ROW_COLD, (enum bench_pace)pace, 50);
        double floor = bench_results_us(r, BENCH_ROW_FLOOR, (enum bench_pace)pace, 50);
        bench_goals_add(
            l, bench_goals_at_most(cold, BENCH_GOAL_COLD * floor + BENCH_GOAL_COLD_PLUS_US, "us"),
            "cold run, %s, p50, against 1.3 times the floor plus 0.5 ms",
            pace == BENCH_PACED ? "paced" : "closed loop");
    }
}

static void bench_goals_flow(struct bench_goal_list *l, const struct bench_results *r) {
    double grown = 0;
    for (int i = 0; i < BENCH_FLOWS; i++) {
        const struct bench_stream_result *f = &r->flow[i];
        double mb = ((double)f->rss_peak_bytes - (double)f->rss_before_bytes) / BENCH_MB;
        grown = mb > grown ? mb : grown;
        bench_goals_add(
            l, bench_goals_at_least(bench_results_flow_rate(f), BENCH_GOAL_FLOW_MB, "MB/s"),
            "100 MB of stdout (%s)", bench_results_flow((enum bench_flow)i));
    }
    bench_goals_add(l, bench_goals_at_most(grown, BENCH_GOAL_FLAT_MB, "MB"),
                    "growth of the server's memory meanwhile, at its peak");
}

static void bench_goals_fair(struct bench_results *r, struct bench_goal_list *l) {
    bench_goals_add(
        l, bench_goals_at_most(bench_ratio(r->fair.most, r->fair.fewest), BENCH_GOAL_FAIR, "x"),
        "%u users with %u waiting runs each: most against fewest at half time", BENCH_FAIR_USERS,
        BENCH_FAIR_EACH);
    bench_goals_add(l, bench_goals_at_most(r->fair.ahead, BENCH_GOAL_AHEAD, "runs"),
                    "meanwhile, how far one was ahead of another at worst");
    bench_goals_add(l,
                    bench_goals_at_most(bench_series_us(&r->fair.healthz, 99) / 1000,
                                        BENCH_GOAL_HEALTHZ_MS, "ms"),
                    "/healthz meanwhile, p99 of %zu", r->fair.healthz.count);
}

void bench_goals_judge(struct bench_results *r, struct bench_goal_list *l) {
    bench_goals_latency(l, r);
    double floor = bench_results_rate(&r->floor_rate);
    double rate = bench_results_load_rate(&r->load[BENCH_CROWD_8]);
    bench_goals_add(l, bench_goals_at_least(bench_ratio(rate, floor), BENCH_GOAL_RATE, "x"),
                    "runs per second at 8 clients, against the floor loop on all cores");
    double memory = bench_results_load_rate(&r->memory_load);
    bench_goals_add(l, bench_goals_at_least(bench_ratio(rate, memory), BENCH_GOAL_DURABLE, "x"),
                    "the same, against results in memory only");
    bench_goals_flow(l, r);
    double start = (double)(r->idle_start.server_bytes + r->idle_start.runner_bytes);
    double end = (double)(r->idle_end.server_bytes + r->idle_end.runner_bytes);
    bench_goals_add(
        l, bench_goals_at_most((start > end ? start : end) / BENCH_MB, BENCH_GOAL_IDLE_MB, "MB"),
        "idle memory of server and runner (Pss), before or after the load");
    bench_sandboxes_judge(r, l);
    bench_goals_fair(r, l);
    bench_workspace_judge(r, l);
    bench_goals_add(l, bench_goals_at_least(r->verdicts_per_s, BENCH_GOAL_VERDICTS, "/s"),
                    "verdicts of the permission engine on one processor");
}
