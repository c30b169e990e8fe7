#include "runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "clock.h"
#include "fd.h"
#include "retain.h"
#include "seen.h"
#include "str.h"
#include "work.h"

/* How long runs wait while no runner is there at all; a restart of the runner takes less. */
#define RUNS_STARVE_MS 30000u
/* Of finished runs that are stored, so much stays in memory when nothing is asked for. */
#define RUNS_REST_BYTES ((size_t)2 * 1024 * 1024)
/* Runs that are put aside in one round of the loop: nothing holds it up for long. */
#define RUNS_HELD_MAX 1000u
/* How long others may pass a run that waits for memory. */
#define RUNS_PASS_MS 1000u
#define RUNS_ID_CHARS 24u
#define RUNS_ID_TIME 10u /* of them: microseconds since the epoch, base 36 */

void runs_init(struct runs *runs, struct loop *loop, struct log *log, struct links *links,
               struct metrics *metrics, const struct runs_options *options) {
    memset(runs, 0, sizeof(*runs));
    runs->loop = loop;
    runs->log = log;
    runs->links = links;
    runs->metrics = metrics;
    runs->options = *options;
    runs->results = -1;
    runs->redo.fd = -1;
    bodies_init(&runs->bodies);
    pipes_init(&runs->pipes, loop);
    queue_init(&runs->queue, options->queue_count, options->queue_bytes);
}

void runs_done(struct runs *runs) {
    if (runs->loop == NULL)
        return;
    run_store_flush(runs);
    loop_defer_stop(runs->loop, &runs->dispatch);
    loop_defer_stop(runs->loop, &runs->evict);
    loop_timer_stop(runs->loop, &runs->starve);
    loop_timer_stop(runs->loop, &runs->again);
    pipes_done(&runs->pipes);
    queue_done(&runs->queue);
    while (runs->oldest != NULL) {
        struct run *run = runs->oldest;
        runs->oldest = run->newer;
        run_keep_drop(run);
        if (runs_is_kept(run))
            accounts_budget_leave(&run->hold);
        run_free(run);
    }
    redo_close(&runs->redo);
    bodies_done(&runs->bodies);
    fd_close(&runs->results);
}

void runs_log(struct runs *runs, const struct run *run, const struct err *err) {
    struct log_line line;
    log_begin(&line, runs->log, LOG_WARN, "run_trouble");
    log_str(&line, "run", run->id);
    log_str(&line, "why", err->text);
    log_end(&line);
}

/* The table. */

static uint32_t runs_hash(const char *id) {
    return str_hash(id, strlen(id)) % RUNS_BUCKETS;
}

struct run *runs_find(const struct runs *runs, const char *id) {
    for (struct run *run = runs->buckets[runs_hash(id)]; run != NULL; run = run->hash_next)
        if (strcmp(run->id, id) == 0)
            return run;
    return NULL;
}

static int runs_random(struct runs *runs, unsigned char *byte, struct err *err) {
    if (runs->random_left == 0) {
        if (getrandom(runs->random, sizeof(runs->random), 0) != (ssize_t)sizeof(runs->random))
            return err_sys(err, "naming a run");
        runs->random_left = sizeof(runs->random);
    }
    *byte = runs->random[--runs->random_left];
    return 0;
}

/* "run_" and 24 of [a-z0-9]: the time, so that ids sort by age and newer rows of the store lie side
 * by side, then 72 bits that nobody can guess. */
int runs_name(struct runs *runs, struct run *run, struct err *err) {
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char *id = run->id;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    if (us <= runs->last_us)
        us = runs->last_us + 1;
    runs->last_us = us;
    memcpy(id, "run_", 4);
    for (size_t i = RUNS_ID_TIME; i > 0; i--, us /= 36)
        id[3 + i] = alphabet[us % 36];
    size_t n = RUNS_ID_TIME;
    while (n < RUNS_ID_CHARS) {
        unsigned char byte = 0;
        if (runs_random(runs, &byte, err) < 0) {
            id[0] = '\0';
            return -1;
        }
        if (byte < 252) /* 7 * 36: no letter is more likely than another */
            id[4 + n++] = alphabet[byte % 36];
    }
    id[4 + n] = '\0';
    return 0;
}

