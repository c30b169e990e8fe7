#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "execs.h"
#include "execution.h"
#include "fd.h"

/* What ends the input of a terminal: its end-of-file character, as a user would type it. */
#define EXEC_STDIN_EOT "\x04"

static void exec_stdin_event(void *arg, uint32_t events);

static void exec_stdin_record(struct exec *x) {
    struct err err;
    err_clear(&err);
    if (exec_record_input(x, &err) < 0)
        execs_log(x, &err);
    execs_written(x->set);
}

/* The command meets the end of its stdin. */
static void exec_stdin_end(struct exec *x) {
    struct exec_stdin *in = &x->input;
    if ((x->flags & EXEC_PTY) != 0)
        (void)!write(in->fd, EXEC_STDIN_EOT, 1);
    in->open = false;
    loop_del(x->set->hub->loop, &in->source);
    fd_close(&in->fd);
    if ((x->flags & EXEC_PTY) == 0 && x->task.sandbox != NULL)
        sandbox_task_signal(&x->task, 0); /* the runner's duplicate goes, too */
}

void exec_stdin_again(struct exec *x) {
    if ((x->flags & (EXEC_PTY | EXEC_STDIN_OPEN)) == EXEC_STDIN_OPEN && !x->input.open)
        sandbox_task_signal(&x->task, 0);
}

/* The first part that waits is through. NULL when it was the last. */
static struct exec_feed *exec_stdin_pop(struct exec_stdin *in) {
    struct exec_feed *f = in->first;
    in->first = f->next;
    if (in->first == NULL)
        in->last = NULL;
    in->waiting -= f->len;
    return f;
}

void exec_stdin_close(struct exec *x) {
    struct exec_stdin *in = &x->input;
    loop_del(x->set->hub->loop, &in->source);
    fd_close(&in->fd);
    in->open = false;
    in->queued = in->bytes;
    while (in->first != NULL) {
        struct exec_feed *f = exec_stdin_pop(in);
        f->over(f, false);
    }
}

/* Writes what the pipe takes of one part: 1 = all of it, 0 = it is full, -1 = nobody reads. */
static int exec_stdin_write(struct exec *x, struct exec_feed *f) {
    struct exec_stdin *in = &x->input;
    while (f->done < f->len) {
        ssize_t n = write(in->fd, f->data + f->done, f->len - f->done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return -1;
        f->done += (size_t)n;
        in->bytes += (uint64_t)n;
    }
    return 1;
}

static int exec_stdin_wait(struct exec *x) {
    struct exec_stdin *in = &x->input;
    if (in->source.fd >= 0 || in->fd < 0)
        return 0;
    return loop_add(x->set->hub->loop, &in->source, in->fd, EPOLLOUT, exec_stdin_event, x, NULL);
}

static void exec_stdin_event(void *arg, uint32_t events) {
    struct exec *x = arg;
    struct exec_stdin *in = &x->input;
    uint64_t before = in->bytes;
    (void)events;
    exec_pin(x);
    while (in->first != NULL && in->fd >= 0) {
        int rc = exec_stdin_write(x, in->first);
        if (rc < 0) {
            exec_stdin_close(x);
            break;
        }
        if (rc == 0)
            break;
        struct exec_feed *f = exec_stdin_pop(in);
        if (f->close)
            exec_stdin_end(x);
        /* Whoever is told has it recorded. */
        exec_stdin_record(x);
        before = in->bytes;
        f->over(f, true);
    }
    if (in->bytes != before)
        exec_stdin_record(x);
    if (in->first == NULL)
        loop_del(x->set->hub->loop, &in->source);
    exec_unpin(x);
}

void exec_stdin_open(struct exec *x, int fd) {
    struct exec_stdin *in = &x->input;
    in->fd = fd;
    in->open = true;
    if (in->first != NULL && exec_stdin_wait(x) < 0)
        exec_stdin_close(x);
}

int exec_stdin_feed(struct exec *x, struct exec_feed *feed) {
    struct exec_stdin *in = &x->input;
    if (!in->open || in->closing || x->state != EXEC_RUNNING)
        return -1;
    in->queued += feed->len;
    feed->done = 0;
    feed->next = NULL;
    if (in->first == NULL && in->fd >= 0) {
        int rc = exec_stdin_write(x, feed);
        if (rc < 0) {
            exec_stdin_close(x);
            return -1;
        }
        if (rc > 0) {
            if (feed->close)
                exec_stdin_end(x);
            exec_stdin_record(x);
            return 1;
        }
        if (feed->done > 0)
            exec_stdin_record(x);
    }
    if (exec_stdin_wait(x) < 0) {
        exec_stdin_close(x);
        return -1;
    }
    in->closing = feed->close;
    if (in->last != NULL)
        in->last->next = feed;
    else
        in->first = feed;
    in->last = feed;
    in->waiting += feed->len;
    return 0;
}
