/* What is said about work in a directory: table, JSON, targets. */
#include "bench_results.h"

#include <jansson.h>

#define BENCH_GOAL_CLIENT 3.0  /* times git status */
#define BENCH_GOAL_JOURNAL 2.0 /* times cp -a and fsync */

static double bench_workspace_ratio(struct bench_series *a, struct bench_series *b) {
    double us = bench_series_us(b, 50);
    return us > 0 ? bench_series_us(a, 50) / us : 0;
}

static void bench_workspace_line(FILE *out, const char *what, struct bench_series *s) {
    if (s->count == 0)
        fprintf(out, "  %-54s (not installed)\n", what);
    else
        fprintf(out, "  %-54s %9.2f %9.2f\n", what, bench_series_us(s, 50) / 1e3,
                bench_series_us(s, 99) / 1e3);
}

void bench_workspace_print(FILE *out, struct bench_results *r) {
    fprintf(out, "\nWork in a directory, ms %32s %9s %9s\n", "", "p50", "p99");
    bench_workspace_line(out, "pinfold exec -- true, 10,000 files, none changed", &r->client.exec);
    bench_workspace_line(out, "git status there", &r->client.git);
    bench_workspace_line(out, "100 files changed through the journal", &r->journal.change);
    bench_workspace_line(out, "cp -a of them, and fsync of each", &r->journal.copy);
}

json_t *bench_workspace_json(struct bench_results *r) {
    return json_pack(
        "{s:o, s:o, s:o, s:o}", "exec_unchanged_10000", bench_json_series(&r->client.exec),
        "git_status_10000", bench_json_series(&r->client.git), "journal_100",
        bench_json_series(&r->journal.change), "cp_fsync_100", bench_json_series(&r->journal.copy));
}

void bench_workspace_judge(struct bench_results *r, struct bench_goal_list *l) {
    if (r->client.git.count > 0)
        bench_goals_add(l,
                        bench_goals_at_most(bench_workspace_ratio(&r->client.exec, &r->client.git),
                                            BENCH_GOAL_CLIENT, "x"),
                        "pinfold exec in an unchanged tree of %u files, against git status",
                        BENCH_CLIENT_FILES);
    bench_goals_add(l,
                    bench_goals_at_most(bench_workspace_ratio(&r->journal.change, &r->journal.copy),
                                        BENCH_GOAL_JOURNAL, "x"),
                    "journalling a change of %u files, against cp -a and fsync",
                    BENCH_JOURNAL_FILES);
}
