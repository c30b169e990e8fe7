#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

#define LOOP_BATCH 128

/* A first-in-first-out list of deferred work. */
struct loop_queue {
    struct loop_defer *first, *last;
};

struct loop {
    int epoll;
    bool stop;
    bool coarse; /* the kernel has no epoll_pwait2 */
    struct epoll_event events[LOOP_BATCH];
    int fetched;              /* how many of events[] this round has */
    int at;                   /* the one being delivered */
    struct loop_timer **heap; /* the earliest first; heap[i]->slot == i + 1 */
    size_t timers, room;
    struct loop_source **watches;          /* by descriptor: whose it is; NULL = nobody's */
    size_t numbers;                        /* room for as many descriptors */
    uint64_t *rounds;                      /* NULL = nobody looks */
    struct loop_queue first;               /* deferred, in front of all others */
    struct loop_queue later;               /* deferred, not yet begun */
    struct loop_queue ready;               /* being worked off */
    void (*watch)(void *arg, uint64_t ns); /* NULL = nobody wants to know */
    void *watch_arg;
};

struct loop *loop_new(struct err *err) {
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop) {
        err_sys(err, "cannot make an event loop");
        return NULL;
    }
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll < 0) {
        err_sys(err, "cannot make an epoll descriptor");
        free(loop);
        return NULL;
    }
    return loop;
}

void loop_free(struct loop *loop) {
    if (!loop)
        return;
    fd_close(&loop->epoll);
    free(loop->heap);
    free(loop->watches);
    free(loop);
}

/* Descriptors. */

static bool loop_numbers(struct loop *loop, size_t least) {
    size_t numbers = loop->numbers ? loop->numbers : 64;
    while (numbers < least)
        numbers *= 2;
    if (numbers == loop->numbers)
        return true;
    struct loop_source **more = realloc(loop->watches, numbers * sizeof *more);
    if (!more)
        return false;
    memset(more + loop->numbers, 0, (numbers - loop->numbers) * sizeof *more);
    loop->watches = more;
    loop->numbers = numbers;
    return true;
}

/* False: its descriptor was closed without loop_del(), and the number may be another source's. */
static bool loop_watches(const struct loop *loop, const struct loop_source *src) {
    return src->fd >= 0 && (size_t)src->fd < loop->numbers && loop->watches[src->fd] == src;
}

