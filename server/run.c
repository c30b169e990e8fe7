#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admit.h"
#include "answer.h"
#include "clock.h"
#include "packet.h"
#include "receipt_run.h"
#include "runs.h"
#include "str.h"

/* A runner that has not reported the end of a step this long after the step's own wall-clock limit
 * (making the jail included) hangs; the connection is ended, which kills the jail. */
#define RUN_WATCHDOG_MS 60000u
/* After END nobody holds the pipes any more, so their end is there at once; should it not be, what
 * has come by then is what there is. */
#define RUN_DRAIN_MS 1000u
/* A step that is over before this needs no watching of its pipes: what they hold is read at its
 * END. That saves four system calls and a wake-up, which is a good part of what a short run costs.
 */
#define RUN_LISTEN_NS (2 * CLOCK_NS_PER_MS)
/* Collecting has a time and a CPU limit of its own. */
#define RUN_COLLECT_MS 30000u

static void run_finish(struct run *run);

/* Making and freeing. */

static void run_stream_clear(struct run_stream *s) {
    s->fd = -1;
    s->source.fd = -1;
}

int run_init_steps(struct run *run, size_t count) {
    run->steps = calloc(count, sizeof(*run->steps));
    if (run->steps == NULL)
        return -1;
    run->step_count = count;
    for (size_t i = 0; i < count; i++) {
        run_stream_clear(&run->steps[i].out);
        run_stream_clear(&run->steps[i].err);
        end_init(&run->steps[i].end, CAUSE_NONE);
    }
    return 0;
}

static int run_make_steps(struct run *run, const struct run_request *req,
                          const struct admit *admit) {
    if (run_init_steps(run, req->step_count) < 0)
        return -1;
    for (size_t i = 0; i < req->step_count; i++) {
        struct run_step *step = &run->steps[i];
        step->name = strdup(req->steps[i].name);
        if (step->name == NULL)
            return -1;
        step->merged = req->steps[i].merge_stderr;
        step->continue_on_error = req->steps[i].continue_on_error;
        step->limits = admit->steps[i];
    }
    return 0;
}

/* The jail's time limits only bound those of its steps; collecting is one more step. */
static void run_make_time_for_collect(struct run *run) {
    static const enum limit_id ids[] = {LIMIT_WALL_MS, LIMIT_CPU_MS};
    if (run->request.collect_count == 0)
        return;
    for (size_t i = 0; i < 2; i++) {
        uint64_t ceiling = run->policy.ceiling.v[ids[i]];
        uint64_t want = ceiling < RUN_COLLECT_MS ? ceiling : RUN_COLLECT_MS;
        if (run->open.v[ids[i]] < want)
            run->open.v[ids[i]] = want;
    }
}

struct run *run_blank(struct runs *runs) {
    struct run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return NULL;
    run->runs = runs;
    run_stream_clear(&run->collector);
    events_init(&run->events);
    return run;
}

struct run *run_new(struct runs *runs, struct run_request *request,
                    const struct wire_policy *policy, const struct admit *admit, struct err *err) {
    struct run *run = run_blank(runs);
    if (run == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "making a run: out of memory");
        return NULL;
    }
    if (run_make_steps(run, request, admit) < 0 || run_collect_room(run, request) < 0 ||
        (request->keep_steps && run_keep_new(run) < 0)) {
        run_free(run);
        err_set(err, ERR_SYSTEM, ENOMEM, "making a run: out of memory");
        return NULL;
    }
    run->policy = *policy;
    run->backend = request->backend != BACKEND_NONE ? request->backend : BACKEND_NATIVE;
    str_copy(run->image, sizeof(run->image), request->image);
    trace_label_request(run->label, request);
    run->limits = admit->run;
    run->held.output_bytes = admit_output(admit->steps, run->step_count);
    run->output_held.output_bytes = run->held.output_bytes;
    run->open = admit->open;
    run->end_on = admit->end_on;
    run->cancel_on_disconnect = request->cancel_on_disconnect;
    run->created_ms = clock_real_ms();
    run->created_ns = clock_mono_ns();
    run->request = *request;
    memset(request, 0, sizeof(*request));
    run_make_time_for_collect(run);
    return run;
}

