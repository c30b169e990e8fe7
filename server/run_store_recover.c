/* What an earlier server has left unfinished. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "receipt_run.h"
#include "results.h"
#include "run.h"
#include "run_record.h"
#include "run_store.h"
#include "runs.h"
#include "str.h"

#define RUN_STORE_BODY_MAX ((size_t)256 * 1024 * 1024)

struct run_store_recovery {
    struct runs *runs;
    const struct run_store_options *options;
    uint64_t interrupted, queued, lost;
};

/* The step that it was at is interrupted, the later ones are skipped. What had ended before stays.
 */
static void run_store_interrupt(struct run *run) {
    bool found = false;
    for (size_t i = 0; i < run->step_count; i++) {
        struct run_step *step = &run->steps[i];
        if (step->state == RUN_STEP_DONE || step->state == RUN_STEP_SKIPPED)
            continue;
        if (found) {
            step->state = RUN_STEP_SKIPPED;
            events_add(&run->events, EVENTS_SKIPPED, (uint16_t)i, NULL);
            continue;
        }
        found = true;
        step->state = RUN_STEP_DONE;
        step->ended = true;
        end_init(&step->end, CAUSE_INTERRUPTED);
        run->current = i;
        runs_count_end(run->runs, CAUSE_INTERRUPTED);
        events_add(&run->events, EVENTS_END, (uint16_t)i, NULL);
    }
    run->ok = false;
    if (run->ended_ns == 0)
        run->ended_ns = run->begun_ns > run->created_ns ? run->begun_ns : run->created_ns;
    run->phase = RUN_SEAL;
    events_add(&run->events, EVENTS_DONE, 0, NULL);
}

/* Gives it its request again. -1: it cannot be had. */
static int run_store_ask_again(struct run *run, const struct store_run_found *found) {
    struct runs *runs = run->runs;
    struct buf body;
    struct api_error error = {0};
    struct err err;
    char file[STORE_RUNS_FILE_SIZE] = "";
    if (!found->has_input)
        return -1;
    buf_init(&body, RUN_STORE_BODY_MAX);
    int rc = store_runs_get_input(runs->store, found->input, &body, file, &err) == 1 ? 0 : -1;
    if (rc == 0 && file[0] != '\0')
        rc = results_read(runs->results, file, &body, &err);
    if (rc == 0)
        rc = request_decode(body.data != NULL ? body.data : "", body.len, &run->request, &error);
    buf_done(&body);
    if (rc == 0 && run->request.step_count != run->step_count)
        rc = -1;
    if (rc == 0 && run->request.keep_steps && run->keep == NULL)
        rc = run_keep_new(run);
    if (rc == 0)
        run->inputs = receipt_inputs_new(&run->request);
    return run->inputs != NULL ? 0 : -1;
}

/* Who asked for it may not be allowed to any more. Its budget has counted the run already. */
static int run_store_find_token(const struct run_store_recovery *r, struct run *run) {
    struct accounts_token *t = accounts_token_find(r->options->accounts, run->store.token);
    uint64_t cpu_ms = 0;
    bool also_running;
    if (t == NULL || accounts_is_withdrawn(t->user, t, &also_running))
        return -1;
    for (size_t i = 0; i < run->step_count; i++)
        cpu_ms += run->steps[i].limits.values.v[LIMIT_CPU_MS];
    accounts_budget_again(t, cpu_ms, &run->hold);
    run->token = accounts_token_ref(t);
    return 0;
}

static void run_store_take(struct run_store_recovery *r, struct run *run,
                           const struct store_run_found *found) {
    struct err err;
    err_clear(&err);
    run->store.told = true;
    run->store.seq = found->seq;
    run->store.has_input = found->has_input;
    memcpy(run->store.input, found->input, sizeof(run->store.input));
    run->store.round = UINT64_MAX; /* its row is of an earlier transaction */
    /* Also one that is over now has a receipt, which speaks of what was asked for. */
    bool asked = run_store_ask_again(run, found) == 0;
    if (asked && found->state == STORE_RUN_QUEUED && r->options->keep_queued &&
        run_store_find_token(r, run) == 0 && run_seal_accept_again(run) == 0 &&
        runs_requeue(r->runs, run, &err) == 0) {
        r->queued++;
        return;
    }
    run_store_interrupt(run);
    run_seal_here(run);
    if (run_store_write_now(run, &err) < 0)
        runs_log(r->runs, run, &err);
    r->interrupted++;
    run_free(run);
}

static int run_store_recover_one(struct run_store_recovery *r, const char *user, const char *id,
                                 struct err *err) {
    struct runs *runs = r->runs;
    struct store_run_found found;
    if (runs_find(runs, id) != NULL)
        return 0; /* it is over: the redo log had it */
    if (store_runs_get(runs->store, user, id, &found, err) <= 0)
        return -1;
    /* Of a run that is not over, the record is never in a file. */
    struct run *run = run_record_read(runs, found.record.data, found.record.len, err);
    buf_done(&found.record);
    if (run != NULL) {
        run_store_take(r, run, &found);
        return 0;
    }
    struct store_run_old old = {.seq = found.seq};
    str_copy(old.user, sizeof(old.user), user);
    str_copy(old.id, sizeof(old.id), id);
    r->lost++;
    return store_runs_drop(runs->store, &old, 0, err);
}

static void run_store_recovered(const struct run_store_recovery *r) {
    struct log_line line;
    if (r->interrupted + r->queued + r->lost == 0)
        return;
    log_begin(&line, r->runs->log, LOG_INFO, "runs_of_an_earlier_server");
    log_u64(&line, "queued_again", r->queued);
    log_u64(&line, "interrupted", r->interrupted);
    log_u64(&line, "unreadable", r->lost);
    log_end(&line);
}

int run_store_recover(struct runs *runs, const struct run_store_options *options, struct err *err) {
    struct run_store_recovery r = {.runs = runs, .options = options};
    char user[STORE_RUNS_NAME_SIZE], id[STORE_RUNS_NAME_SIZE] = "";
    int rc;
    while ((rc = store_runs_next_open(runs->store, id, user, id, err)) > 0)
        if (run_store_recover_one(&r, user, id, err) < 0)
            return -1;
    run_store_recovered(&r);
    return rc < 0 ? -1 : store_commit_now(runs->store, err);
}
