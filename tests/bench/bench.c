/* The benchmark: a table on stdout, all numbers in a JSON file. See tests/bench/run. */
#include "bench_guard.h"
#include "bench_plan.h"
#include "bench_results.h"
#include "bench_service.h"
#include "opt.h"

#include <stdio.h>
#include <unistd.h>

struct bench_options {
    struct bench_paths paths;
    const char *json;
    uint64_t rounds, block, span_ms, jails, sandboxes, laps;
};

static int bench_main(const struct bench_options *o, struct err *err) {
    if (geteuid() != 0)
        return err_set(err, ERR_STATE, 0, "only root can make jails");
    if (!o->paths.scratch)
        return err_set(err, ERR_INVALID, 0, "--scratch DIR is needed");
    if (bench_guard_split(err) < 0)
        return -1;
    const struct bench_effort effort = {
        .rounds = (unsigned)o->rounds,
        .block = (unsigned)o->block,
        .span_ms = (unsigned)o->span_ms,
        .jails = (unsigned)o->jails,
        .sandboxes = (unsigned)o->sandboxes,
        .laps = (unsigned)o->laps,
    };
    struct bench_results r = {0};
    int rc = bench_plan_run(&o->paths, &effort, &r, err);
    if (rc == 0)
        bench_table_print(stdout, &r);
    if (rc == 0 && o->json)
        rc = bench_json_write(o->json, &r, err);
    bench_results_done(&r);
    return rc;
}

int main(int argc, char **argv) {
    struct bench_options o = {
        .paths = {.programs = "build", .policies = "policies", .user = "pinfold"},
        .rounds = 10,
        .block = 60,
        .span_ms = 2000,
        .jails = 32,
        .sandboxes = 300,
        .laps = 20,
    };
    const struct opt table[] = {
        {"programs", 0, "DIR", OPT_STRING, &o.paths.programs, 0, 0, "the programs to measure"},
        {"policies", 0, "DIR", OPT_STRING, &o.paths.policies, 0, 0, "policies, owned by root"},
        {"scratch", 0, "DIR", OPT_STRING, &o.paths.scratch, 0, 0, "for state directories and logs"},
        {"user", 0, "NAME", OPT_STRING, &o.paths.user, 0, 0, "that the server becomes"},
        {"json", 0, "FILE", OPT_STRING, &o.json, 0, 0, "where all numbers go"},
        {"rounds", 0, "N", OPT_U64, &o.rounds, 1, 100, "interleaved rounds of single runs"},
        {"block", 0, "N", OPT_U64, &o.block, 1, 1000, "runs per round"},
        {"span", 0, "MS", OPT_U64, &o.span_ms, 100, 10000, "of each of two throughput rounds"},
        {"jails", 0, "N", OPT_U64, &o.jails, 1, 128, "warm jails whose memory is weighed"},
        {"sandboxes", 0, "N", OPT_U64, &o.sandboxes, 10, 4000,
         "idle sandboxes whose memory is weighed [300; the target is 2000]"},
        {"laps", 0, "N", OPT_U64, &o.laps, 3, 1000, "snapshots, forks, restores and syncs"},
        {0},
    };
    struct opt_result result;
    struct err err = {0};
    if (opt_parse(table, argc, argv, &result, &err) < 0) {
        fprintf(stderr, "bench: %s\n", err.text);
        return 2;
    }
    if (result.help) {
        opt_help(stdout, "bench --scratch DIR [options]",
                 "Measures what a run costs, side by side with what it is made of.", table);
        return 0;
    }
    if (bench_main(&o, &err) < 0) {
        fprintf(stderr, "bench: %s\n", err.text);
        return 1;
    }
    return 0;
}
