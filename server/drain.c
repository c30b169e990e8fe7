#include "drain.h"

#include "api_error.h"
#include "clock.h"
#include "config.h"
#include "http.h"
#include "log.h"
#include "server.h"

#define DRAIN_LOOK_MS 10u
/* After the grace time jails are killed, which takes this long at most; then the answers have … */
#define DRAIN_KILL_MS 5000u
#define DRAIN_LEAVE_MS 1000u
/* … and those of who waited in vain. After a second SIGTERM everything has only this. */
#define DRAIN_REFUSE_MS 300u

static void drain_until(struct drain *d, enum drain_stage stage, uint64_t ms) {
    d->stage = stage;
    d->due_ns = clock_mono_ns() + ms * CLOCK_NS_PER_MS;
}

static void drain_log(const struct drain *d, const char *event) {
    struct server *s = d->server;
    struct log_line line;
    log_begin(&line, &s->log, LOG_INFO, event);
    log_u64(&line, "queued", s->runs.queue.count);
    log_u64(&line, "running", s->runs.active);
    log_u64(&line, "sandboxes_left_to_runner",
            s->sandboxes.states[SANDBOX_READY] + s->sandboxes.states[SANDBOX_PAUSED]);
    log_u64(&line, "requests", http_in_flight(s->http));
    log_end(&line);
}

static void drain_refuse(struct drain *d) {
    struct api_error error = {0};
    api_error_set(&error, 503, "draining", NULL,
                  "The server stops. What was asked for may still happen: look for it at the next "
                  "server.");
    http_refuse_waiting(d->server->http, &error);
    drain_until(d, DRAIN_REFUSING, DRAIN_REFUSE_MS);
}

/* The next stage, if this one is over. True: all of them are. */
static bool drain_step(struct drain *d) {
    struct server *s = d->server;
    bool late = clock_mono_ns() >= d->due_ns;
    bool idle = runs_unfinished(&s->runs) == 0, quiet = http_owed(s->http) == 0;
    switch (d->stage) {
    case DRAIN_NOT:
        return false;
    case DRAIN_DRAINING:
        if (idle && quiet) {
            drain_until(d, DRAIN_LEAVING, d->leave_ms);
        } else if (late) {
            drain_log(d, "grace_is_over");
            runs_cancel_all(&s->runs, CAUSE_INTERRUPTED);
            drain_until(d, DRAIN_ENDING, DRAIN_KILL_MS);
        }
        return false;
    case DRAIN_ENDING:
        if (idle || late)
            drain_until(d, DRAIN_LEAVING, d->leave_ms);
        return false;
    case DRAIN_LEAVING:
        if (late && !quiet)
            drain_refuse(d);
        return late ? quiet : http_in_flight(s->http) == 0;
    case DRAIN_REFUSING:
        return quiet || late;
    }
    return true;
}

static void drain_look(void *arg) {
    struct drain *d = arg;
    struct server *s = d->server;
    if (drain_step(d))
        loop_stop(s->loop);
    else
        loop_timer_at(s->loop, &d->timer, clock_mono_ns() + DRAIN_LOOK_MS * CLOCK_NS_PER_MS,
                      drain_look, d, NULL);
}

static void drain_begin(struct drain *d) {
    struct server *s = d->server;
    struct api_error error = {0};
    drain_log(d, "draining");
    s->draining = true;
    drain_until(d, DRAIN_DRAINING, s->config->grace_ms);
    http_close_soon(s->http);
    runs_close(&s->runs, s->runs.store != NULL && s->config->queued_on_stop == CONFIG_QUEUED_KEEP);
    api_error_set(&error, 503, "draining", NULL,
                  "The server is about to stop and takes no new work.");
    sandboxes_refuse_queued(&s->sandboxes, &error);
    drain_look(d);
}

void drain_init(struct drain *d, struct server *s) {
    *d = (struct drain){.server = s, .leave_ms = DRAIN_LEAVE_MS};
}

void drain_signal(struct drain *d) {
    if (d->stage == DRAIN_NOT) {
        drain_begin(d);
        return;
    }
    drain_log(d, "stopping_at_once");
    if (d->leave_ms != DRAIN_LEAVE_MS) {
        loop_stop(d->server->loop);
        return;
    }
    d->leave_ms = DRAIN_REFUSE_MS;
    runs_cancel_all(&d->server->runs, CAUSE_INTERRUPTED);
    drain_until(d, DRAIN_ENDING, DRAIN_REFUSE_MS);
}

void drain_done(struct drain *d) {
    if (d->server != NULL && d->server->loop != NULL)
        loop_timer_stop(d->server->loop, &d->timer);
}
