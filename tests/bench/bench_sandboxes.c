/* What is said about sandboxes: table, JSON, targets. */
#include "bench_results.h"

#include <jansson.h>

#define BENCH_GOAL_EXEC 1.3       /* times the paced bare spawn, p50 against p50 */
#define BENCH_GOAL_CREATE 2.5     /* likewise */
#define BENCH_GOAL_BURST_MS 250.0 /* until all have answered */
#define BENCH_GOAL_IDLE_MIB 2.0   /* per sandbox */
#define BENCH_GOAL_CROWDED 1.2    /* times an execution when the sandbox was alone */
#define BENCH_GOAL_SNAPSHOT_MS 10.0
#define BENCH_GOAL_SYNC_MS 60.0
#define BENCH_GOAL_FILE 0.5 /* of the static server's rate */
#define BENCH_MIB 1048576.0

static double bench_sandboxes_ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double bench_sandboxes_rate(uint64_t ns) {
    return ns ? (double)BENCH_FILE_BYTES * 1e3 / (double)ns : 0; /* MB/s */
}

static void bench_sandboxes_line(FILE *out, unsigned mib, const char *what,
                                 struct bench_series *s) {
    fprintf(out, "  %-9s %5u MiB %25.2f %9.2f\n", what, mib, bench_series_us(s, 50) / 1e3,
            bench_series_us(s, 99) / 1e3);
}

void bench_sandboxes_print(FILE *out, struct bench_results *r) {
    struct bench_sandboxes *b = &r->sandboxes;
    fprintf(
        out,
        "\nSandboxes\n  %u made at once, to the answer of a first command: first %.1f ms, median "
        "%.1f ms, last %.1f ms\n",
        BENCH_BURST_CLIENTS, b->burst.first_us / 1e3, b->burst.median_us / 1e3,
        b->burst.last_us / 1e3);
    fprintf(out,
            "  %zu idle ones: %.2f MiB each by MemAvailable (kernel: %.2f), made in %.1f s; `true` "
            "in one, paced: p50 %.0f us, alone %.0f us\n",
            b->many.boxes, (double)b->many.available_bytes / BENCH_MIB,
            (double)b->many.kernel_bytes / BENCH_MIB, b->many.make_s,
            bench_series_us(&b->many.all.done, 50), bench_series_us(&b->many.one.done, 50));
    fprintf(out, "\n  ms, of which 1 MiB changed %24s %9s\n", "p50", "p99");
    for (int i = 0; i < BENCH_WORKSPACES; i++) {
        unsigned mib = bench_results_workspace_mib((enum bench_workspace)i);
        bench_sandboxes_line(out, mib, "snapshot", &b->snapshot[i].snapshot);
        bench_sandboxes_line(out, mib, "fork", &b->snapshot[i].fork);
        bench_sandboxes_line(out, mib, "restore", &b->snapshot[i].restore);
    }
    fprintf(out, "  sync of an unchanged tree of 10,000 files %9.2f %9.2f\n",
            bench_series_us(&b->sync, 50) / 1e3, bench_series_us(&b->sync, 99) / 1e3);
    const struct bench_file_result *f = &b->file;
    fprintf(out, "\n  1 GB, MB/s: up %.0f (static server %.0f), down %.0f (static server %.0f)\n",
            bench_sandboxes_rate(f->up_ns), bench_sandboxes_rate(f->static_up_ns),
            bench_sandboxes_rate(f->down_ns), bench_sandboxes_rate(f->static_down_ns));
}

