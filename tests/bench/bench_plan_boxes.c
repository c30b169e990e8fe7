#include "bench_plan_boxes.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench_boxes.h"
#include "bench_proc.h"
#include "bench_sync.h"
#include "clock.h"

#define BENCH_BOXES_PAUSE_MS 300
#define BENCH_BOXES_AT_ONCE 16 /* creations under way while many are made */
#define BENCH_BOXES_SETTLE_MS 3000
#define BENCH_BOXES_EXECS 300
#define BENCH_BOXES_FILE_LAPS 3

static int bench_plan_boxes_order(const void *a, const void *b) {
    double x = ((const struct bench_burst *)a)->last_us;
    double y = ((const struct bench_burst *)b)->last_us;
    return (x > y) - (x < y);
}

static int bench_plan_boxes_burst(const struct bench_service *s, struct bench_burst *burst,
                                  struct err *err) {
    struct bench_burst all[BENCH_BURSTS];
    for (int i = 0; i < BENCH_BURSTS; i++) {
        struct bench_boxes boxes = {0};
        struct bench_series first = {0};
        size_t jails;
        int rc = bench_service_settle(s, &jails, err);
        if (rc == 0)
            rc = bench_boxes_make(&boxes, &s->target, BENCH_BURST_CLIENTS, BENCH_BURST_CLIENTS,
                                  &first, err);
        all[i] = (struct bench_burst){.first_us = bench_series_us(&first, 1),
                                      .median_us = bench_series_us(&first, 50),
                                      .last_us = bench_series_us(&first, 100)};
        bench_series_done(&first);
        if (bench_boxes_delete(&boxes, rc == 0 ? err : NULL) < 0 || rc < 0)
            return err_wrap(err, "%u sandboxes at once", BENCH_BURST_CLIENTS);
    }
    qsort(all, BENCH_BURSTS, sizeof(all[0]), bench_plan_boxes_order);
    *burst = all[BENCH_BURSTS / 2];
    return 0;
}

static void bench_plan_boxes_say(const char *what) {
    fprintf(stderr, "bench: %s\n", what);
    bench_service_pause(BENCH_BOXES_PAUSE_MS);
}

int bench_plan_boxes_run(const struct bench_service *s, const struct bench_effort *effort,
                         struct bench_sandboxes *b, struct err *err) {
    bench_plan_boxes_say("100 sandboxes at once");
    if (bench_plan_boxes_burst(s, &b->burst, err) < 0)
        return -1;
    for (int i = 0; i < BENCH_WORKSPACES; i++) {
        bench_plan_boxes_say("snapshots, forks and restores");
        unsigned mib = bench_results_workspace_mib((enum bench_workspace)i);
        if (bench_snapshot_run(&s->target, mib, effort->laps, &b->snapshot[i], err) < 0)
            return -1;
    }
    bench_plan_boxes_say("a sync of 10,000 files");
    if (bench_sync_run(&s->target, effort->laps, &b->sync, err) < 0)
        return err_wrap(err, "a sync");
    bench_plan_boxes_say("1 GB up and down");
    if (bench_file_run(&s->target, BENCH_BOXES_FILE_LAPS, &b->file, err) < 0)
        return err_wrap(err, "a file of 1 GB");
    return 0;
}

static int bench_plan_boxes_exec(const struct bench_service *s, const char *id,
                                 struct bench_times *times, struct err *err) {
    char path[BENCH_BOX_PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec", id);
    const struct bench_http_config config = {s->target, path, "{\"argv\":[\"true\"]}"};
    const struct bench_subject subject = bench_http_subject(&config);
    const struct bench_plan plan = {
        .workers = 1, .count = BENCH_BOXES_EXECS, .step_ns = BENCH_PACE_NS};
    bench_service_pause(BENCH_BOXES_PAUSE_MS);
    return bench_loop_run(&subject, &plan, times, NULL, NULL, err);
}

static int bench_plan_boxes_fill(const struct bench_service *s, unsigned count,
                                 struct bench_boxes *boxes, struct bench_many *many,
                                 struct err *err) {
    struct bench_boxes alone = {0};
    int rc = bench_boxes_make(&alone, &s->target, 1, 1, NULL, err);
    if (rc == 0)
        rc = bench_plan_boxes_exec(s, alone.id[0], &many->one, err);
    if (bench_boxes_delete(&alone, rc == 0 ? err : NULL) < 0 || rc < 0)
        return -1;
    struct bench_meminfo before, after;
    bench_service_pause(BENCH_BOXES_SETTLE_MS);
    if (bench_proc_meminfo(&before, err) < 0)
        return -1;
    uint64_t start = clock_mono_ns();
    if (bench_boxes_make(boxes, &s->target, count, BENCH_BOXES_AT_ONCE, NULL, err) < 0)
        return -1;
    many->make_s = (double)(clock_mono_ns() - start) / 1e9;
    bench_service_pause(BENCH_BOXES_SETTLE_MS);
    if (bench_proc_meminfo(&after, err) < 0)
        return -1;
    many->boxes = count;
    many->available_bytes =
        ((int64_t)before.available_bytes - (int64_t)after.available_bytes) / (int64_t)count;
    many->kernel_bytes =
        ((int64_t)after.kernel_bytes - (int64_t)before.kernel_bytes) / (int64_t)count;
    return bench_plan_boxes_exec(s, boxes->id[count / 2], &many->all, err);
}

int bench_plan_boxes_many(const struct bench_paths *paths, unsigned count, struct bench_many *many,
                          struct err *err) {
    /* A shard needs some twenty descriptors per sandbox; four have enough for all where a process
     * may have 20,000. */
    static const struct bench_service_size size = {.sandboxes = "1200", .shards = "4"};
    struct bench_service s;
    struct bench_boxes boxes = {0};
    fprintf(stderr, "bench: %u idle sandboxes\n", count);
    if (bench_service_start(&s, paths, "many", &size, err) < 0)
        return -1;
    int rc = bench_plan_boxes_fill(&s, count, &boxes, many, err);
    if (bench_boxes_delete(&boxes, rc == 0 ? err : NULL) < 0)
        rc = -1;
    bench_service_stop(&s);
    return rc < 0 ? err_wrap(err, "%u idle sandboxes", count) : 0;
}
