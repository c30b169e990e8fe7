#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "execs.h"
#include "execution.h"
#include "fd.h"
#include "text.h"

/* What a flooding program's pipe is widened to: fewer wake-ups per byte. */
#define EXEC_IO_PIPE (1024 * 1024)
#define EXEC_IO_PIPE_FULL ((size_t)64 * 1024)
#define EXEC_IO_TAKE ((size_t)1024 * 1024)

void exec_io_name(const struct exec *x, enum exec_io_file which, char name[SPOOL_NAME_SIZE]) {
    static const char *const ends[] = {
        [EXEC_IO_OUT] = "out", [EXEC_IO_ERR] = "err", [EXEC_IO_EVENTS] = "ev"};
    snprintf(name, SPOOL_NAME_SIZE, "exec.%" PRIu32 ".%s", x->number, ends[which]);
}

int exec_io_pipe(struct exec_stream *s, int *child, struct err *err) {
    struct pipes none = {.loop = NULL}, *ready = s->exec->set->hub->pipes;
    int ends[2];
    if (pipes_take(ready != NULL ? ready : &none, ends, err) < 0)
        return -1;
    s->fd = ends[0];
    *child = ends[1];
    return 0;
}

void exec_io_close(struct exec_stream *s) {
    struct exec_hub *hub = s->exec->set->hub;
    trickle_stop(&s->trickle, hub->loop);
    if (s->fd < 0)
        return;
    loop_del(hub->loop, &s->source);
    if (hub->pipes != NULL && (s->exec->flags & EXEC_PTY) == 0)
        pipes_leave(hub->pipes, &s->fd);
    else
        fd_close(&s->fd);
}

/* Events. */

/* Of the stream's bytes before `end`: how many begin a character that is not complete there. */
static uint64_t exec_io_cut(struct exec_stream *s, uint64_t end) {
    uint64_t from = s->exec->events.end[s->which];
    size_t want = end - from < 3 ? (size_t)(end - from) : 3;
    char tail[3];
    bool incomplete = false;
    if (want == 0 || spool_read(&s->spool, end - want, tail, want, NULL) < 0)
        return 0;
    size_t skip = text_utf8_orphans(tail, want);
    size_t whole = text_utf8_prefix(tail + skip, want - skip, &incomplete);
    return incomplete ? want - skip - whole : 0;
}

/* Length of the next record: at most to `upto`, not over the border between head and tail, and not
 * through a character. */
static uint64_t exec_io_record_len(struct exec_stream *s, uint64_t upto) {
    const struct spool_events *e = &s->exec->events;
    uint64_t at = e->end[s->which], seam = s->spool.head_max, end = upto;
    uint64_t gone = s->spool.gone > seam ? s->spool.gone : 0;
    if (at >= seam && at < gone) /* only after a restart: nobody can be told of its bytes */
        return (gone - at < UINT32_MAX ? gone : at + UINT32_MAX) - at;
    uint64_t room = spool_events_room(e, s->which);
    bool at_seam = at <= seam && at + 3 >= seam;
    if (room < 4 || at_seam)
        room = SPOOL_EVENTS_CHUNK;
    if (end - at > room)
        end = at + room;
    if (at < seam && end > seam && !at_seam)
        end = seam;
    if (end < upto) {
        uint64_t cut = exec_io_cut(s, end);
        if (cut < end - at)
            end -= cut;
    }
    return end - at;
}

bool exec_io_no_space(const struct err *err) {
    return err->code == ENOSPC || err->code == EDQUOT;
}

static void exec_io_failed(struct exec_stream *s, const struct err *err) {
    struct exec *x = s->exec;
    if (x->spool_error == 0) {
        x->spool_error = err->code != 0 ? err->code : EIO;
        execs_log(x, err);
        exec_kill(x, CAUSE_CANCELLED);
    }
    exec_io_close(s);
}

/* Makes events of what came. */
static void exec_io_record(struct exec_stream *s, bool last) {
    struct exec *x = s->exec;
    struct err err;
    char name[SPOOL_NAME_SIZE];
    uint64_t upto = s->spool.total;
    bool any = false;
    err_clear(&err);
    exec_io_name(x, EXEC_IO_EVENTS, name);
    if (!last)
        upto -= exec_io_cut(s, upto);
    while (x->events.end[s->which] < upto) {
        uint64_t len = exec_io_record_len(s, upto);
        if (spool_events_add(&x->events, s->which, (uint32_t)len, name, &err) < 0) {
            /* Without space they are made later, as one. */
            if (!exec_io_no_space(&err))
                exec_io_failed(s, &err);
            return;
        }
        any = true;
    }
    if (any)
        exec_notify(x);
}

void exec_io_recover(struct exec *x) {
    exec_io_record(&x->out[SPOOL_STDOUT], false);
    exec_io_record(&x->out[SPOOL_STDERR], false);
}

/* Reading. */

static int exec_io_file(struct exec_stream *s, struct err *err) {
    char name[SPOOL_NAME_SIZE];
    if (spool_has_file(&s->spool))
        return 0;
    exec_io_name(s->exec, s->which == SPOOL_STDOUT ? EXEC_IO_OUT : EXEC_IO_ERR, name);
    return spool_create(&s->spool, name, err);
}

