#include <stdlib.h>

#include "audit.h"
#include "receipt_run.h"
#include "run.h"
#include "runs.h"
#include "work.h"

/* A run whose outputs are hashed by a worker. */
struct run_seal_job {
    struct work_job job;
    struct run *run; /* pinned */
    struct err err;
    int rc;
};

static void run_seal_record(struct run *run) {
    if (run->runs->audit != NULL)
        audit_run_ended(run->runs->audit, run);
    run_drop_inputs(run);
}

static void run_seal_over(struct run *run) {
    run_seal_record(run);
    run_sealed(run);
}

static void run_seal_run(struct work_job *job) {
    struct run_seal_job *j = (struct run_seal_job *)(void *)job;
    j->rc = receipt_run_make(j->run, j->run->runs->key, &j->err);
}

static void run_seal_done(struct work_job *job) {
    struct run_seal_job *j = (struct run_seal_job *)(void *)job;
    struct run *run = j->run;
    if (j->rc < 0)
        runs_log(run->runs, run, &j->err);
    free(j);
    run_seal_over(run);
    runs_unpin(run);
}

static bool run_seal_by_worker(struct run *run) {
    struct run_seal_job *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return false;
    j->job = (struct work_job){.run = run_seal_run, .done = run_seal_done};
    j->run = run;
    runs_pin(run);
    work_add(run->runs->work, &j->job);
    return true;
}

static void run_seal_make(struct run *run) {
    struct err err;
    err_clear(&err);
    if (run->runs->key != NULL && run->inputs != NULL &&
        receipt_run_make(run, run->runs->key, &err) < 0)
        runs_log(run->runs, run, &err);
}

void run_seal(struct run *run) {
    struct runs *runs = run->runs;
    if (runs->key != NULL && run->inputs != NULL && runs->work != NULL &&
        receipt_run_weight(run) > RECEIPT_RUN_INLINE && run_seal_by_worker(run))
        return;
    run_seal_make(run);
    run_seal_over(run);
}

void run_seal_here(struct run *run) {
    run_seal_make(run);
    run_seal_record(run);
}

int run_seal_accept_again(struct run *run) {
    if (run->runs->audit == NULL || run->inputs == NULL)
        return 0;
    struct audit_asked asked;
    struct api_error error;
    audit_record_run(&asked, run);
    asked.op = "again";
    return audit_accepted(run->runs->audit, &asked, &run->accepted, &error);
}