void run_free(struct run *run) {
    if (run == NULL)
        return;
    run_store_stop(run);
    if (run->dispatched_ns != 0)
        accounts_budget_settle(&run->hold, runs_cpu_ms(run));
    else
        accounts_budget_release(&run->hold);
    for (size_t i = 0; i < run->step_count; i++) {
        struct run_step *step = &run->steps[i];
        run_io_close(&step->out);
        run_io_close(&step->err);
    }
    run_keep_free(run);
    run_io_close(&run->collector);
    loop_timer_stop(run->runs->loop, &run->watchdog);
    loop_timer_stop(run->runs->loop, &run->drain);
    loop_timer_stop(run->runs->loop, &run->listen);
    loop_timer_stop(run->runs->loop, &run->resume);
    while (run->watchers != NULL)
        run_unwatch(run->watchers);
    run_drop_output(run);
    free(run->files);
    events_done(&run->events);
    run_drop_request(run);
    free(run->trace_state);
    run_drop_inputs(run);
    free(run->receipt);
    answer_bytes_drop(run->answer);
    quota_let_go(run->runs->quota, &run->held);
    quota_let_go(run->runs->quota, &run->output_held);
    hostmem_give(run->runs->mem, &run->mem);
    accounts_token_unref(run->token);
    free(run);
}

/* Steps. */

static void run_internal_end(struct step_end *end, const char *stage, int code) {
    end_init(end, CAUSE_INTERNAL);
    str_copy(end->stage, sizeof(end->stage), stage);
    end->code = code;
}

static void run_jail_failed(struct run *run, const char *stage, int code, const char *text);

/* A process that the kernel does not let die may hold its jail up for as long as it likes, and
 * nothing else; of a runner that hangs, its supervisor takes care. */
static void run_hangs(void *arg) {
    struct run *run = arg;
    if (run->jail != NULL) {
        link_close_jail(run->jail);
        run_jail_failed(run, "wait", ETIMEDOUT, "a step did not end in time");
    }
}

static void run_arm_watchdog(struct run *run, uint64_t wall_ms) {
    uint64_t due = clock_mono_ns() + (wall_ms + RUN_WATCHDOG_MS) * CLOCK_NS_PER_MS;
    loop_timer_at(run->runs->loop, &run->watchdog, due, run_hangs, run, NULL);
}

static void run_listen(void *arg) {
    struct run *run = arg;
    run_io_watch(&run->steps[run->current].out);
    run_io_watch(&run->steps[run->current].err);
}

static void run_listen_soon(struct run *run) {
    if (loop_timer_at(run->runs->loop, &run->listen, clock_mono_ns() + RUN_LISTEN_NS, run_listen,
                      run, NULL) < 0)
        run_listen(run);
}

static void run_send_step(struct run *run, const struct wire_open *open) {
    size_t index = run->current;
    struct run_step *step = &run->steps[index];
    struct err err;
    err_clear(&err);
    step->state = RUN_STEP_RUNNING;
    run_store_progress(run);
    events_add(&run->events, EVENTS_STARTED, (uint16_t)index, NULL);
    if (run_exec_step(run, index, open, &err) < 0) {
        struct step_end end;
        if (open != NULL) {
            link_abandon(run->jail);
            run->jail = NULL;
        }
        run_internal_end(&end, "server", err.code);
        runs_log(run->runs, run, &err);
        run_abort(run, &end);
        return;
    }
    run_listen_soon(run);
    run_arm_watchdog(run, step->limits.values.v[LIMIT_WALL_MS]);
    run_notify(run);
}

static void run_begin_step(struct run *run, size_t index, const struct wire_open *open) {
    run->current = index;
    unsigned files = index == 0 && run->keep == NULL ? PACKET_FILES : 0u;
    if (!run_pack_begin(run, PACKET_INPUT | files, open, run_send_step))
        run_send_step(run, open);
}

/* With the snapshot in front of it, if one is to be kept. */
static void run_next_step(struct run *run, size_t index) {
    run->current = index;
    if (run->keep != NULL && run_keep_before(run, index))
        run_arm_watchdog(run, 0);
    else
        run_begin_step(run, index, NULL);
}

