#include "bench_results.h"

#include <sys/utsname.h>

#define BENCH_MB 1e6

static double bench_table_ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* One line: p50, p99 and their ratios to the bare spawn's, for both paces. */
static void bench_table_row(FILE *out, struct bench_results *r, const char *name,
                            enum bench_row row, bool removed) {
    fprintf(out, "  %-32s", name);
    for (int i = 0; i < BENCH_PACES; i++) {
        enum bench_pace pace = (enum bench_pace)i;
        double p50 = removed ? bench_results_removed_us(r, row, pace, 50)
                             : bench_results_us(r, row, pace, 50);
        double p99 = removed ? bench_results_removed_us(r, row, pace, 99)
                             : bench_results_us(r, row, pace, 99);
        fprintf(out, " %7.0f %7.0f %6.2f %6.2f  ", p50, p99,
                bench_table_ratio(p50, bench_results_us(r, BENCH_ROW_SPAWN, pace, 50)),
                bench_table_ratio(p99, bench_results_us(r, BENCH_ROW_SPAWN, pace, 99)));
    }
    fprintf(out, "%6zu\n", r->laps[row][BENCH_PACED].done.count);
}

static void bench_table_laps(FILE *out, struct bench_results *r) {
    fprintf(out, "\nOne `true`, from start to result; us, and times the bare spawn\n");
    fprintf(out, "  %-32s %-31s %-31s\n", "", "closed loop", "paced, one every 5 ms");
    fprintf(out, "  %-32s", "");
    for (int pace = 0; pace < BENCH_PACES; pace++)
        fprintf(out, " %7s %7s %6s %6s  ", "p50", "p99", "x p50", "x p99");
    fprintf(out, "%6s\n", "runs");
    for (int i = 0; i < BENCH_ROWS; i++) {
        enum bench_row row = (enum bench_row)i;
        if (row == BENCH_ROW_BWRAP && !r->has_bwrap) {
            fprintf(out, "  %-32s (not installed)\n", bench_results_row(row));
            continue;
        }
        bench_table_row(out, r, bench_results_row(row), row, false);
        if (row == BENCH_ROW_FLOOR)
            bench_table_row(out, r, "  and its cgroups removed", row, true);
        if (row == BENCH_ROW_CREATE)
            bench_table_row(out, r, "  and the sandbox deleted", row, true);
    }
}

static void bench_table_phases(FILE *out, const struct bench_results *r) {
    fprintf(out, "\nWhat the floor is made of (paced, p50, us; parent and child overlap)\n");
    for (unsigned i = 0; bench_floor_phase(i); i++)
        fprintf(out, "  %-36s %7.1f%s", bench_floor_phase(i), bench_results_phase_us(r, i),
                i % 2 || !bench_floor_phase(i + 1) ? "\n" : "   ");
}

static void bench_table_rates(FILE *out, struct bench_results *r) {
    double floor = bench_results_rate(&r->floor_rate);
    double spawn = bench_results_rate(&r->spawn_rate);
    fprintf(out, "\nRuns of `true` per second, closed loop (cores: %u)\n", r->cores);
    fprintf(out, "  %-32s %7s %12s %9s %9s\n", "", "per s", "x the floor", "p50 us", "p99 us");
    fprintf(out, "  bare spawn, %-3u %-16s %7.0f %12.2f\n", r->cores, "processes", spawn,
            bench_table_ratio(spawn, floor));
    fprintf(out, "  floor loop, %-3u %-16s %7.0f %12.2f\n", r->cores, "processes", floor, 1.0);
    for (int i = 0; i < BENCH_CROWDS; i++) {
        struct bench_load_result *load = &r->load[i];
        double rate = bench_results_load_rate(load);
        fprintf(out, "  HTTP, %-3u %-22s %7.0f %12.2f %9.0f %9.0f\n",
                bench_results_clients((enum bench_crowd)i), "clients", rate,
                bench_table_ratio(rate, floor), bench_series_us(&load->latency, 50),
                bench_series_us(&load->latency, 99));
    }
    double memory = bench_results_load_rate(&r->memory_load);
    fprintf(out, "  HTTP, 8   clients, results in memory %7.0f %12.2f %9.0f %9.0f\n", memory,
            bench_table_ratio(memory, floor), bench_series_us(&r->memory_load.latency, 50),
            bench_series_us(&r->memory_load.latency, 99));
    fprintf(out,
            "\n%u requests at once: first answer after %.1f ms, median %.1f ms, last %.1f ms\n",
            BENCH_BURST_CLIENTS, r->burst.first_us / 1000, r->burst.median_us / 1000,
            r->burst.last_us / 1000);
}

