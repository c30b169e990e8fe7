#include "drain.h"

#include "clock.h"
#include "config.h"
#include "http.h"
#include "log.h"
#include "server.h"

/* After the grace time, jails are killed; the answers then have this long to leave. */
#define DRAIN_KILL_MS 5000u
/* After a second SIGTERM. */
#define DRAIN_AT_ONCE_MS 500u
#define DRAIN_FLUSH_MS 1000u

static void drain_stop(void *arg) {
    struct drain *d = arg;
    loop_stop(d->server->loop);
}

static void drain_until(struct drain *d, uint64_t ms, void (*then)(void *arg)) {
    loop_timer_at(d->server->loop, &d->timer, clock_mono_ns() + ms * CLOCK_NS_PER_MS, then, d,
                  NULL);
}

/* Nothing runs any more. */
static void drain_flush(void *arg) {
    struct drain *d = arg;
    if (d->stage != DRAIN_FLUSHING) {
        d->stage = DRAIN_FLUSHING;
        drain_until(d, DRAIN_FLUSH_MS, drain_stop);
    }
    if (http_in_flight(d->server->http) == 0)
        drain_stop(d);
}

/* No request is open any more. */
static void drain_quiet(void *arg) {
    struct drain *d = arg;
    if (d->stage == DRAIN_FLUSHING)
        drain_stop(d);
}

static void drain_end(struct drain *d, uint64_t ms) {
    d->stage = DRAIN_ENDING;
    drain_until(d, ms, drain_stop);
    runs_cancel_all(&d->server->runs, CAUSE_INTERRUPTED);
}

static void drain_late(void *arg) {
    drain_end(arg, DRAIN_KILL_MS);
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

static void drain_begin(struct drain *d) {
    struct server *s = d->server;
    drain_log(d, "draining");
    d->stage = DRAIN_DRAINING;
    s->draining = true;
    s->runs.idle = drain_flush;
    s->runs.idle_arg = d;
    s->quiet = drain_quiet;
    s->quiet_arg = d;
    drain_until(d, s->config->grace_ms, drain_late);
    runs_cancel_queued(&s->runs);
    if (runs_unfinished(&s->runs) == 0)
        drain_flush(d);
}

void drain_init(struct drain *d, struct server *s) {
    *d = (struct drain){.server = s};
}

void drain_signal(struct drain *d) {
    if (d->stage == DRAIN_NOT) {
        drain_begin(d);
        return;
    }
    drain_log(d, "stopping_at_once");
    if (d->stage == DRAIN_DRAINING)
        drain_end(d, DRAIN_AT_ONCE_MS);
    else
        loop_stop(d->server->loop);
}

void drain_done(struct drain *d) {
    if (d->server != NULL && d->server->loop != NULL)
        loop_timer_stop(d->server->loop, &d->timer);
}
