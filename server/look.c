#include "look.h"

#include "clock.h"

void look_init(struct look *k, struct loop *loop, struct links *links) {
    *k = (struct look){.loop = loop, .links = links};
}

void look_stop(struct look *k) {
    if (k->loop != NULL)
        loop_timer_stop(k->loop, &k->patience);
}

void look_forget(struct look *k, struct look_wait *w) {
    if (!w->waiting)
        return;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        k->first = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->waiting = false;
}

/* What no runner is being asked for any more is known; `late`: it is not waited for any longer. */
static void look_tell(struct look *k, bool late) {
    uint32_t asked = 0;
    for (size_t i = 0; i < k->links->count && !late; i++)
        asked |= k->links->items[i]->look.what | k->links->items[i]->look.again;
    struct look_wait *next;
    for (struct look_wait *w = k->first; w != NULL; w = next) {
        next = w->next;
        if (w->what & asked)
            continue;
        uint64_t now = clock_mono_ms();
        if (w->what & WIRE_LOOK_KINDS)
            k->kinds_ms = now;
        if (w->what & WIRE_LOOK_JAILS)
            k->jails_ms = now;
        look_forget(k, w);
        w->fn(w);
        next = k->first; /* the next one may have left meanwhile */
    }
    if (k->first == NULL)
        loop_timer_stop(k->loop, &k->patience);
}

void look_heard(struct look *k) {
    look_tell(k, false);
}

static void look_late(void *arg) {
    look_tell(arg, true);
}

static bool look_fresh(uint64_t known_ms, uint64_t now) {
    return known_ms != 0 && now - known_ms < LOOK_FRESH_MS;
}

bool look_ask(struct look *k, struct look_wait *w, uint32_t what) {
    uint64_t now = clock_mono_ms();
    bool ready = false;
    if (look_fresh(k->kinds_ms, now))
        what &= ~(uint32_t)WIRE_LOOK_KINDS;
    if (look_fresh(k->jails_ms, now))
        what &= ~(uint32_t)WIRE_LOOK_JAILS;
    for (size_t i = 0; i < k->links->count && what != 0; i++) {
        link_look(k->links->items[i], what);
        ready = ready || k->links->items[i]->look.what != 0;
    }
    if (!ready)
        return true;
    w->what = what;
    w->waiting = true;
    w->prev = NULL;
    w->next = k->first;
    if (w->next != NULL)
        w->next->prev = w;
    k->first = w;
    if (k->patience.slot == 0)
        loop_timer_at(k->loop, &k->patience, clock_mono_ns() + LOOK_PATIENCE_MS * CLOCK_NS_PER_MS,
                      look_late, k, NULL);
    return false;
}
