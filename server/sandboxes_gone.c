/* Those that are gone are remembered for a while. */
#include "clock.h"
#include "fd.h"
#include "sandbox_internal.h"

/* So long after the end, and again, it is tried to make them small: what waits for the runner, for
 * the store or for a reader is over by then, mostly. */
#define SANDBOXES_GONE_SHRINK_MS 200u

static void sandboxes_gone_forget_old(void *arg) {
    struct sandboxes *s = arg;
    uint64_t now = clock_real_ms();
    while (s->gone_oldest != NULL) {
        struct sandbox *sb = s->gone_oldest;
        if ((s->gone_count <= SANDBOXES_GONE_MAX && sb->gone_ms + s->gone_ms > now) ||
            (sb->live != NULL && sb->live->holds > 0))
            break;
        s->gone_oldest = sb->gone_next;
        if (s->gone_oldest == NULL)
            s->gone_newest = NULL;
        s->gone_count--;
        sandboxes_forget(s, sb);
    }
    if (s->gone_oldest == NULL)
        return;
    uint64_t due = s->gone_oldest->gone_ms + s->gone_ms;
    uint64_t left = due > now ? due - now : 0;
    loop_timer_at(s->loop, &s->forget, clock_mono_ns() + left * CLOCK_NS_PER_MS + CLOCK_NS_PER_S,
                  sandboxes_gone_forget_old, s, NULL);
}

static void sandboxes_gone_shrink(void *arg);

static void sandboxes_gone_shrink_later(struct sandboxes *s) {
    loop_timer_at(s->loop, &s->shrink, clock_mono_ns() + SANDBOXES_GONE_SHRINK_MS * CLOCK_NS_PER_MS,
                  sandboxes_gone_shrink, s, NULL);
}

static void sandboxes_gone_shrink(void *arg) {
    struct sandboxes *s = arg;
    struct sandbox **at = &s->large;
    while (*at != NULL) {
        struct sandbox *next = (*at)->live->large_next;
        if (sandbox_shrink(*at))
            *at = next;
        else
            at = &(*at)->live->large_next;
    }
    if (s->large != NULL)
        sandboxes_gone_shrink_later(s);
}

void sandboxes_gone_forget(struct sandboxes *s, const struct sandbox *sb) {
    if (sb->live == NULL || !sb->live->large)
        return;
    struct sandbox **at = &s->large;
    while (*at != sb)
        at = &(*at)->live->large_next;
    *at = sb->live->large_next;
}

void sandboxes_gone_bury(struct sandboxes *s, struct sandbox *sb) {
    sb->gone_next = NULL;
    if (s->gone_newest != NULL)
        s->gone_newest->gone_next = sb;
    else
        s->gone_oldest = sb;
    s->gone_newest = sb;
    s->gone_count++;
    if (s->forget.slot == 0 || s->gone_count > SANDBOXES_GONE_MAX)
        loop_timer_at(s->loop, &s->forget, clock_mono_ns() + CLOCK_NS_PER_MS,
                      sandboxes_gone_forget_old, s, NULL);
    if (sb->live == NULL)
        return;
    sb->live->large = true;
    sb->live->large_next = s->large;
    s->large = sb;
    if (s->shrink.slot == 0)
        sandboxes_gone_shrink_later(s);
}

void sandboxes_gone(struct sandboxes *s, struct sandbox *sb) {
    struct err err;
    err_clear(&err);
    if (sandbox_store_write(sb, &err) < 0)
        log_err(s->log, LOG_ERROR, "sandbox_not_written", &err);
    if (s->options.gone != NULL)
        s->options.gone(s->options.arg, sb);
    quota_let_go(s->quota, &sb->live->held);
    hostmem_give(s->mem, &sb->live->mem);
    sandbox_spec_done(&sb->live->spec);
    fd_close(&sb->live->dir);
    if (sb->live->stored)
        sandbox_store_remove(s, sb->id);
    sb->live->stored = false;
    sandboxes_gone_bury(s, sb);
}