static void run_skip_rest(struct run *run) {
    for (size_t i = run->current + 1; i < run->step_count; i++) {
        run->steps[i].state = RUN_STEP_SKIPPED;
        events_add(&run->events, EVENTS_SKIPPED, (uint16_t)i, NULL);
    }
}

static void run_begin_collect(struct run *run) {
    struct err err;
    err_clear(&err);
    run->phase = RUN_COLLECT;
    if (run_exec_collect(run, &err) < 0) {
        runs_log(run->runs, run, &err);
        run->collect_error = "internal";
        run_io_close(&run->collector);
        run_finish(run);
        return;
    }
    run_io_watch(&run->collector);
    run_arm_watchdog(run, run->open.v[LIMIT_WALL_MS]);
}

/* The current step is over in every respect. */
static void run_step_over(struct run *run) {
    struct run_step *step = &run->steps[run->current];
    loop_timer_stop(run->runs->loop, &run->drain);
    loop_timer_stop(run->runs->loop, &run->listen);
    loop_timer_stop(run->runs->loop, &run->resume);
    loop_timer_stop(run->runs->loop, &run->watchdog);
    capture_finish(&step->out.capture);
    capture_finish(&step->err.capture);
    step->state = RUN_STEP_DONE;
    step->ok = end_ok(&step->end);
    runs_count_end(run->runs, step->end.cause);
    events_add(&run->events, EVENTS_END, (uint16_t)run->current, NULL);
    run->ended_ns = clock_mono_ns();
    bool go_on = (step->ok || step->continue_on_error) && !run->stop && run->cancel == CAUSE_NONE &&
                 run->jail != NULL;
    if (go_on && run->current + 1 < run->step_count) {
        run_next_step(run, run->current + 1);
        return;
    }
    run_skip_rest(run);
    if (run->request.collect_count == 0) {
        run_finish(run);
    } else if (run->stop || run->jail == NULL || run->cancel != CAUSE_NONE) {
        run->collect_error = run->cancel != CAUSE_NONE ? "cancelled" : "interrupted";
        run_finish(run);
    } else {
        run_begin_collect(run);
    }
}

static void run_drained(void *arg) {
    struct run *run = arg;
    if (run->phase == RUN_COLLECT) {
        run_io_close(&run->collector);
    } else {
        run_io_end(&run->steps[run->current].out);
        run_io_end(&run->steps[run->current].err);
    }
    run_settle(run);
}

/* A pipe that waits for a follower is not late, so its time starts anew. */
static void run_arm_drain(struct run *run) {
    if (run->drain.slot != 0)
        return;
    uint64_t due = clock_mono_ns() + RUN_DRAIN_MS * CLOCK_NS_PER_MS;
    loop_timer_at(run->runs->loop, &run->drain, due, run_drained, run, NULL);
}

void run_settle(struct run *run) {
    if (run->phase == RUN_COLLECT) {
        if (!run->collect_ended)
            return;
        if (run->collector.fd >= 0) {
            run_arm_drain(run);
            return;
        }
        run_finish(run);
        return;
    }
    if (run->phase != RUN_STEP)
        return;
    struct run_step *step = &run->steps[run->current];
    if (!step->ended)
        return;
    if (step->out.paused || step->err.paused) {
        loop_timer_stop(run->runs->loop, &run->drain);
        return;
    }
    if (step->out.fd >= 0 || step->err.fd >= 0) {
        run_arm_drain(run);
        return;
    }
    if (run_io_behind(run))
        return;
    run_step_over(run);
}

/* What the runner says. */

static void run_spent(struct run *run, const struct wire_usage *u) {
    quota_spent(run->runs->quota, run->held.user, run->held.token,
                u->cpu_user_ns + u->cpu_system_ns);
}

static void run_on_collected(struct run *run, const struct wire_end *wire) {
    bool well = wire->cause == CAUSE_EXIT && wire->exit_code == 0;
    run->collect_ended = true;
    if (!well && run->collect_error == NULL)
        run->collect_error = run->cancel != CAUSE_NONE       ? "cancelled"
                             : wire->cause == CAUSE_INTERNAL ? "internal"
                                                             : "interrupted";
    run_settle(run);
}