json_t *bench_sandboxes_json(struct bench_results *r) {
    struct bench_sandboxes *b = &r->sandboxes;
    json_t *snapshots = json_array();
    for (int i = 0; i < BENCH_WORKSPACES; i++)
        json_array_append_new(snapshots,
                              json_pack("{s:i, s:o, s:o, s:o}", "workspace_mib",
                                        (int)bench_results_workspace_mib((enum bench_workspace)i),
                                        "snapshot", bench_json_series(&b->snapshot[i].snapshot),
                                        "fork", bench_json_series(&b->snapshot[i].fork), "restore",
                                        bench_json_series(&b->snapshot[i].restore)));
    json_t *many =
        json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "sandboxes", (json_int_t)b->many.boxes,
                  "available_bytes_each", (json_int_t)b->many.available_bytes, "kernel_bytes_each",
                  (json_int_t)b->many.kernel_bytes, "made_in_s", b->many.make_s, "exec_alone",
                  bench_json_series(&b->many.one.done), "exec_among_all",
                  bench_json_series(&b->many.all.done));
    json_t *file =
        json_pack("{s:f, s:f, s:f, s:f}", "up_mb_per_s", bench_sandboxes_rate(b->file.up_ns),
                  "static_up_mb_per_s", bench_sandboxes_rate(b->file.static_up_ns), "down_mb_per_s",
                  bench_sandboxes_rate(b->file.down_ns), "static_down_mb_per_s",
                  bench_sandboxes_rate(b->file.static_down_ns));
    return json_pack("{s:{s:I, s:f, s:f, s:f}, s:o, s:o, s:o, s:o}", "burst", "sandboxes",
                     (json_int_t)BENCH_BURST_CLIENTS, "first_us", b->burst.first_us, "median_us",
                     b->burst.median_us, "last_us", b->burst.last_us, "idle", many, "snapshots",
                     snapshots, "sync_10000_files", bench_json_series(&b->sync), "file_1gb", file);
}

static void bench_sandboxes_judge_file(struct bench_goal_list *l, const char *way, uint64_t ns,
                                       uint64_t plain_ns) {
    double ratio = bench_sandboxes_ratio((double)plain_ns, (double)ns);
    bench_goals_add(l, bench_goals_at_least(ratio, BENCH_GOAL_FILE, "x"),
                    "1 GB %s, against a static file server's rate", way);
}

void bench_sandboxes_judge(struct bench_results *r, struct bench_goal_list *l) {
    struct bench_sandboxes *b = &r->sandboxes;
    double spawn = bench_results_us(r, BENCH_ROW_SPAWN, BENCH_PACED, 50);
    double exec = bench_results_us(r, BENCH_ROW_EXEC, BENCH_PACED, 50);
    double create = bench_results_us(r, BENCH_ROW_CREATE, BENCH_PACED, 50);
    bench_goals_add(l,
                    bench_goals_at_most(bench_sandboxes_ratio(exec, spawn), BENCH_GOAL_EXEC, "x"),
                    "execution in a sandbox, paced, p50, against the bare spawn");
    bench_goals_add(
        l, bench_goals_at_most(bench_sandboxes_ratio(create, spawn), BENCH_GOAL_CREATE, "x"),
        "new sandbox to first command, paced, p50, against the spawn");
    bench_goals_add(l, bench_goals_at_most(b->burst.last_us / 1e3, BENCH_GOAL_BURST_MS, "ms"),
                    "%u sandboxes at once: all have answered", BENCH_BURST_CLIENTS);
    bench_goals_add(l,
                    bench_goals_at_most((double)b->many.available_bytes / BENCH_MIB,
                                        BENCH_GOAL_IDLE_MIB, "MiB"),
                    "memory of each of %zu idle sandboxes", b->many.boxes);
    bench_goals_add(
        l,
        bench_goals_at_most(bench_sandboxes_ratio(bench_series_us(&b->many.all.done, 50),
                                                  bench_series_us(&b->many.one.done, 50)),
                            BENCH_GOAL_CROWDED, "x"),
        "execution among them, against alone, p50");
    for (int i = 0; i < BENCH_WORKSPACES; i++) {
        struct bench_snapshot_result *s = &b->snapshot[i];
        unsigned mib = bench_results_workspace_mib((enum bench_workspace)i);
        struct bench_series *series[] = {&s->snapshot, &s->fork, &s->restore};
        static const char *const names[] = {"snapshot", "fork", "restore"};
        for (size_t k = 0; k < 3; k++)
            bench_goals_add(l,
                            bench_goals_at_most(bench_series_us(series[k], 50) / 1e3,
                                                BENCH_GOAL_SNAPSHOT_MS, "ms"),
                            "%s of %u MiB, of which 1 MiB changed, p50", names[k], mib);
    }
    bench_goals_add(
        l, bench_goals_at_most(bench_series_us(&b->sync, 50) / 1e3, BENCH_GOAL_SYNC_MS, "ms"),
        "sync of an unchanged tree of 10,000 files, p50");
    bench_sandboxes_judge_file(l, "up", b->file.up_ns, b->file.static_up_ns);
    bench_sandboxes_judge_file(l, "down", b->file.down_ns, b->file.static_down_ns);
}