static void runs_insert(struct runs *runs, struct run *run) {
    struct run **bucket = &runs->buckets[runs_hash(run->id)];
    run->hash_next = *bucket;
    *bucket = run;
    run->older = runs->newest;
    run->newer = NULL;
    if (runs->newest != NULL)
        runs->newest->newer = run;
    else
        runs->oldest = run;
    runs->newest = run;
    runs->count++;
    trace_index_add(&runs->by_trace, run);
}

static void runs_remove(struct runs *runs, struct run *run) {
    trace_index_remove(&runs->by_trace, run);
    struct run **at = &runs->buckets[runs_hash(run->id)];
    while (*at != run)
        at = &(*at)->hash_next;
    *at = run->hash_next;
    if (run->newer != NULL)
        run->newer->older = run->older;
    else
        runs->newest = run->older;
    if (run->older != NULL)
        run->older->newer = run->newer;
    else
        runs->oldest = run->newer;
    runs->count--;
}

/* Dispatch. */

static struct run *runs_of_node(struct queue_node *node) {
    return (struct run *)(void *)((char *)node - offsetof(struct run, queued));
}

/* What comes out of jails that end lets waiting runs of the same tokens and of the same user look
 * again: one of each, which lets the next one out when it starts. */
static void runs_let_out(struct runs *runs, struct accounts_token *token) {
    for (; token != NULL; token = token->parent)
        queue_open(&runs->queue, token->use.gate);
}

void runs_quota_freed(void *arg, const char *user, struct accounts_token *token) {
    struct runs *runs = arg;
    runs_let_out(runs, token);
    queue_go_on(&runs->queue, user);
    runs_room(runs);
}

/* False: it waits for its user's or its token's own quota, and is out of the others' way. */
static bool runs_has_quota(struct runs *runs, struct run *run) {
    const uint64_t *limits = run->limits.values.v;
    struct accounts_token *token;
    const struct quota_use *use = quota_in_the_way(runs->quota, &run->held, limits[LIMIT_MEM_BYTES],
                                                   limits[LIMIT_DISK_BYTES], &token);
    if (use == NULL)
        return true;
    if (token == NULL || queue_hold(&runs->queue, &run->queued, &token->use.gate, NULL) < 0)
        queue_aside(&runs->queue, &run->queued);
    return false;
}

/* 1: there is memory for it. 0: there is not, it is out of the others' way, and smaller ones may
 * pass. -1: others must not pass any more, or it would wait for ever: what runs now will end and
 * make room. */
static int runs_has_memory(struct runs *runs, struct run *run) {
    uint64_t limit = run->limits.values.v[LIMIT_MEM_BYTES], now = clock_mono_ns();
    if (hostmem_fits(runs->mem, limit))
        return 1;
    if (run->mem_wait_ns == 0)
        run->mem_wait_ns = now;
    if (now - run->mem_wait_ns > RUNS_PASS_MS * CLOCK_NS_PER_MS &&
        hostmem_fits_later(runs->mem, limit))
        return -1;
    queue_aside(&runs->queue, &run->queued);
    return 0;
}

static void runs_charge(struct runs *runs, struct run *run) {
    hostmem_take(runs->mem, &run->mem, run->limits.values.v[LIMIT_MEM_BYTES], false);
    quota_take(runs->quota, &run->held, QUOTA_PARALLEL, 1);
    quota_hold(runs->quota, &run->output_held, run->held.token, run->owner);
    quota_take_output(runs->quota, &run->output_held);
    quota_take(runs->quota, &run->held, QUOTA_MEM_BYTES, run->limits.values.v[LIMIT_MEM_BYTES]);
    quota_take(runs->quota, &run->held, QUOTA_DISK_BYTES, run->limits.values.v[LIMIT_DISK_BYTES]);
}

