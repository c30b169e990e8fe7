#include "bench_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench_box.h"
#include "bench_filter.h"
#include "bench_plan_boxes.h"
#include "bench_proc.h"
#include "bench_spawn.h"
#include "bench_verdicts.h"

#define BENCH_PAUSE_MS 100
#define BENCH_IDLE_MS 1500 /* from the last answer until a service is idle */
#define BENCH_RATE_ROUNDS 2
#define BENCH_FLOW_ROUNDS 3
#define BENCH_COST_ROUNDS 3
#define BENCH_BWRAP "/usr/bin/bwrap"

#define BENCH_RUNS_PATH "/v1/runs"
#define BENCH_BODY_TRUE "{\"argv\":[\"true\"]}"

static const char *const bench_flow_bodies[BENCH_FLOWS] = {
    [BENCH_FLOW_WAIT] = "{\"argv\":[\"head\",\"-c\",\"100000000\",\"/dev/zero\"],\"wait\":true}",
    [BENCH_FLOW_ZEROS] = "{\"argv\":[\"head\",\"-c\",\"100000000\",\"/dev/zero\"],\"stream\":true}",
    [BENCH_FLOW_TEXT] = "{\"sh\":\"yes a line of text | head -c 100000000\",\"stream\":true}",
};

struct bench_plan_run {
    const struct bench_paths *paths;
    const struct bench_effort *effort;
    struct bench_results *r;
    struct bench_service warm, cold, memory;
    struct bench_floor_config floor;
    struct bench_http_config warm_http, cold_http, memory_http, exec_http;
    char exec_path[BENCH_BOX_PATH_SIZE];
    struct bench_subject subject[BENCH_ROWS];
};

static void bench_plan_say(const char *what) {
    fprintf(stderr, "bench: %s\n", what);
}

/* bubblewrap's shortest command line that isolates as much as a jail does and can still execute. */
static char *const *bench_plan_bwrap(void) {
    static char *const argv[] = {
        BENCH_BWRAP, "--unshare-all", "--ro-bind", "/usr",    "/usr",  "--symlink",
        "usr/bin",   "/bin",          "--symlink", "usr/lib", "/lib",  "--symlink",
        "usr/lib64", "/lib64",        "--proc",    "/proc",   "--dev", "/dev",
        "--tmpfs",   "/tmp",          "true",      NULL,
    };
    return argv;
}

static void bench_plan_subjects(struct bench_plan_run *p) {
    static char *const spawn[] = {"/bin/true", NULL};
    p->warm_http = (struct bench_http_config){p->warm.target, BENCH_RUNS_PATH, BENCH_BODY_TRUE};
    p->cold_http = (struct bench_http_config){p->cold.target, BENCH_RUNS_PATH, BENCH_BODY_TRUE};
    p->subject[BENCH_ROW_SPAWN] = bench_spawn_subject(spawn);
    p->subject[BENCH_ROW_FLOOR] = bench_floor_subject(&p->floor);
    p->subject[BENCH_ROW_BWRAP] = bench_spawn_subject(bench_plan_bwrap());
    p->memory_http = (struct bench_http_config){p->memory.target, BENCH_RUNS_PATH, BENCH_BODY_TRUE};
    p->subject[BENCH_ROW_MEMORY] = bench_http_subject(&p->memory_http);
    p->subject[BENCH_ROW_WARM] = bench_http_subject(&p->warm_http);
    p->subject[BENCH_ROW_COLD] = bench_http_subject(&p->cold_http);
    p->exec_http = (struct bench_http_config){p->warm.target, p->exec_path, BENCH_BODY_TRUE};
    p->subject[BENCH_ROW_EXEC] = bench_http_subject(&p->exec_http);
    p->subject[BENCH_ROW_CREATE] = bench_box_subject(&p->warm.target);
}

static int bench_plan_idle(const struct bench_service *s, struct bench_idle *idle,
                           struct err *err) {
    struct bench_tree tree;
    size_t jails;
    bench_service_pause(BENCH_IDLE_MS);
    if (bench_service_settle(s, &jails, err) < 0 || bench_proc_tree(s->runner, &tree, err) < 0)
        return -1;
    *idle = (struct bench_idle){.runner_processes = tree.count, .jails = tree.jails};
    idle->server_bytes = bench_proc_pss_bytes(s->server);
    for (size_t i = 0; i < tree.count; i++)
        idle->runner_bytes += bench_proc_pss_bytes(tree.pid[i]);
    for (size_t i = 0; i < tree.jailed_count; i++)
        idle->jailed_bytes += bench_proc_pss_bytes(tree.jailed[i]);
    return 0;
}

