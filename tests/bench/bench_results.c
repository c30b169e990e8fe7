#include "bench_results.h"

#include <sys/mman.h>

void bench_results_done(struct bench_results *r) {
    for (int row = 0; row < BENCH_ROWS; row++)
        for (int pace = 0; pace < BENCH_PACES; pace++)
            bench_times_done(&r->laps[row][pace]);
    for (int i = 0; i < BENCH_CROWDS; i++)
        bench_load_result_done(&r->load[i]);
    bench_load_result_done(&r->memory_load);
    struct bench_sandboxes *b = &r->sandboxes;
    bench_times_done(&b->many.one);
    bench_times_done(&b->many.all);
    for (int i = 0; i < BENCH_WORKSPACES; i++)
        bench_snapshot_result_done(&b->snapshot[i]);
    bench_series_done(&b->sync);
    bench_fair_result_done(&r->fair);
    bench_series_done(&r->client.exec);
    bench_series_done(&r->client.git);
    bench_series_done(&r->journal.change);
    bench_series_done(&r->journal.copy);
    if (r->phases)
        munmap(r->phases, sizeof(*r->phases));
}

unsigned bench_results_clients(enum bench_crowd crowd) {
    static const unsigned clients[BENCH_CROWDS] = {1, 8, 32};
    return clients[crowd];
}

unsigned bench_results_workspace_mib(enum bench_workspace workspace) {
    static const unsigned mib[BENCH_WORKSPACES] = {10, 1024};
    return mib[workspace];
}

const char *bench_results_row(enum bench_row row) {
    static const char *const names[BENCH_ROWS] = {
        [BENCH_ROW_SPAWN] = "bare posix_spawn + wait",
        [BENCH_ROW_FLOOR] = "the same jail by hand (floor)",
        [BENCH_ROW_BWRAP] = "bubblewrap, all namespaces",
        [BENCH_ROW_WARM] = "run over HTTP, warm",
        [BENCH_ROW_MEMORY] = "the same, results in memory",
        [BENCH_ROW_COLD] = "run over HTTP, cold",
        [BENCH_ROW_EXEC] = "execution in a sandbox",
        [BENCH_ROW_CREATE] = "a new sandbox's first command",
    };
    return names[row];
}

const char *bench_results_flow(enum bench_flow flow) {
    static const char *const names[BENCH_FLOWS] = {
        [BENCH_FLOW_WAIT] = "zeros, wait",
        [BENCH_FLOW_ZEROS] = "zeros, stream",
        [BENCH_FLOW_TEXT] = "text, stream",
    };
    return names[flow];
}

double bench_results_us(struct bench_results *r, enum bench_row row, enum bench_pace pace,
                        unsigned percent) {
    return bench_series_us(&r->laps[row][pace].done, percent);
}

double bench_results_removed_us(struct bench_results *r, enum bench_row row, enum bench_pace pace,
                                unsigned percent) {
    return bench_series_us(&r->laps[row][pace].removed, percent);
}

double bench_results_phase_us(const struct bench_results *r, unsigned phase) {
    struct bench_series s = {0};
    for (uint32_t i = 0; i < r->phases->laps; i++)
        if (bench_series_add(&s, r->phases->ns[phase][i], NULL) < 0)
            break;
    double us = bench_series_us(&s, 50);
    bench_series_done(&s);
    return us;
}

static double bench_per_second(uint64_t count, uint64_t ns) {
    return ns ? (double)count * 1e9 / (double)ns : 0;
}

double bench_results_rate(const struct bench_rate *rate) {
    return bench_per_second(rate->laps, rate->ns);
}

double bench_results_load_rate(const struct bench_load_result *load) {
    return bench_per_second(load->runs, load->elapsed_ns);
}

double bench_results_flow_rate(const struct bench_stream_result *f) {
    return bench_per_second(BENCH_FLOW_BYTES, f->ns) / 1e6;
}
