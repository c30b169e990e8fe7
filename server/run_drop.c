#include <stdlib.h>
#include <string.h>

#include "receipt_run.h"
#include "run.h"
#include "runs.h"
#include "work.h"

/* What of a run is not needed any more. */
struct run_drop {
    struct work_job job;
    struct run_request request;
    struct receipt_inputs *inputs;
    struct run_step *steps;
    size_t step_count;
    struct buf bundle;
};

static void run_drop_steps(struct run_step *steps, size_t count) {
    for (size_t i = 0; i < count; i++) {
        capture_done(&steps[i].out.capture);
        capture_done(&steps[i].err.capture);
        free(steps[i].name);
    }
    free(steps);
}

static void run_drop_run(struct work_job *job) {
    struct run_drop *d = (struct run_drop *)(void *)job;
    request_done(&d->request);
    receipt_inputs_free(d->inputs);
    run_drop_steps(d->steps, d->step_count);
    buf_done(&d->bundle);
    free(d);
}

/* NULL: it is little, there is nobody to do it, or no memory for it. */
static struct run_drop *run_drop_new(const struct run *run, size_t bytes) {
    if (bytes <= RUN_DROP_INLINE || run->runs->work == NULL)
        return NULL;
    struct run_drop *d = calloc(1, sizeof(*d));
    if (d != NULL)
        d->job.run = run_drop_run;
    return d;
}

void run_drop_request(struct run *run) {
    struct run_drop *d = run_drop_new(run, run->request.bytes);
    if (d == NULL) {
        request_done(&run->request);
        return;
    }
    d->request = run->request;
    memset(&run->request, 0, sizeof(run->request));
    work_add(run->runs->work, &d->job);
}

void run_drop_inputs(struct run *run) {
    struct run_drop *d = run->inputs != NULL ? run_drop_new(run, run->inputs->text.len) : NULL;
    if (d != NULL) {
        d->inputs = run->inputs;
        work_add(run->runs->work, &d->job);
    } else {
        receipt_inputs_free(run->inputs);
    }
    run->inputs = NULL;
}

void run_drop_output(struct run *run) {
    size_t bytes = run->bundle.cap;
    for (size_t i = 0; i < run->step_count; i++)
        bytes +=
            capture_memory(&run->steps[i].out.capture) + capture_memory(&run->steps[i].err.capture);
    struct run_drop *d = run_drop_new(run, bytes);
    if (d != NULL) {
        d->steps = run->steps;
        d->step_count = run->step_count;
        d->bundle = run->bundle;
        work_add(run->runs->work, &d->job);
    } else {
        run_drop_steps(run->steps, run->step_count);
        buf_done(&run->bundle);
    }
}
