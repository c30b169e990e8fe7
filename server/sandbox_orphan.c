/* File operations that an earlier server started. They end by themselves: the end of their stdin is
 * there, and nobody reads what they say. One that was about to put a sync into its place does so,
 * or takes it back, within milliseconds; killed in the middle it would leave half of it. */
#include <stdlib.h>

#include "clock.h"
#include "fd.h"
#include "sandbox_internal.h"

/* One that does not end hangs. */
#define SANDBOX_ORPHAN_MS 30000u

struct sandbox_orphan {
    struct sandbox_task task;
    struct loop *loop;
    struct loop_timer timer;
};

static void sandbox_orphan_free(struct sandbox_task *t) {
    struct sandbox_orphan *o = (struct sandbox_orphan *)(void *)t;
    loop_timer_stop(o->loop, &o->timer);
    free(o);
}

static void sandbox_orphan_started(struct sandbox_task *t, int master) {
    (void)t;
    fd_close(&master);
}

static void sandbox_orphan_ended(struct sandbox_task *t, const struct wire_end *end) {
    (void)end;
    sandbox_orphan_free(t);
}

static void sandbox_orphan_lost(struct sandbox_task *t, enum cause cause) {
    (void)cause;
    sandbox_orphan_free(t);
}

static const struct sandbox_task_ops sandbox_orphan_ops = {
    .started = sandbox_orphan_started, .ended = sandbox_orphan_ended, .lost = sandbox_orphan_lost};

static void sandbox_orphan_late(void *arg) {
    struct sandbox_orphan *o = arg;
    sandbox_task_kill(&o->task, CAUSE_INTERRUPTED);
}

int sandbox_orphan_adopt(struct sandbox *sb, uint32_t number) {
    struct sandbox_orphan *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return -1;
    o->task.ops = &sandbox_orphan_ops;
    o->loop = sandbox_loop(sb);
    loop_timer_at(o->loop, &o->timer, clock_mono_ns() + SANDBOX_ORPHAN_MS * CLOCK_NS_PER_MS,
                  sandbox_orphan_late, o, NULL);
    sandbox_task_adopt(sb, &o->task, number);
    return 0;
}