/* The files are in place; or this is the end of the first step, which needs them. */
static void run_on_prepared(struct run *run, const struct wire_end *wire) {
    struct run_step *step = &run->steps[0];
    struct step_end end;
    if (!run_keep_prepared(run, wire)) {
        link_fail(run->jail, "an end came for what was not running");
        return;
    }
    run->setup_ns = wire->setup_ns;
    loop_timer_stop(run->runs->loop, &run->watchdog);
    bool started = wire->cause != CAUSE_START || strcmp(wire->stage, "files") != 0;
    if ((wire->cause == CAUSE_EXIT || wire->cause == CAUSE_START) && started) {
        run_next_step(run, 0);
        return;
    }
    step->usage = wire->usage;
    step->has_usage = true;
    run_end_of_wire(step, wire, &end);
    run_abort(run, &end);
}

static void run_on_done(void *owner, const struct wire_done *done) {
    struct run *run = owner;
    struct step_end end;
    if (run->keep == NULL || !run_keep_done(run, done)) {
        link_fail(run->jail, "an answer came for what was not asked");
        return;
    }
    loop_timer_stop(run->runs->loop, &run->watchdog);
    if (run->cancel == CAUSE_NONE) {
        run_begin_step(run, run->current, NULL);
        return;
    }
    end_init(&end, run->cancel);
    run_abort(run, &end);
}

static void run_on_ended(void *owner, const struct wire_end *wire) {
    struct run *run = owner;
    run_spent(run, &wire->usage);
    if (run->keep != NULL && run_keep_waits(run)) {
        run_on_prepared(run, wire);
        return;
    }
    if (run->phase == RUN_COLLECT && wire->head.exec == run->step_count && !run->collect_ended) {
        run_on_collected(run, wire);
        return;
    }
    struct run_step *step = &run->steps[run->current];
    if (run->phase != RUN_STEP || wire->head.exec != run->current || step->ended) {
        link_fail(run->jail, "an end came for what was not running");
        return;
    }
    step->ended = true;
    step->usage = wire->usage;
    step->has_usage = true;
    if (run->current == 0) {
        run->setup_ns += wire->setup_ns;
        run->begun_ns = run->keep != NULL ? clock_mono_ns() - wire->usage.wall_ns
                                          : run->dispatched_ns + wire->setup_ns;
    }
    run_io_drain(&step->out);
    run_io_drain(&step->err);
    run_end_of_wire(step, wire, &step->end);
    if (wire->cause == CAUSE_INTERNAL)
        run->stop = true;
    run_settle(run);
}

/* Collecting is cut off; the steps have their ends already. */
static void run_collect_lost(struct run *run, const char *why) {
    run->collect_error = why;
    run_io_close(&run->collector);
    run_finish(run);
}

static void run_jail_failed(struct run *run, const char *stage, int code, const char *text) {
    struct step_end end;
    struct err err;
    run->jail = NULL;
    err_set(&err, ERR_STATE, code, "the jail failed (%s): %s", stage, text);
    runs_log(run->runs, run, &err);
    if (run->phase == RUN_COLLECT) {
        run_collect_lost(run, "internal");
        return;
    }
    run_internal_end(&end, stage, code);
    if (!run_pack_over(run, &end))
        run_abort(run, &end);
}

static void run_on_failed(void *owner, const struct wire_failed *failed) {
    run_jail_failed(owner, failed->stage, failed->code, failed->text);
}

static void run_on_lost(void *owner) {
    struct run *run = owner;
    struct step_end end;
    run->jail = NULL;
    if (run->phase == RUN_COLLECT) {
        run_collect_lost(run, "interrupted");
        return;
    }
    end_init(&end, CAUSE_INTERRUPTED);
    if (!run_pack_over(run, &end))
        run_abort(run, &end);
}

static const struct link_jail_ops run_jail_ops = {
    .ended = run_on_ended, .failed = run_on_failed, .lost = run_on_lost, .done = run_on_done};

