#include "retain.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "results.h"
#include "runs.h"
#include "snapshots.h"
#include "store_idempotency.h"
#include "store_runs.h"
#include "store_trace.h"
#include "work.h"

/* Rows that go at once: together well under a millisecond. */
#define RETAIN_BATCH 12
#define RETAIN_NEXT_MS 10u
/* How often the age is looked at, and bodies that nobody needs any more. */
#define RETAIN_LOOK_MS 30000u
#define RETAIN_SOON_MS 100u
#define RETAIN_REST_MS 1000u
/* A body is noted as used once an hour only. */
#define RETAIN_INPUT_SLACK_MS 7200000u

struct retain {
    struct runs *runs;
    struct retain_options options;
    uint64_t count, bytes;
    uint64_t inputs_before_ms; /* bodies that were last used before this can go */
    bool resting;              /* the oldest is too young to go */
    struct loop_timer timer;
};

/* Records go on a worker: removing a large one takes its time. */
struct retain_job {
    struct work_job job;
    int dir;
    size_t count;
    char files[RETAIN_BATCH][STORE_RUNS_FILE_SIZE];
};

static void retain_unlink(struct work_job *job) {
    struct retain_job *j = (struct retain_job *)(void *)job;
    for (size_t i = 0; i < j->count; i++)
        (void)unlinkat(j->dir, j->files[i], 0);
}

static void retain_unlinked(struct work_job *job) {
    free(job);
}

static void retain_record(struct retain *r, struct retain_job **job, const char *file) {
    if (file[0] == '\0')
        return;
    if (*job == NULL)
        *job = calloc(1, sizeof(**job));
    struct retain_job *j = *job;
    if (j == NULL || j->count == RETAIN_BATCH)
        (void)unlinkat(r->runs->results, file, 0);
    else
        memcpy(j->files[j->count++], file, STORE_RUNS_FILE_SIZE);
}

/* A request may have brought it again meanwhile: then it stays, and its row is about to be written.
 */
static void retain_body(struct retain *r, const char *file) {
    if (file[0] != '\0')
        bodies_remove(&r->runs->bodies, r->runs->work, r->runs->results, file);
}

static bool retain_over(const struct retain *r) {
    return r->count > r->options.count || r->bytes > r->options.bytes;
}

/* Bodies of runs that are gone can go. One that waits or runs may be older than all that are over.
 */
static void retain_bodies(struct retain *r) {
    uint64_t began = 0;
    if (store_runs_began(r->options.store, &began, NULL) > 0)
        r->inputs_before_ms = began > RETAIN_INPUT_SLACK_MS ? began - RETAIN_INPUT_SLACK_MS : 0;
}

/* Drops what is too much of the oldest. -> how many went, -1 when the store failed. */
static int retain_drop(struct retain *r, struct retain_job **job) {
    struct store_run_old old[RETAIN_BATCH];
    struct err err;
    uint64_t now = clock_real_ms();
    r->resting = false;
    int n = store_runs_oldest(r->options.store, old, RETAIN_BATCH, &err), gone = 0;
    for (int i = 0; i < n; i++) {
        bool aged = old[i].at_ms + r->options.age_ms < now && old[i].at_ms < now;
        if (!aged && !retain_over(r)) {
            retain_bodies(r);
            return gone;
        }
        /* Its body could not go with it, and nothing would lead to it then. */
        if (!aged && old[i].filed && old[i].at_ms + STORE_RUNS_INPUT_REST_MS > now &&
            old[i].at_ms < now) {
            r->resting = true;
            return gone;
        }
        if (store_runs_drop(r->options.store, &old[i], now, &err) < 0)
            return -1;
        retain_record(r, job, old[i].file);
        retain_body(r, old[i].input);
        runs_forget(r->runs, old[i].id);
        if (r->runs->snapshots != NULL)
            snapshots_remove_steps(r->runs->snapshots, old[i].id);
        runs_kept(r->runs, old[i].user, -1, -(int64_t)old[i].bytes);
        gone++;
    }
    return n < 0 ? -1 : gone;
}

static void retain_tick(void *arg);

