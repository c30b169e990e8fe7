/* Looks at what goes on in the jails, for /v1/top and /metrics: the runners are asked when somebody
 * wants to know, and not while nobody does. Who asks again soon, or meanwhile, shares the look. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "links.h"
#include "loop.h"

#define LOOK_FRESH_MS 400u    /* as good as new */
#define LOOK_PATIENCE_MS 250u /* a runner that has not answered by then is left out */

/* Embedded in its owner. */
struct look_wait {
    struct look_wait *next, *prev;
    void (*fn)(struct look_wait *w);
    uint32_t what;
    bool waiting;
};

struct look {
    struct loop *loop; /* borrowed, as is links */
    struct links *links;
    struct look_wait *first;
    struct loop_timer patience;
    uint64_t kinds_ms, jails_ms; /* when each was known last; monotonic, 0 = never */
};

void look_init(struct look *k, struct loop *loop, struct links *links);
void look_stop(struct look *k);
/* `what`: mask of enum wire_look_what. True: it is known already. False: w->fn(w) is called when it
 * is, unless look_forget() was. */
bool look_ask(struct look *k, struct look_wait *w, uint32_t what);
void look_forget(struct look *k, struct look_wait *w);
/* A runner has answered. */
void look_heard(struct look *k);
