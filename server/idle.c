#include "idle.h"

#include <malloc.h>
#include <stdlib.h>

#include "clock.h"
#include "server.h"
#include "work.h"

#define IDLE_NS (500 * CLOCK_NS_PER_MS)

static void idle_trim(struct work_job *job) {
    free(job);
    (void)malloc_trim(0);
}

static void idle_due(void *arg);

static void idle_set(struct idle *r) {
    r->asked = false;
    loop_timer_at(r->server->loop, &r->timer, clock_mono_ns() + IDLE_NS, idle_due, r, NULL);
}

static void idle_due(void *arg) {
    struct idle *r = arg;
    struct server *s = r->server;
    if (r->asked || s->runs.active > 0) {
        idle_set(r);
        return;
    }
    runs_rest(&s->runs);
    store_rest(s->store);
    /* Where there were large requests it takes milliseconds. */
    struct work_job *job = work_has_threads(s->work) ? calloc(1, sizeof(*job)) : NULL;
    if (job == NULL) {
        (void)malloc_trim(0);
        return;
    }
    job->run = idle_trim;
    work_add(s->work, job);
}

void idle_init(struct idle *r, struct server *s) {
    *r = (struct idle){.server = s};
}

void idle_later(struct idle *r) {
    r->asked = true;
    if (r->server != NULL && r->timer.slot == 0)
        idle_set(r);
}

void idle_stop(struct idle *r) {
    if (r->server != NULL)
        loop_timer_stop(r->server->loop, &r->timer);
    r->server = NULL;
}
