#include <errno.h>
#include <sys/epoll.h>

#include "execs.h"
#include "execution.h"
#include "fd.h"

/* What ends the input of a terminal: its end-of-file character, as a user would type it. */
#define EXEC_STDIN_EOT "\x04"
/* Rounds before others have their turn; each moves at most INLET_MAX bytes. */
#define EXEC_STDIN_ROUNDS 8

static void exec_stdin_event(void *arg, uint32_t events);

static bool exec_stdin_terminal(const struct exec *x) {
    return (x->flags & EXEC_PTY) != 0;
}

/* The command has met the end of its stdin. */
static void exec_stdin_end(struct exec *x) {
    exec_stdin_close(x);
    if (!exec_stdin_terminal(x) && x->task.sandbox != NULL)
        sandbox_task_signal(&x->task, 0); /* the runner's duplicate goes, too */
}

void exec_stdin_again(struct exec *x) {
    if ((x->flags & (EXEC_PTY | EXEC_STDIN_OPEN)) == EXEC_STDIN_OPEN && !x->input.open &&
        x->input.fd < 0)
        sandbox_task_signal(&x->task, 0);
}

/* All of the first part that waits was taken, or nothing more of it will be. */
static void exec_stdin_pop(struct exec_stdin *in, bool taken) {
    struct exec_feed *f = in->first;
    in->first = f->next;
    if (in->first == NULL)
        in->last = NULL;
    in->waiting -= f->len;
    f->state = taken ? EXEC_FEED_TAKEN : EXEC_FEED_LOST;
    if (f->over != NULL)
        f->over(f, taken);
}

void exec_stdin_close(struct exec *x) {
    struct exec_stdin *in = &x->input;
    loop_del(x->set->hub->loop, &in->source);
    fd_close(&in->fd);
    inlet_done(&in->inlet);
    in->open = in->ending = false;
    in->queued = in->bytes;
    while (in->first != NULL)
        exec_stdin_pop(in, false);
}

/* Nothing more comes. That is written down before a terminal's end-of-file character is among the
 * bytes: if it is not when the next server looks, it is still to be put there. */
static void exec_stdin_seal(struct exec *x) {
    struct exec_stdin *in = &x->input;
    struct err err;
    err_clear(&err);
    in->open = false;
    in->ending = true;
    if (exec_record_input(x, &err) < 0)
        execs_log(x, &err);
    execs_written(x->set);
}

/* Nothing is still to be put among the bytes. */
static bool exec_stdin_whole(const struct exec *x) {
    const struct exec_stdin *in = &x->input;
    return in->first == NULL &&
           (!in->ending || !exec_stdin_terminal(x) || in->inlet.taken > in->bytes);
}

/* Takes of what waits as much as there is room for. */
static int exec_stdin_take(struct exec *x, struct err *err) {
    struct exec_stdin *in = &x->input;
    while (in->first != NULL) {
        struct exec_feed *f = in->first;
        ssize_t n = 0;
        if (f->done < f->len)
            n = inlet_take(&in->inlet, f->data + f->done, f->len - f->done, err);
        if (n < 0)
            return -1;
        f->done += (size_t)n;
        in->bytes += (uint64_t)n;
        if (f->done < f->len)
            return 0;
        if (f->close)
            exec_stdin_seal(x);
        exec_stdin_pop(in, true);
    }
    if (exec_stdin_whole(x))
        return 0;
    return inlet_take(&in->inlet, EXEC_STDIN_EOT, 1, err) < 0 ? -1 : 0;
}

/* Is told when the command reads, as long as something waits for that. */
static int exec_stdin_watch(struct exec *x) {
    struct exec_stdin *in = &x->input;
    if (in->first == NULL && in->inlet.sent == in->inlet.taken) {
        loop_del(x->set->hub->loop, &in->source);
        return 0;
    }
    if (in->source.fd >= 0 || in->fd < 0)
        return 0;
    return loop_add(x->set->hub->loop, &in->source, in->fd, EPOLLOUT, exec_stdin_event, x, NULL);
}

/* Moves on what can move. -1: nobody reads any more, and it is closed. */
static int exec_stdin_move(struct exec *x) {
    struct exec_stdin *in = &x->input;
    struct err err;
    int rc = 1;
    err_clear(&err);
    exec_pin(x);
    for (int i = 0; i < EXEC_STDIN_ROUNDS && rc > 0; i++) {
        if (exec_stdin_take(x, &err) < 0) {
            execs_log(x, &err);
            rc = -1;
            break;
        }
        rc = in->fd >= 0 ? inlet_send(&in->inlet, in->fd, exec_stdin_terminal(x)) : 0;
        if (rc > 0 && exec_stdin_whole(x))
            break;
    }
    if (rc > 0 && in->ending && exec_stdin_whole(x))
        exec_stdin_end(x);
    else if (rc < 0 || exec_stdin_watch(x) < 0)
        exec_stdin_close(x);
    exec_unpin(x);
    return rc;
}

static void exec_stdin_event(void *arg, uint32_t events) {
    (void)events;
    (void)exec_stdin_move(arg);
}

void exec_stdin_open(struct exec *x, int fd) {
    x->input.fd = fd;
    (void)exec_stdin_move(x);
}

void exec_stdin_adopt(struct exec *x, int fd) {
    struct exec_stdin *in = &x->input;
    struct err err;
    err_clear(&err);
    if (fd < 0 || inlet_adopt(&in->inlet, fd, &err) < 0) {
        if (fd >= 0)
            execs_log(x, &err);
        exec_stdin_close(x);
        return;
    }
    /* When it is closed, it is written down how many they were; an end-of-file character may be
     * behind them. */
    if (!in->ending)
        in->bytes = in->inlet.taken;
    in->queued = in->bytes;
}

int exec_stdin_feed(struct exec *x, struct exec_feed *feed) {
    struct exec_stdin *in = &x->input;
    void (*over)(struct exec_feed * f, bool taken) = feed->over;
    if (!in->open || in->closing || x->state != EXEC_RUNNING)
        return -1;
    feed->done = 0;
    feed->next = NULL;
    feed->state = EXEC_FEED_WAITS;
    feed->over = NULL; /* whoever calls this is told by what it returns */
    if (in->last != NULL)
        in->last->next = feed;
    else
        in->first = feed;
    in->last = feed;
    in->waiting += feed->len;
    in->queued += feed->len;
    in->closing = feed->close;
    int rc = exec_stdin_move(x);
    feed->over = over;
    if (rc < 0 || feed->state == EXEC_FEED_LOST)
        return -1;
    return feed->state == EXEC_FEED_TAKEN ? 1 : 0;
}