/* One block of each row after the other, so that whatever else the machine does meets all alike.
 * Between blocks is time for what the last one left to the kernel to clean up. */
static int bench_plan_round(struct bench_plan_run *p, enum bench_pace pace, struct err *err) {
    static const enum bench_row order[BENCH_ROWS] = {
        BENCH_ROW_SPAWN, BENCH_ROW_EXEC, BENCH_ROW_WARM,   BENCH_ROW_MEMORY,
        BENCH_ROW_FLOOR, BENCH_ROW_COLD, BENCH_ROW_CREATE, BENCH_ROW_BWRAP,
    };
    const struct bench_plan plan = {
        .workers = 1,
        .count = p->effort->block,
        .step_ns = pace == BENCH_PACED ? BENCH_PACE_NS : 0,
    };
    for (size_t i = 0; i < BENCH_ROWS; i++) {
        enum bench_row row = order[i];
        if (row == BENCH_ROW_BWRAP && !p->r->has_bwrap)
            continue;
        /* Its phases are those of the paced laps. */
        p->floor.phases = pace == BENCH_PACED ? p->r->phases : NULL;
        bench_service_pause(BENCH_PAUSE_MS);
        if (bench_loop_run(&p->subject[row], &plan, &p->r->laps[row][pace], NULL, NULL, err) < 0)
            return err_wrap(err, "%s", bench_results_row(row));
    }
    return 0;
}

static int bench_plan_laps(struct bench_plan_run *p, struct err *err) {
    bench_plan_say("single runs: spawn, floor, bubblewrap, warm, results in memory, cold, in a "
                   "sandbox, in a new one");
    for (unsigned i = 0; i < p->effort->rounds; i++)
        if (bench_plan_round(p, BENCH_PACED, err) < 0 || bench_plan_round(p, BENCH_CLOSED, err) < 0)
            return -1;
    return 0;
}

static int bench_plan_rate(struct bench_plan_run *p, enum bench_row row, struct bench_rate *rate,
                           struct err *err) {
    const struct bench_plan plan = {.workers = p->r->cores,
                                    .span_ns = p->effort->span_ms * 1000000ull};
    uint64_t laps, ns;
    bench_service_pause(BENCH_PAUSE_MS);
    if (bench_loop_run(&p->subject[row], &plan, NULL, &laps, &ns, err) < 0)
        return err_wrap(err, "%s, %u at once", bench_results_row(row), plan.workers);
    rate->laps += laps;
    rate->ns += ns;
    return 0;
}

static int bench_plan_rates(struct bench_plan_run *p, struct err *err) {
    bench_plan_say("throughput: spawn, floor, 1, 8 and 32 clients");
    uint64_t span_ns = p->effort->span_ms * 1000000ull;
    for (int round = 0; round < BENCH_RATE_ROUNDS; round++) {
        if (bench_plan_rate(p, BENCH_ROW_SPAWN, &p->r->spawn_rate, err) < 0 ||
            bench_plan_rate(p, BENCH_ROW_FLOOR, &p->r->floor_rate, err) < 0)
            return -1;
        for (int i = 0; i < BENCH_CROWDS; i++) {
            unsigned clients = bench_results_clients((enum bench_crowd)i);
            bench_service_pause(BENCH_PAUSE_MS);
            if (bench_load_run(&p->warm_http, clients, 0, span_ns, &p->r->load[i], err) < 0)
                return err_wrap(err, "%u clients", clients);
        }
        bench_service_pause(BENCH_PAUSE_MS);
        if (bench_load_run(&p->memory_http, bench_results_clients(BENCH_CROWD_8), 0, span_ns,
                           &p->r->memory_load, err) < 0)
            return err_wrap(err, "8 clients, results in memory");
    }
    return 0;
}

static int bench_plan_burst_order(const void *a, const void *b) {
    double x = ((const struct bench_burst *)a)->last_us;
    double y = ((const struct bench_burst *)b)->last_us;
    return (x > y) - (x < y);
}

