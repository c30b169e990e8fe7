#include <stdlib.h>

#include "clock.h"
#include "packet.h"
#include "run.h"
#include "runs.h"
#include "work.h"

struct run_pack {
    struct work_job job;
    struct run *run; /* pinned; its request stays until the worker is done with it */
    size_t index;    /* of the step whose stdin it is */
    unsigned what;   /* mask of enum packet_part */
    bool made;       /* the worker is done */
    bool opens;      /* … and its jail is not there yet: */
    struct wire_open open;
    void (*then)(struct run *run, const struct wire_open *open);
    bool over; /* the jail went meanwhile: it ends like this */
    struct step_end end;
    struct packet_parts parts;
};

static void run_pack_make(struct work_job *job) {
    struct run_pack *p = (struct run_pack *)(void *)job;
    packet_parts_make(&p->parts, &p->run->request, p->index, p->what);
}

/* What had to wait for the worker. */
static void run_pack_go_on(struct run *run, struct run_pack *p) {
    if (!p->over && run->cancel == CAUSE_NONE) {
        if (p->opens)
            run->dispatched_ns = clock_mono_ns(); /* only now is it sent */
        p->then(run, p->opens ? &p->open : NULL);
        return;
    }
    if (run->jail != NULL && p->opens) {
        link_abandon(run->jail);
        run->jail = NULL;
    }
    if (!p->over)
        end_init(&p->end, run->cancel);
    run_abort(run, &p->end);
}

static void run_pack_made(struct work_job *job) {
    struct run_pack *p = (struct run_pack *)(void *)job;
    struct run *run = p->run;
    p->made = true;
    run_pack_go_on(run, p);
    run->pack = NULL;
    packet_parts_done(&p->parts);
    free(p);
    runs_unpin(run);
}

bool run_pack_begin(struct run *run, unsigned what, const struct wire_open *open,
                    void (*then)(struct run *run, const struct wire_open *open)) {
    const struct run_request *r = &run->request;
    /* A small one costs one comparison. */
    if (r->bytes <= PACKET_INLINE || run->runs->work == NULL ||
        packet_parts_weight(r, run->current, what) <= PACKET_INLINE)
        return false;
    struct run_pack *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return false;
    p->job = (struct work_job){.run = run_pack_make, .done = run_pack_made};
    p->run = run;
    p->index = run->current;
    p->what = what;
    p->then = then;
    p->opens = open != NULL;
    if (open != NULL)
        p->open = *open;
    packet_parts_init(&p->parts);
    run->pack = p;
    runs_pin(run);
    work_add(run->runs->work, &p->job);
    return true;
}

bool run_pack_waits(const struct run *run) {
    return run->pack != NULL && !run->pack->made;
}

bool run_pack_over(struct run *run, const struct step_end *end) {
    if (!run_pack_waits(run))
        return false;
    run->pack->over = true;
    run->pack->end = *end;
    return true;
}

struct packet_parts *run_pack_parts(struct run *run) {
    return run->pack != NULL ? &run->pack->parts : NULL;
}
