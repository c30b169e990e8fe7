#include "pipes.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

/* After the round in which pipes were taken, when its answers are on their way. */
#define PIPES_LATER_NS (2 * CLOCK_NS_PER_MS)
/* While there are still enough: so that not every run has the loop woken once more for it. */
#define PIPES_REST_NS (50 * CLOCK_NS_PER_MS)

static void pipes_close_over(struct pipes *p) {
    while (p->over_count > 0)
        fd_close(&p->over[--p->over_count]);
}

void pipes_done(struct pipes *p) {
    if (p->loop != NULL)
        loop_timer_stop(p->loop, &p->refill);
    pipes_close_over(p);
    while (p->count > 0) {
        p->count--;
        fd_close(&p->ready[p->count][0]);
        fd_close(&p->ready[p->count][1]);
    }
    p->loop = NULL;
}

static int pipes_make(int ends[2], struct err *err) {
    int made[2];
    if (pipe2(made, O_CLOEXEC) < 0)
        return err_sys(err, "making a pipe for output");
    /* Only our end must not block. The other one may be opened again by its user, as /dev/stdout.
     */
    if (fcntl(made[0], F_SETFL, O_NONBLOCK) < 0 || fchmod(made[1], 0666) < 0) {
        err_sys(err, "preparing a pipe for output");
        fd_close(&made[0]);
        fd_close(&made[1]);
        return -1;
    }
    ends[0] = made[0];
    ends[1] = made[1];
    return 0;
}

/* One that cannot be made now is asked for again when it is needed, and the error told then. */
static void pipes_refill(void *arg) {
    struct pipes *p = arg;
    pipes_close_over(p);
    while (p->count < PIPES_READY && pipes_make(p->ready[p->count], NULL) == 0)
        p->count++;
}

static void pipes_refill_soon(struct pipes *p) {
    bool soon = p->count < PIPES_READY / 2 || p->over_count > PIPES_READY / 2;
    if (p->loop == NULL || (p->refill.slot != 0 && !soon))
        return;
    uint64_t due = clock_mono_ns() + (soon ? PIPES_LATER_NS : PIPES_REST_NS);
    if (p->refill.slot == 0 || p->refill.due_ns > due)
        loop_timer_at(p->loop, &p->refill, due, pipes_refill, p, NULL);
}

void pipes_init(struct pipes *p, struct loop *loop) {
    memset(p, 0, sizeof(*p));
    p->loop = loop;
    pipes_refill_soon(p);
}

int pipes_take(struct pipes *p, int ends[2], struct err *err) {
    pipes_refill_soon(p);
    if (p->count == 0)
        return pipes_make(ends, err);
    p->count--;
    ends[0] = p->ready[p->count][0];
    ends[1] = p->ready[p->count][1];
    return 0;
}

void pipes_leave(struct pipes *p, int *fd) {
    if (*fd < 0 || p->loop == NULL || p->over_count == PIPES_READY) {
        fd_close(fd);
        return;
    }
    p->over[p->over_count++] = fd_steal(fd);
    pipes_refill_soon(p);
}
