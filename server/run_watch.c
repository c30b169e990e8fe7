#include "clock.h"
#include "events.h"
#include "run.h"
#include "runs.h"

void run_watch(struct run *run, struct run_watcher *w) {
    w->run = run;
    w->prev = NULL;
    w->next = run->watchers;
    if (w->next != NULL)
        w->next->prev = w;
    run->watchers = w;
    run->pins++;
    w->progress_ms = clock_mono_ms();
}

/* How far into the two streams of the current step it has come follows from the first events that
 * it has not read. */
void run_follow(struct run *run, struct run_watcher *w, uint64_t after) {
    const struct run_step *step = &run->steps[run->current];
    bool found[2] = {false, false};
    w->follows = true;
    w->after = after;
    w->step = (uint16_t)run->current;
    w->offset[0] = step->out.recorded;
    w->offset[1] = step->err.recorded;
    const struct events_record *r;
    for (uint64_t seq = after; !(found[0] && found[1]); seq = r->seq) {
        r = events_after(&run->events, seq);
        if (r == NULL)
            break;
        if (r->step != run->current) {
            w->offset[0] = 0;
            w->offset[1] = 0;
            break;
        }
        int stream = r->type == EVENTS_STDOUT ? 0 : r->type == EVENTS_STDERR ? 1 : -1;
        if (stream >= 0 && !found[stream]) {
            w->offset[stream] = r->offset;
            found[stream] = true;
        }
    }
    run_watch(run, w);
}

void run_unwatch(struct run_watcher *w) {
    struct run *run = w->run;
    if (run == NULL)
        return;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        run->watchers = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->run = NULL;
    if (w->follows)
        run_io_resume(run);
    runs_unpin(run);
}

/* `changed` may take its own watcher off, and no other. */
void run_tell(struct run *run, bool all) {
    struct run_watcher *next;
    for (struct run_watcher *w = run->watchers; w != NULL; w = next) {
        next = w->next;
        if (all || w->follows)
            w->changed(w);
    }
}

void run_notify(struct run *run) {
    run_tell(run, false);
}
