#include "sandbox_internal.h"

static void sandbox_wait_add(struct sandbox *sb, struct sandbox_wait *w, bool closed) {
    w->sandbox = sb;
    w->closed = closed;
    w->prev = NULL;
    w->next = sb->live->waits;
    if (w->next != NULL)
        w->next->prev = w;
    sb->live->waits = w;
}

void sandbox_wait_open(struct sandbox *sb, struct sandbox_wait *w) {
    sandbox_wait_add(sb, w, false);
}

bool sandbox_wait_closed(struct sandbox *sb, struct sandbox_wait *w) {
    if (sb->live == NULL || (sb->state == SANDBOX_GONE && !sb->live->closing))
        return true;
    sandbox_wait_add(sb, w, true);
    return false;
}

void sandbox_wait_stop(struct sandbox_wait *w) {
    struct sandbox *sb = w->sandbox;
    if (sb == NULL)
        return;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        sb->live->waits = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->sandbox = NULL;
}

/* fn() may take other waits off the list, and frees its own: so it begins anew each time. */
void sandbox_wait_tell(struct sandbox *sb, bool closed, const struct api_error *why) {
    struct sandbox_wait *w = sb->live->waits;
    while (w != NULL) {
        if (w->closed != closed) {
            w = w->next;
            continue;
        }
        sandbox_wait_stop(w);
        w->fn(w, why);
        w = sb->live->waits;
    }
}