int loop_add(struct loop *loop, struct loop_source *src, int fd, uint32_t events,
             void (*fn)(void *arg, uint32_t events), void *arg, struct err *err) {
    struct epoll_event ev = {.events = events, .data.ptr = src};
    if ((fd >= 0 && !loop_numbers(loop, (size_t)fd + 1)) ||
        epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return err_sys(err, "cannot watch descriptor %d", fd);
    loop->watches[fd] = src;
    *src = (struct loop_source){.fd = fd, .fn = fn, .arg = arg};
    return 0;
}

int loop_mod(struct loop *loop, struct loop_source *src, uint32_t events, struct err *err) {
    struct epoll_event ev = {.events = events, .data.ptr = src};
    errno = EBADF;
    if (!loop_watches(loop, src) || epoll_ctl(loop->epoll, EPOLL_CTL_MOD, src->fd, &ev) < 0)
        return err_sys(err, "cannot change the watch of descriptor %d", src->fd);
    return 0;
}

void loop_del(struct loop *loop, struct loop_source *src) {
    /* A struct of zero bytes was never added, though its fd says 0. */
    if (src->fd < 0 || !src->fn)
        return;
    int saved = errno;
    /* Fails when the owner has closed the descriptor already, which has the same effect. For any
     * other reason once more: a watch that stayed would call what is gone. */
    if (loop_watches(loop, src)) {
        if (epoll_ctl(loop->epoll, EPOLL_CTL_DEL, src->fd, NULL) < 0 && errno != EBADF &&
            errno != ENOENT)
            epoll_ctl(loop->epoll, EPOLL_CTL_DEL, src->fd, NULL);
        loop->watches[src->fd] = NULL;
    }
    errno = saved;
    src->fd = -1;
    src->fn = NULL;
    for (int i = loop->at + 1; i < loop->fetched; i++) {
        if (loop->events[i].data.ptr == src)
            loop->events[i].data.ptr = NULL;
    }
}

/* Timers: a binary heap. */

static void loop_heap_set(struct loop *loop, size_t i, struct loop_timer *t) {
    loop->heap[i] = t;
    t->slot = i + 1;
}

static void loop_heap_up(struct loop *loop, size_t i) {
    struct loop_timer *t = loop->heap[i];
    while (i > 0 && t->due_ns < loop->heap[(i - 1) / 2]->due_ns) {
        loop_heap_set(loop, i, loop->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    loop_heap_set(loop, i, t);
}

static void loop_heap_down(struct loop *loop, size_t i) {
    struct loop_timer *t = loop->heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= loop->timers)
            break;
        if (child + 1 < loop->timers && loop->heap[child + 1]->due_ns < loop->heap[child]->due_ns)
            child++;
        if (t->due_ns <= loop->heap[child]->due_ns)
            break;
        loop_heap_set(loop, i, loop->heap[child]);
        i = child;
    }
    loop_heap_set(loop, i, t);
}

void loop_timer_stop(struct loop *loop, struct loop_timer *t) {
    if (!t->slot)
        return;
    size_t i = t->slot - 1;
    struct loop_timer *last = loop->heap[--loop->timers];
    t->slot = 0;
    if (last == t)
        return;
    loop_heap_set(loop, i, last);
    loop_heap_up(loop, i);
    loop_heap_down(loop, last->slot - 1);
}

int loop_timer_at(struct loop *loop, struct loop_timer *t, uint64_t due_ns, void (*fn)(void *arg),
                  void *arg, struct err *err) {
    if (!t->slot && loop->timers == loop->room) {
        size_t room = loop->room ? loop->room * 2 : 64;
        struct loop_timer **heap = reallocarray(loop->heap, room, sizeof(struct loop_timer *));
        if (!heap)
            return err_sys(err, "cannot arm a timer");
        loop->heap = heap;
        loop->room = room;
    }
    loop_timer_stop(loop, t);
    *t = (struct loop_timer){.due_ns = due_ns, .fn = fn, .arg = arg};
    loop->heap[loop->timers] = t;
    loop_heap_up(loop, loop->timers++);
    return 0;
}

/* Deferred work. */

static void loop_queue_put(struct loop_queue *q, struct loop_defer *d) {
    d->next = NULL;
    if (q->last)
        q->last->next = d;
    else
        q->first = d;
    q->last = d;
}

static void loop_queue_drop(struct loop_queue *q, struct loop_defer *d) {
    struct loop_defer *before = NULL;
    for (struct loop_defer *i = q->first; i; before = i, i = i->next) {
        if (i != d)
            continue;
        if (before)
            before->next = d->next;
        else
            q->first = d->next;
        if (q->last == d)
            q->last = before;
        return;
    }
}

void loop_defer(struct loop *loop, struct loop_defer *d, void (*fn)(void *arg), void *arg) {
    if (d->pending)
        return;
    *d = (struct loop_defer){.fn = fn, .arg = arg, .pending = true};
    loop_queue_put(&loop->later, d);
}

void loop_defer_first(struct loop *loop, struct loop_defer *d, void (*fn)(void *arg), void *arg) {
    if (d->pending)
        return;
    *d = (struct loop_defer){.fn = fn, .arg = arg, .pending = true};
    loop_queue_put(&loop->first, d);
}

void loop_defer_stop(struct loop *loop, struct loop_defer *d) {
    if (!d->pending)
        return;
    d->pending = false;
    loop_queue_drop(&loop->first, d);
    loop_queue_drop(&loop->later, d);
    loop_queue_drop(&loop->ready, d);
}

/* A round. */

/* How long this round may sleep: until the first timer, or not at all when work is waiting. */
static uint64_t loop_wait_ns(const struct loop *loop, uint64_t max_wait_ns) {
    if (loop->stop || loop->first.first || loop->later.first)
        return 0;
    if (!loop->timers)
        return max_wait_ns;
    uint64_t now = clock_mono_ns();
    uint64_t due = loop->heap[0]->due_ns;
    uint64_t left = due > now ? due - now : 0;
    return left < max_wait_ns ? left : max_wait_ns;
}

static int loop_wait_coarse(struct loop *loop, uint64_t wait_ns) {
    int ms = -1;
    if (wait_ns != UINT64_MAX) {
        /* Up, not down: a wait that is too short would spin until the timer is due. */
        uint64_t up = wait_ns / CLOCK_NS_PER_MS + (wait_ns % CLOCK_NS_PER_MS != 0);
        ms = up > 3600000 ? 3600000 : (int)up;
    }
    return epoll_wait(loop->epoll, loop->events, LOOP_BATCH, ms);
}

static int loop_wait(struct loop *loop, uint64_t wait_ns) {
    if (!loop->coarse) {
        struct timespec ts = {.tv_sec = (time_t)(wait_ns / CLOCK_NS_PER_S),
                              .tv_nsec = (long)(wait_ns % CLOCK_NS_PER_S)};
        int n = epoll_pwait2(loop->epoll, loop->events, LOOP_BATCH,
                             wait_ns == UINT64_MAX ? NULL : &ts, NULL);
        /* EPERM: a system call filter around us that does not know it. */
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return n;
        loop->coarse = true;
    }
    return loop_wait_coarse(loop, wait_ns);
}

static void loop_run_events(struct loop *loop) {
    for (loop->at = 0; loop->at < loop->fetched; loop->at++) {
        struct loop_source *src = loop->events[loop->at].data.ptr;
        if (src)
            src->fn(src->arg, loop->events[loop->at].events);
    }
    loop->fetched = 0;
}

static void loop_run_timers(struct loop *loop) {
    if (!loop->timers)
        return;
    uint64_t now = clock_mono_ns();
    /* At most as many as were armed, so a timer that re-arms itself in the past cannot hold the
     * loop. */
    for (size_t left = loop->timers; left && loop->timers; left--) {
        struct loop_timer *t = loop->heap[0];
        if (t->due_ns > now)
            return;
        loop_timer_stop(loop, t);
        t->fn(t->arg);
    }
}

static void loop_run_deferred(struct loop *loop, struct loop_queue *waiting) {
    /* What these defer in their turn to the same list is for the next round. */
    loop->ready = *waiting;
    *waiting = (struct loop_queue){0};
    while (loop->ready.first) {
        struct loop_defer *d = loop->ready.first;
        loop_queue_drop(&loop->ready, d);
        d->pending = false;
        d->fn(d->arg);
    }
}

static void loop_count(struct loop *loop) {
    if (loop->rounds)
        __atomic_store_n(loop->rounds, *loop->rounds + 1, __ATOMIC_RELAXED);
}

int loop_once(struct loop *loop, uint64_t max_wait_ns, struct err *err) {
    int n = loop_wait(loop, loop_wait_ns(loop, max_wait_ns));
    if (n < 0 && errno != EINTR)
        return err_sys(err, "cannot wait for events");
    loop->fetched = n < 0 ? 0 : n;
    loop_count(loop);
    uint64_t begun = loop->watch ? clock_mono_ns() : 0;
    loop_run_events(loop);
    loop_run_timers(loop);
    loop_run_deferred(loop, &loop->first);
    loop_run_deferred(loop, &loop->later);
    if (loop->watch)
        loop->watch(loop->watch_arg, clock_mono_ns() - begun);
    loop_count(loop);
    return 0;
}

int loop_run(struct loop *loop, struct err *err) {
    int rc = 0;
    while (rc == 0 && !loop->stop)
        rc = loop_once(loop, UINT64_MAX, err);
    loop->stop = false;
    return rc;
}

void loop_stop(struct loop *loop) {
    loop->stop = true;
}

void loop_rounds(struct loop *loop, uint64_t *rounds) {
    loop->rounds = rounds;
}

void loop_watch(struct loop *loop, void (*fn)(void *arg, uint64_t ns), void *arg) {
    loop->watch = fn;
    loop->watch_arg = arg;
}