static void runs_launch(struct runs *runs, struct run *run, struct link *link) {
    queue_take(&runs->queue, &run->queued);
    runs_charge(runs, run);
    runs_let_out(runs, run->held.token);
    runs->active++;
    metrics_observe(&runs->metrics->queue_wait, clock_mono_ns() - run->created_ns);
    run->phase = RUN_STEP;
    run_start(run, link);
}

/* Ends a run that can never start, with our fault as the cause. */
static void runs_give_up(struct runs *runs, struct run *run, const char *stage) {
    struct step_end end;
    queue_remove(&runs->queue, &run->queued);
    end_init(&end, CAUSE_INTERNAL);
    str_copy(end.stage, sizeof(end.stage), stage);
    run_abort(run, &end);
}

static void runs_starved(void *arg) {
    struct runs *runs = arg;
    if (links_first_ready(runs->links) != NULL || runs->closed)
        return;
    for (struct queue_node *node; (node = queue_any(&runs->queue)) != NULL;)
        runs_give_up(runs, runs_of_node(node), "runner");
}

static void runs_dispatch(void *arg) {
    struct runs *runs = arg;
    struct queue_node *node;
    unsigned held = 0;
    while (runs->active < runs->options.active_max && !runs->closed &&
           (node = queue_next(&runs->queue)) != NULL) {
        struct run *run = runs_of_node(node);
        bool known = false;
        const struct links_wish wish = {run->policy.name, run->policy.sha256, run->backend};
        struct link *link = links_pick(runs->links, &wish, &known);
        if (link == NULL && !known && links_first_ready_of(runs->links, run->backend) != NULL) {
            runs_give_up(runs, run, "policy"); /* it changed while the run waited */
            continue;
        }
        int there = link == NULL ? -1 : !runs_has_quota(runs, run) ? 0 : runs_has_memory(runs, run);
        if (there > 0 && run_store_launch(run) < 0) {
            queue_aside(&runs->queue, node); /* until run_store_again() */
            there = 0;
        }
        if (there > 0)
            runs_launch(runs, run, link);
        else if (there < 0 || ++held == RUNS_HELD_MAX)
            break;
    }
    if (held == RUNS_HELD_MAX)
        runs_room(runs);
    if (runs->queue.count == 0 || links_first_ready(runs->links) != NULL)
        loop_timer_stop(runs->loop, &runs->starve);
    else if (runs->starve.slot == 0)
        loop_timer_at(runs->loop, &runs->starve, clock_mono_ns() + RUNS_STARVE_MS * CLOCK_NS_PER_MS,
                      runs_starved, runs, NULL);
}

void runs_go_on(void *arg) {
    struct runs *runs = arg;
    queue_go_on(&runs->queue, NULL);
    runs_room(runs);
}

void runs_room(struct runs *runs) {
    if (runs->queue.count > 0)
        loop_defer(runs->loop, &runs->dispatch, runs_dispatch, runs);
}

bool runs_may_queue(const struct runs *runs, size_t bytes) {
    return queue_fits(&runs->queue, "", 1, bytes) == QUEUE_ROOM;
}

static enum queue_lane runs_lane(enum request_priority priority) {
    switch (priority) {
    case REQUEST_PRIORITY_HIGH:
        return QUEUE_HIGH;
    case REQUEST_PRIORITY_LOW:
        return QUEUE_LOW;
    default:
        return QUEUE_NORMAL;
    }
}

static int runs_enqueue(struct runs *runs, struct run *run, struct err *err) {
    struct queue_entry entry = {.user = run->owner,
                                .weight = run->token != NULL ? run->token->user->weight : 0,
                                .lane = runs_lane(run->request.priority),
                                .bytes = run->request.bytes};
    return queue_push(&runs->queue, &run->queued, &entry, err);
}