/* The run as a whole. */

static void run_prepare(struct run *run, const struct wire_open *open) {
    struct step_end end;
    struct err err;
    err_clear(&err);
    if (run_keep_first(run, open, &err) == 0) {
        run_arm_watchdog(run, run->open.v[LIMIT_WALL_MS]);
        return;
    }
    link_abandon(run->jail);
    run->jail = NULL;
    run_internal_end(&end, "server", err.code);
    runs_log(run->runs, run, &err);
    run_abort(run, &end);
}

void run_start(struct run *run, struct link *link) {
    struct wire_open open;
    memset(&open, 0, sizeof(open));
    str_copy(open.policy, sizeof(open.policy), run->policy.name);
    str_copy(open.image, sizeof(open.image), run->image);
    memcpy(open.image_sha256, run->image_sha256, sizeof(open.image_sha256));
    open.limits = run->open;
    open.network = WIRE_NETWORK_NONE;
    run->jail = link_open_jail(link, &run_jail_ops, run);
    runs_started(run->runs, run);
    run->phase = RUN_STEP;
    run->dispatched_ns = clock_mono_ns();
    if (warm_share_start(&run->runs->links->warm, run->owner, run->dispatched_ns))
        open.flags = WIRE_OPEN_MODEST;
    if (run->runs->processors != NULL &&
        processors_opens_left(run->runs->processors, &run->processors, run->owner))
        open.flags |= WIRE_OPEN_LEFT;
    if (run->keep != NULL) {
        open.disk = link->welcome.disk; /* what can be kept there */
        if (!run_pack_begin(run, PACKET_FILES, &open, run_prepare))
            run_prepare(run, &open);
    } else
        run_begin_step(run, 0, &open);
}

void run_abort(struct run *run, const struct step_end *end) {
    struct run_step *step = &run->steps[run->current];
    runs_unqueue(run->runs, run);
    run->phase = RUN_STEP;
    run->stop = true;
    if (!step->ended) {
        step->ended = true;
        step->end = *end;
    }
    /* What was written before is kept; nobody waits for more. */
    run_io_drain(&step->out);
    run_io_drain(&step->err);
    run_io_end(&step->out);
    run_io_end(&step->err);
    run_step_over(run);
}

void run_cancel(struct run *run, enum cause cause) {
    struct step_end end;
    if (run->phase >= RUN_SEAL || run->cancel != CAUSE_NONE)
        return;
    run->cancel = cause;
    if (run->phase == RUN_QUEUED) {
        end_init(&end, cause);
        run_abort(run, &end);
    } else if (run_pack_waits(run)) {
        return; /* a moment: nothing was sent that could be killed */
    } else if (run->jail != NULL && run->phase == RUN_COLLECT) {
        link_kill(run->jail, (uint32_t)run->step_count, cause);
    } else if (run->jail != NULL && run->keep != NULL && run_keep_waits(run)) {
        run_keep_cancel(run, cause);
    } else if (run->jail != NULL && !run->steps[run->current].ended) {
        link_kill(run->jail, (uint32_t)run->current, cause);
    }
}

static void run_finish(struct run *run) {
    struct link_jail *jail = run->jail;
    run->phase = RUN_SEAL;
    run->jail = NULL;
    run_keep_stop(run);
    loop_timer_stop(run->runs->loop, &run->drain);
    loop_timer_stop(run->runs->loop, &run->watchdog);
    run_collect_parse(run);
    run->ok = true;
    for (size_t i = 0; i < run->step_count; i++)
        run->ok = run->ok && run->steps[i].ok;
    run_drop_request(run);
    free(run->trace_state);
    run->trace_state = NULL;
    runs_over(run->runs, run);
    run_seal(run);
    if (jail != NULL)
        link_close_jail(jail);
}

void run_sealed(struct run *run) {
    events_add(&run->events, EVENTS_DONE, 0, NULL);
    run_store_end(run);
}

void run_settled(struct run *run) {
    run->phase = RUN_DONE;
    runs_finished(run->runs, run);
    run_tell(run, true);
}