static void bench_table_flows(FILE *out, const struct bench_results *r) {
    fprintf(out, "\n100 MB of stdout; the server's resident memory in MB\n");
    fprintf(out, "  %-16s %9s %12s %9s %9s %9s\n", "", "MB/s", "wire bytes", "before", "peak",
            "after");
    for (int i = 0; i < BENCH_FLOWS; i++) {
        const struct bench_stream_result *f = &r->flow[i];
        fprintf(out, "  %-16s %9.0f %12llu %9.1f %9.1f %9.1f\n",
                bench_results_flow((enum bench_flow)i), bench_results_flow_rate(f),
                (unsigned long long)f->wire_bytes, (double)f->rss_before_bytes / BENCH_MB,
                (double)f->rss_peak_bytes / BENCH_MB, (double)f->rss_after_bytes / BENCH_MB);
    }
}

static void bench_table_idle(FILE *out, const char *when, const struct bench_idle *i) {
    fprintf(out,
            "  idle, %-11s server %5.1f MB, runner %5.1f MB (%zu processes); %zu warm jails, whose "
            "processes have %.2f MB each\n",
            when, (double)i->server_bytes / BENCH_MB, (double)i->runner_bytes / BENCH_MB,
            i->runner_processes, i->jails,
            i->jails ? (double)i->jailed_bytes / BENCH_MB / (double)i->jails : 0.0);
}

static void bench_table_memory(FILE *out, const struct bench_results *r) {
    const struct bench_jail_cost *j = &r->jail;
    fprintf(out, "\nMemory (Pss from smaps_rollup; the kernel's part from /proc/meminfo)\n");
    bench_table_idle(out, "at first:", &r->idle_start);
    bench_table_idle(out, "at the end:", &r->idle_end);
    fprintf(out,
            "  a warm jail costs %.0f kB: kernel %.0f, processes %.0f (%zu jails against none; "
            "MemAvailable says %.0f)\n",
            (double)(j->kernel_bytes + j->process_bytes) / 1e3, (double)j->kernel_bytes / 1e3,
            (double)j->process_bytes / 1e3, j->jails, (double)j->available_bytes / 1e3);
}

static void bench_table_goals(FILE *out, struct bench_results *r) {
    struct bench_goal_list l = {0};
    bench_goals_judge(r, &l);
    const struct bench_goal *goals = l.goal;
    fprintf(out, "\nTargets\n");
    for (size_t i = 0; i < l.count; i++)
        fprintf(out, "  %-3s  %-66s %8.2f %-4s (%s %.2f)\n", goals[i].met ? "yes" : "no",
                goals[i].what, goals[i].measured, goals[i].unit,
                goals[i].at_least ? "at least" : "at most", goals[i].target);
}

void bench_table_print(FILE *out, struct bench_results *r) {
    struct utsname host = {0};
    uname(&host);
    fprintf(out, "Pinfold benchmark: Linux %s, %u cores\n", host.release, r->cores);
    bench_table_laps(out, r);
    bench_table_phases(out, r);
    bench_table_rates(out, r);
    bench_table_flows(out, r);
    bench_table_memory(out, r);
    bench_sandboxes_print(out, r);
    bench_workspace_print(out, r);
    bench_table_goals(out, r);
}