static int bench_plan_burst(struct bench_plan_run *p, struct err *err) {
    bench_plan_say("a burst of 100 requests");
    struct bench_burst all[BENCH_BURSTS];
    for (int i = 0; i < BENCH_BURSTS; i++) {
        struct bench_load_result load = {0};
        size_t jails;
        int rc = bench_service_settle(&p->warm, &jails, err);
        if (rc == 0)
            rc = bench_load_run(&p->warm_http, BENCH_BURST_CLIENTS, 1, 0, &load, err);
        all[i] = (struct bench_burst){.first_us = bench_series_us(&load.latency, 1),
                                      .median_us = bench_series_us(&load.latency, 50),
                                      .last_us = bench_series_us(&load.latency, 100)};
        bench_load_result_done(&load);
        if (rc < 0)
            return err_wrap(err, "a burst of %u requests", BENCH_BURST_CLIENTS);
    }
    qsort(all, BENCH_BURSTS, sizeof(all[0]), bench_plan_burst_order);
    p->r->burst = all[BENCH_BURSTS / 2];
    return 0;
}

static int bench_plan_flow_order(const void *a, const void *b) {
    uint64_t x = ((const struct bench_stream_result *)a)->ns;
    uint64_t y = ((const struct bench_stream_result *)b)->ns;
    return (x > y) - (x < y);
}

/* The middle one of a few by its time; the memory is that of the worst. */
static int bench_plan_flow(struct bench_plan_run *p, enum bench_flow flow, struct err *err) {
    const struct bench_http_config config = {p->warm.target, BENCH_RUNS_PATH,
                                             bench_flow_bodies[flow]};
    struct bench_stream_result all[BENCH_FLOW_ROUNDS];
    uint64_t peak = 0;
    for (int i = 0; i < BENCH_FLOW_ROUNDS; i++) {
        bench_service_pause(BENCH_PAUSE_MS);
        if (bench_stream_run(&config, p->warm.server, &all[i], err) < 0)
            return err_wrap(err, "%s", bench_results_flow(flow));
        if (all[i].rss_peak_bytes > peak)
            peak = all[i].rss_peak_bytes;
    }
    uint64_t before = all[0].rss_before_bytes, after = all[BENCH_FLOW_ROUNDS - 1].rss_after_bytes;
    qsort(all, BENCH_FLOW_ROUNDS, sizeof(all[0]), bench_plan_flow_order);
    p->r->flow[flow] = all[BENCH_FLOW_ROUNDS / 2];
    p->r->flow[flow].rss_before_bytes = before;
    p->r->flow[flow].rss_peak_bytes = peak;
    p->r->flow[flow].rss_after_bytes = after;
    return 0;
}

static int bench_plan_flows(struct bench_plan_run *p, struct err *err) {
    bench_plan_say("100 MB of stdout");
    for (int i = 0; i < BENCH_FLOWS; i++)
        if (bench_plan_flow(p, (enum bench_flow)i, err) < 0)
            return -1;
    return 0;
}

/* Services on the side with `warm` jails: what the machine has left, and what they hold. */
static int bench_plan_weigh(struct bench_plan_run *p, const char *warm, struct bench_meminfo *mem,
                            struct bench_idle *idle, struct err *err) {
    struct bench_service s;
    if (bench_service_start(&s, p->paths, "weigh", &(struct bench_service_size){.warm = warm},
                            err) < 0)
        return -1;
    int rc = bench_plan_idle(&s, idle, err);
    if (rc == 0)
        rc = bench_proc_meminfo(mem, err);
    bench_service_stop(&s);
    return rc;
}

static int bench_plan_cost_order(const void *a, const void *b) {
    int64_t x = ((const struct bench_jail_cost *)a)->kernel_bytes;
    int64_t y = ((const struct bench_jail_cost *)b)->kernel_bytes;
    return (x > y) - (x < y);
}

static int bench_plan_cost(struct bench_plan_run *p, struct err *err) {
    bench_plan_say("memory of warm jails");
    struct bench_jail_cost all[BENCH_COST_ROUNDS];
    char warm[16];
    snprintf(warm, sizeof(warm), "%u", p->effort->jails);
    for (int i = 0; i < BENCH_COST_ROUNDS; i++) {
        struct bench_meminfo none, some;
        struct bench_idle idle_none, idle_some;
        if (bench_plan_weigh(p, "0", &none, &idle_none, err) < 0 ||
            bench_plan_weigh(p, warm, &some, &idle_some, err) < 0)
            return -1;
        int64_t jails = (int64_t)idle_some.jails - (int64_t)idle_none.jails;
        if (jails <= 0)
            return err_set(err, ERR_STATE, 0, "--warm %s made no warm jails", warm);
        all[i] = (struct bench_jail_cost){
            .jails = (size_t)jails,
            .available_bytes =
                ((int64_t)none.available_bytes - (int64_t)some.available_bytes) / jails,
            .kernel_bytes = ((int64_t)some.kernel_bytes - (int64_t)none.kernel_bytes) / jails,
            .process_bytes = (int64_t)idle_some.jailed_bytes / jails,
        };
    }
    qsort(all, BENCH_COST_ROUNDS, sizeof(all[0]), bench_plan_cost_order);
    p->r->jail = all[BENCH_COST_ROUNDS / 2];
    return 0;
}

