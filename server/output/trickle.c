#include "trickle.h"

bool trickle_pauses(struct trickle *t, struct loop *loop, struct loop_source *source, bool little,
                    void (*again)(void *arg), void *arg) {
    uint64_t now = clock_mono_ns(), last = t->read_ns;
    t->read_ns = now;
    if (!little || last == 0 || now - last >= TRICKLE_SOON_NS ||
        loop_timer_at(loop, &t->timer, now + TRICKLE_PAUSE_NS, again, arg, NULL) < 0)
        return false;
    loop_del(loop, source);
    return true;
}

void trickle_stop(struct trickle *t, struct loop *loop) {
    loop_timer_stop(loop, &t->timer);
}
