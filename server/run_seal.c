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

static void run_seal_over(struct run *run) {
    if (run->runs->audit != NULL)
        audit_run_ended(run->runs->audit, run);
    receipt_inputs_free(run->inputs);
    run->inputs = NULL;
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

void run_seal(struct run *run) {
    struct runs *runs = run->runs;
    struct err err;
    err_clear(&err);
    if (runs->key != NULL && run->inputs != NULL) {
        if (runs->work != NULL && receipt_run_weight(run) > RECEIPT_RUN_INLINE &&
            run_seal_by_worker(run))
            return;
        if (receipt_run_make(run, runs->key, &err) < 0)
            runs_log(runs, run, &err);
    }
    run_seal_over(run);
}