/* The sandbox that all executions are timed in. */
static int bench_plan_sandbox(struct bench_plan_run *p, struct err *err) {
    struct bench_box b;
    char id[BENCH_BOX_ID_SIZE];
    int rc = bench_box_open(&b, &p->warm.target, err);
    if (rc == 0)
        rc = bench_box_make(&b, "{}", id, err);
    if (rc == 0)
        snprintf(p->exec_path, sizeof(p->exec_path), "/v1/sandboxes/%s/exec", id);
    bench_box_close(&b);
    return rc;
}

static int bench_plan_prepare(struct bench_plan_run *p, struct err *err) {
    static const struct bench_service_size none = {.warm = "0"}, memory = {.results = "memory"};
    struct bench_results *r = p->r;
    r->cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    r->has_bwrap = access(BENCH_BWRAP, X_OK) == 0;
    void *phases =
        mmap(NULL, sizeof(*r->phases), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (phases == MAP_FAILED)
        return err_sys(err, "map memory for phases");
    r->phases = phases;
    if (bench_filter_make(&p->floor.filter, err) < 0)
        return -1;
    bench_plan_say("starting three: with warm jails, without, and with results in memory");
    if (bench_service_start(&p->warm, p->paths, "warm", NULL, err) < 0 ||
        bench_plan_idle(&p->warm, &r->idle_start, err) < 0)
        return err_wrap(err, "with warm jails");
    if (bench_service_start(&p->cold, p->paths, "cold", &none, err) < 0)
        return err_wrap(err, "without warm jails");
    if (bench_service_start(&p->memory, p->paths, "memory", &memory, err) < 0)
        return err_wrap(err, "with results in memory");
    bench_plan_subjects(p);
    if (bench_verdicts_run(&r->verdicts_per_s, err) < 0)
        return err_wrap(err, "verdicts");
    return bench_plan_sandbox(p, err);
}

/* What somebody waits for who works in a directory. */
static int bench_plan_workspace(struct bench_plan_run *p, struct err *err) {
    unsigned laps = p->effort->laps;
    bench_plan_say("pinfold exec in a workspace of 10,000 files, and git status");
    bench_service_pause(BENCH_PAUSE_MS);
    if (bench_client_run(p->paths, &p->warm.target, laps, &p->r->client, err) < 0)
        return err_wrap(err, "pinfold exec in a workspace");
    bench_plan_say("a change of 100 files through the journal, and cp -a");
    return bench_journal_run(p->paths->scratch, laps, &p->r->journal, err) < 0
               ? err_wrap(err, "the journal")
               : 0;
}

static int bench_plan_fair(struct bench_plan_run *p, struct err *err) {
    bench_plan_say("200 users with 20 waiting runs each");
    return bench_fair_run(&p->warm, &p->r->fair, err);
}

int bench_plan_run(const struct bench_paths *paths, const struct bench_effort *effort,
                   struct bench_results *r, struct err *err) {
    struct bench_plan_run p = {.paths = paths, .effort = effort, .r = r};
    int rc = bench_plan_prepare(&p, err);
    if (rc == 0)
        rc = bench_plan_laps(&p, err);
    bench_service_stop(&p.cold);
    if (rc == 0)
        rc = bench_plan_rates(&p, err);
    bench_service_stop(&p.memory);
    if (rc == 0)
        rc = bench_plan_burst(&p, err);
    if (rc == 0)
        rc = bench_plan_flows(&p, err);
    if (rc == 0)
        rc = bench_plan_idle(&p.warm, &r->idle_end, err);
    if (rc == 0)
        rc = bench_plan_boxes_run(&p.warm, effort, &r->sandboxes, err);
    if (rc == 0)
        rc = bench_plan_workspace(&p, err);
    if (rc == 0)
        rc = bench_plan_fair(&p, err);
    bench_service_stop(&p.warm);
    if (rc == 0)
        rc = bench_plan_boxes_many(paths, effort->sandboxes, &r->sandboxes.many, err);
    if (rc == 0)
        rc = bench_plan_cost(&p, err);
    free(p.floor.filter.filter);
    return rc;
}