static void exec_io_check_output(struct exec_stream *s) {
    struct exec *x = s->exec;
    if ((x->end_on & END_ON_OUTPUT) == 0 || x->over_output ||
        s->spool.total <= x->limits.values.v[LIMIT_OUTPUT_BYTES])
        return;
    x->over_output = true;
    exec_kill(x, CAUSE_OUTPUT);
}

static void exec_io_again(void *arg) {
    exec_io_watch(arg);
}

/* Moves once, at most `max` bytes: 1 = something came, 0 = nothing now, -1 = the stream is closed.
 */
static int exec_io_take(struct exec_stream *s, size_t max) {
    struct err err;
    err_clear(&err);
    bool terminal = (s->exec->flags & EXEC_PTY) != 0;
    ssize_t n = exec_io_file(s, &err);
    if (n == 0)
        n = terminal ? spool_take_terminal(&s->spool, s->fd, &err)
                     : spool_take(&s->spool, s->fd, max, &err);
    /* A full disk is no reason to end a program: what it writes meanwhile is counted. */
    if (n < 0 && exec_io_no_space(&err))
        n = spool_discard(&s->spool, s->fd, max, &err);
    if (n < 0 && err.code == EAGAIN)
        return 0;
    if (n < 0) {
        exec_io_failed(s, &err);
        return -1;
    }
    if (n == 0) {
        exec_io_close(s);
        exec_io_record(s, true);
        return -1;
    }
    if (!terminal && !s->widened && (size_t)n >= EXEC_IO_PIPE_FULL) {
        s->widened = true;
        (void)fcntl(s->fd, F_SETPIPE_SZ, EXEC_IO_PIPE); /* only a matter of speed */
    }
    exec_io_record(s, false);
    if (s->fd < 0) /* its events cannot be kept */
        return -1;
    exec_io_check_output(s);
    (void)trickle_pauses(&s->trickle, s->exec->set->hub->loop, &s->source,
                         (size_t)n < (terminal ? TRICKLE_LITTLE_TERMINAL : TRICKLE_LITTLE),
                         exec_io_again, s);
    return 1;
}

static void exec_io_event(void *arg, uint32_t events) {
    struct exec_stream *s = arg;
    int ready = 0;
    /* A hang-up without bytes needs no file. */
    if ((events & EPOLLHUP) != 0 && (s->exec->flags & EXEC_PTY) == 0 &&
        ioctl(s->fd, FIONREAD, &ready) == 0 && ready == 0) {
        exec_io_close(s);
        exec_io_record(s, true);
        return;
    }
    (void)exec_io_take(s, EXEC_IO_TAKE);
}

void exec_io_watch(struct exec_stream *s) {
    if (s->fd >= 0 && s->source.fd < 0 &&
        loop_add(s->exec->set->hub->loop, &s->source, s->fd, EPOLLIN, exec_io_event, s, NULL) < 0)
        exec_io_close(s);
}

/* The end. */

/* Looks at what is in the pipe without taking it. -1: it cannot be done so. */
static int exec_io_peek(struct exec_stream *s, char *copy, size_t len) {
    struct exec_hub *hub = s->exec->set->hub;
    size_t have = 0;
    if (hub->scratch[0] < 0 && execs_hub_scratch(hub, NULL) < 0)
        return -1;
    ssize_t n = tee(s->fd, hub->scratch[1], len, SPLICE_F_NONBLOCK);
    size_t seen = n > 0 ? (size_t)n : 0;
    while (have < seen) {
        n = read(hub->scratch[0], copy + have, seen - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (have == len)
        return 0;
    /* Whatever is left in there must not be taken for the next one's. */
    (void)execs_hub_scratch(hub, NULL);
    return -1;
}

/* After its END nobody who belongs to it writes any more: what is in the pipe now is all. */
size_t exec_io_last(struct exec_stream *s, char *copy) {
    int ready = 0;
    char name[SPOOL_NAME_SIZE];
    bool terminal = (s->exec->flags & EXEC_PTY) != 0;
    if (s->fd < 0)
        return 0;
    exec_io_name(s->exec, EXEC_IO_EVENTS, name);
    trickle_stop(&s->trickle, s->exec->set->hub->loop);
    loop_del(s->exec->set->hub->loop, &s->source);
    if (terminal) {
        for (int i = 0; i < 64 && s->fd >= 0; i++)
            if (exec_io_take(s, EXEC_IO_TAKE) == 0)
                break;
    } else if (ioctl(s->fd, FIONREAD, &ready) < 0) {
        ready = 0;
    }
    /* Without a file, but not the first bytes: a full disk did not take those. */
    if (ready > 0 && (size_t)ready <= EXEC_INLINE_MAX && !spool_has_file(&s->spool) &&
        s->spool.total == 0 && (uint64_t)ready <= s->spool.head_max + s->spool.tail_keep &&
        exec_io_peek(s, copy, (size_t)ready) == 0) {
        s->spool.total = (uint64_t)ready;
        (void)spool_events_add(&s->exec->events, s->which, (uint32_t)ready, name, NULL);
        return (size_t)ready;
    }
    while (ready > 0 && s->fd >= 0) {
        uint64_t before = s->spool.total;
        if (exec_io_take(s, (size_t)ready) <= 0)
            break;
        ready -= (int)(s->spool.total - before);
    }
    if (s->fd >= 0) {
        exec_io_close(s);
        exec_io_record(s, true);
    }
    return 0;
}