void runs_unqueue(struct runs *runs, struct run *run) {
    queue_remove(&runs->queue, &run->queued);
}

int runs_add(struct runs *runs, struct run *run, const char *owner, struct err *err) {
    if (run->id[0] == '\0' && runs_name(runs, run, err) < 0)
        return -1;
    str_copy(run->owner, sizeof(run->owner), owner);
    if (runs_enqueue(runs, run, err) < 0)
        return -1;
    if (run->store.told && run_store_tell(run, err) < 0) {
        runs_unqueue(runs, run);
        return -1;
    }
    quota_hold(runs->quota, &run->held, run->token, owner);
    quota_take_run(runs->quota, &run->held);
    runs_insert(runs, run);
    runs->metrics->runs_accepted++;
    seen_run_accepted(runs, run);
    /* At once, not in the next round: this is the path that is measured. */
    runs_dispatch(runs);
    return 0;
}

size_t runs_unfinished(const struct runs *runs) {
    return (runs->closed ? 0 : runs->queue.count) + runs->active + runs->sealing;
}

bool runs_is_kept(const struct run *run) {
    return run->runs->closed && run->phase == RUN_QUEUED;
}

void runs_close(struct runs *runs, bool keep) {
    runs->closed = true;
    for (struct run *run = runs->newest; run != NULL; run = run->older) {
        if (run->phase != RUN_QUEUED)
            continue;
        /* One that ends with its caller's connection has nobody any more. */
        if (keep && run->store.told && !run->cancel_on_disconnect)
            run_tell(run, true);
        else
            run_cancel(run, CAUSE_CANCELLED);
    }
}

void runs_cancel_all(struct runs *runs, enum cause cause) {
    for (struct run *run = runs->newest; run != NULL; run = run->older)
        run_cancel(run, cause);
}

void runs_cancel_some(struct runs *runs, bool (*is_meant)(void *arg, const struct run *run),
                      void *arg) {
    for (struct run *run = runs->newest; run != NULL; run = run->older)
        if (run->phase != RUN_DONE && is_meant(arg, run))
            run_cancel(run, CAUSE_CANCELLED);
}

/* Finished runs. */

static size_t runs_measure(const struct run *run) {
    size_t bytes = sizeof(*run) + run->step_count * sizeof(*run->steps) +
                   events_memory(&run->events) + run->bundle.cap +
                   run->file_count * sizeof(*run->files) +
                   (run->receipt != NULL ? strlen(run->receipt) : 0);
    for (size_t i = 0; i < run->step_count; i++)
        bytes +=
            capture_memory(&run->steps[i].out.capture) + capture_memory(&run->steps[i].err.capture);
    return bytes;
}

static void runs_evict_one(struct runs *runs, struct run *run) {
    if (run->done_prev != NULL)
        run->done_prev->done_next = run->done_next;
    else
        runs->done_oldest = run->done_next;
    if (run->done_next != NULL)
        run->done_next->done_prev = run->done_prev;
    else
        runs->done_newest = run->done_prev;
    runs->done_count--;
    runs->done_bytes -= run->memory;
    runs_remove(runs, run);
    run->evicted = true;
    if (runs->store == NULL)
        run_keep_drop(run);
    if (run->pins == 0)
        run_free(run);
}

/* Later, not while the run that has just finished is being worked on. */
static void runs_evict(void *arg) {
    struct runs *runs = arg;
    while (runs->done_count > runs->options.keep_count ||
           (runs->done_bytes > runs->options.keep_bytes && runs->done_count > 0))
        runs_evict_one(runs, runs->done_oldest);
}

void runs_forget(struct runs *runs, const char *id) {
    struct run *run = runs_find(runs, id);
    if (run != NULL && run->phase == RUN_DONE && run->store.stored)
        runs_evict_one(runs, run);
}

