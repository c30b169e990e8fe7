/* An event loop: epoll for descriptors, a heap for timers. One thread owns it.
 *
 * Sources and timers are embedded in their owner's struct; the loop borrows them between add and
 * del. Removing any source or timer from within any callback is allowed: an event that was already
 * fetched for a removed source is not delivered. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct loop;

struct loop_source {
    int fd; /* -1 = not in the loop */
    void (*fn)(void *arg, uint32_t events);
    void *arg;
};

struct loop_timer {
    uint64_t due_ns; /* CLOCK_MONOTONIC; valid while armed */
    void (*fn)(void *arg);
    void *arg;
    size_t slot; /* heap index + 1; 0 = not armed */
};

struct loop *loop_new(struct err *err);
void loop_free(struct loop *loop); /* NULL allowed */

/* Watches `fd` (borrowed) for EPOLL* `events`; fills *src. */
int loop_add(struct loop *loop, struct loop_source *src, int fd, uint32_t events,
             void (*fn)(void *arg, uint32_t events), void *arg, struct err *err);
int loop_mod(struct loop *loop, struct loop_source *src, uint32_t events, struct err *err);
/* Stops watching; idempotent; does not close the descriptor. To be called before that is closed: by
 * then its number may be another source's, which is left alone. */
void loop_del(struct loop *loop, struct loop_source *src);

/* Arms (or re-arms) a timer at an absolute monotonic time. fn runs once. Fails only on ENOMEM. */
int loop_timer_at(struct loop *loop, struct loop_timer *t, uint64_t due_ns, void (*fn)(void *arg),
                  void *arg, struct err *err);
void loop_timer_stop(struct loop *loop, struct loop_timer *t); /* idempotent */

/* Work to do once after the events of the current round (idempotent while pending). */
struct loop_defer {
    void (*fn)(void *arg);
    void *arg;
    struct loop_defer *next;
    bool pending;
};
void loop_defer(struct loop *loop, struct loop_defer *d, void (*fn)(void *arg), void *arg);
/* As loop_defer(), but in front of all deferred work of the round: after its events and timers, for
 * what the deferred work (answers that leave) must come after. */
void loop_defer_first(struct loop *loop, struct loop_defer *d, void (*fn)(void *arg), void *arg);
/* Takes it back: its owner is going away. Idempotent. */
void loop_defer_stop(struct loop *loop, struct loop_defer *d);

/* Runs until loop_stop(). */
int loop_run(struct loop *loop, struct err *err);
/* One round: waits at most `max_wait_ns` (UINT64_MAX = until something happens). */
int loop_once(struct loop *loop, uint64_t max_wait_ns, struct err *err);
void loop_stop(struct loop *loop);

/* *rounds is counted up when a round has been woken and when its work is done: it is odd while
 * there is work, and stays the same as long as somebody holds the loop up. Others may look at it.
 */
void loop_rounds(struct loop *loop, uint64_t *rounds);

/* After each round: how long everybody else had to wait for it. */
void loop_watch(struct loop *loop, void (*fn)(void *arg, uint64_t ns), void *arg);