static void retain_arm(struct retain *r, uint64_t ms) {
    loop_timer_at(r->runs->loop, &r->timer, clock_mono_ns() + ms * CLOCK_NS_PER_MS, retain_tick, r,
                  NULL);
}

static void retain_tick(void *arg) {
    struct retain *r = arg;
    struct retain_job *job = NULL;
    char files[RETAIN_BATCH][STORE_RUNS_FILE_SIZE] = {{0}};
    if (store_sick(r->options.store) != NULL && !store_full(r->options.store)) {
        retain_arm(r, RETAIN_LOOK_MS);
        return;
    }
    int gone = retain_drop(r, &job), inputs = 0;
    if (gone >= 0 && gone < RETAIN_BATCH && r->inputs_before_ms > 0)
        inputs = store_runs_drop_inputs(r->options.store, r->inputs_before_ms, files, RETAIN_BATCH,
                                        NULL);
    for (int i = 0; i < inputs; i++)
        retain_body(r, files[i]);
    uint64_t now = clock_real_ms();
    int keys =
        now > r->options.key_ms
            ? store_idempotency_drop(r->options.store, now - r->options.key_ms, RETAIN_BATCH, NULL)
            : 0;
    /* They are small: no bytes are counted. */
    int spans =
        store_trace_drop(r->options.store, now > r->options.age_ms ? now - r->options.age_ms : 0,
                         r->options.count, RETAIN_BATCH, NULL);
    if (gone > 0 || inputs > 0 || spans > 0)
        (void)store_runs_shrink(r->options.store, NULL);
    if (job != NULL) {
        job->job = (struct work_job){.run = retain_unlink, .done = retain_unlinked};
        job->dir = r->runs->results;
        work_add(r->runs->work, &job->job);
    }
    bool more = gone == RETAIN_BATCH || inputs == RETAIN_BATCH || keys == RETAIN_BATCH ||
                spans == RETAIN_BATCH;
    retain_arm(r, more ? RETAIN_NEXT_MS : r->resting ? RETAIN_REST_MS : RETAIN_LOOK_MS);
}

void retain_count(struct retain *r, int64_t count, int64_t bytes) {
    r->count = count < 0 && r->count < (uint64_t)-count ? 0 : r->count + (uint64_t)count;
    r->bytes = bytes < 0 && r->bytes < (uint64_t)-bytes ? 0 : r->bytes + (uint64_t)bytes;
    uint64_t soon = clock_mono_ns() + RETAIN_SOON_MS * CLOCK_NS_PER_MS;
    if (count > 0 && retain_over(r) && (r->timer.slot == 0 || r->timer.due_ns > soon))
        retain_arm(r, RETAIN_SOON_MS);
}

static void retain_add(void *arg, const char *user, uint64_t count, uint64_t bytes) {
    struct retain *r = arg;
    runs_kept(r->runs, user, (int64_t)count, (int64_t)bytes);
}

/* Files that no row names: a server died between the two. */
static int retain_sweep(struct runs *runs, struct store *store, struct err *err) {
    struct results_walk walk;
    char name[STORE_RUNS_FILE_SIZE];
    if (results_walk_start(runs->results, &walk, err) < 0)
        return -1;
    while (results_walk_next(&walk, runs->results, name))
        if (store_runs_knows_file(store, name, NULL) == 0)
            (void)unlinkat(runs->results, name, 0);
    results_walk_stop(&walk);
    return 0;
}

struct retain *retain_new(struct runs *runs, const struct retain_options *options,
                          struct err *err) {
    struct retain *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "counting stored results: out of memory");
        return NULL;
    }
    r->runs = runs;
    r->options = *options;
    runs->retain = r;
    if (store_runs_totals(options->store, retain_add, r, err) < 0 ||
        retain_sweep(runs, options->store, err) < 0) {
        retain_free(r);
        return NULL;
    }
    retain_arm(r, RETAIN_SOON_MS);
    return r;
}

void retain_free(struct retain *r) {
    if (r == NULL)
        return;
    loop_timer_stop(r->runs->loop, &r->timer);
    r->runs->retain = NULL;
    free(r);
}