void runs_grown(struct run *run, size_t bytes) {
    struct runs *runs = run->runs;
    if (run->phase != RUN_DONE || run->evicted)
        return;
    run->memory += bytes;
    runs->done_bytes += bytes;
    loop_defer(runs->loop, &runs->evict, runs_evict, runs);
}

void runs_count_end(struct runs *runs, enum cause cause) {
    runs->metrics->ends[cause]++;
}

void runs_rest(struct runs *runs) {
    while (runs->store != NULL && runs->done_bytes > RUNS_REST_BYTES && runs->done_count > 0)
        runs_evict_one(runs, runs->done_oldest);
}

/* CPU time of all steps so far. */
static uint64_t runs_cpu_ns(const struct run *run) {
    uint64_t ns = 0;
    for (size_t i = 0; i < run->step_count; i++)
        if (run->steps[i].has_usage)
            ns += run->steps[i].usage.cpu_user_ns + run->steps[i].usage.cpu_system_ns;
    return ns;
}

/* Rounded up. */
uint64_t runs_cpu_ms(const struct run *run) {
    return (runs_cpu_ns(run) + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
}

void runs_started(struct runs *runs, struct run *run) {
    if (runs->processors != NULL)
        processors_busy(runs->processors, &run->processors, run->owner,
                        run->token != NULL ? run->token->user->weight : 0, &run->jail);
}

void runs_over(struct runs *runs, struct run *run) {
    if (runs->processors != NULL)
        processors_rest(runs->processors, &run->processors, runs_cpu_ns(run));
    seen_run_ended(runs, run);
    accounts_budget_settle(&run->hold, runs_cpu_ms(run));
    runs->sealing++;
    if (run->dispatched_ns != 0) {
        queue_ended(&runs->queue, &run->queued,
                    (clock_mono_ns() - run->dispatched_ns) / CLOCK_NS_PER_MS);
        runs->active--;
    }
    quota_let_go(runs->quota, &run->held);
    hostmem_give(runs->mem, &run->mem);
    if (run->setup_ns != 0)
        metrics_observe(&runs->metrics->setup, run->setup_ns);
    for (size_t i = 0; i < run->step_count; i++)
        if (run->steps[i].has_usage)
            metrics_observe(&runs->metrics->step_wall, run->steps[i].usage.wall_ns);
    runs_room(runs);
}

void runs_finished(struct runs *runs, struct run *run) {
    runs->sealing--;
    quota_let_go(runs->quota, &run->output_held);
    if (!run->store.unsaved)
        runs_cache(runs, run);
}

void runs_put(struct runs *runs, struct run *run) {
    runs_insert(runs, run);
    if (run->phase == RUN_DONE && !run->store.unsaved)
        runs_cache(runs, run);
}

int runs_requeue(struct runs *runs, struct run *run, struct err *err) {
    run->created_ns = clock_mono_ns();
    if (runs_enqueue(runs, run, err) < 0)
        return -1;
    quota_hold(runs->quota, &run->held, run->token, run->owner);
    quota_take(runs->quota, &run->held, QUOTA_RUNS, 1);
    runs_insert(runs, run);
    return 0;
}

void runs_kept(struct runs *runs, const char *user, int64_t count, int64_t bytes) {
    quota_add_user(runs->quota, user, QUOTA_RESULT_BYTES, bytes);
    if (runs->retain != NULL)
        retain_count(runs->retain, count, bytes);
}

void runs_cache(struct runs *runs, struct run *run) {
    run->memory = runs_measure(run);
    run->done_prev = runs->done_newest;
    run->done_next = NULL;
    if (runs->done_newest != NULL)
        runs->done_newest->done_next = run;
    else
        runs->done_oldest = run;
    runs->done_newest = run;
    runs->done_count++;
    runs->done_bytes += run->memory;
    loop_defer(runs->loop, &runs->evict, runs_evict, runs);
}

void runs_pin(struct run *run) {
    run->pins++;
}

void runs_unpin(struct run *run) {
    if (--run->pins == 0 && run->evicted)
        run_free(run);
}
