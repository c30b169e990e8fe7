#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "run.h"
#include "runs.h"
#include "text.h"

/* What a flooding program's pipe is widened to: fewer wake-ups per byte. */
#define RUN_IO_PIPE (1024 * 1024)
#define RUN_IO_PIPE_FULL ((size_t)64 * 1024)
/* A follower whose socket has taken nothing for so long is not waited for any more. */
#define RUN_IO_STALL_MS 250u
#define RUN_IO_BEHIND_MS 5000u
#define RUN_IO_READS 16

static void run_io_event(void *arg, uint32_t events);

int run_io_open(struct run_stream *s, struct run *run, uint8_t type, uint64_t cap, int *child,
                struct err *err) {
    int ends[2];
    if (pipes_take(&run->runs->pipes, ends, err) < 0)
        return -1;
    s->run = run;
    s->type = type;
    s->fd = ends[0];
    capture_init(&s->capture, cap);
    *child = ends[1];
    return 0;
}

void run_io_watch(struct run_stream *s) {
    void (*fn)(void *, uint32_t) = s->type == 0 ? run_collect_event : run_io_event;
    if (s->fd >= 0 && s->source.fd < 0 &&
        loop_add(s->run->runs->loop, &s->source, s->fd, EPOLLIN, fn, s, NULL) < 0)
        run_io_close(s);
}

void run_io_close(struct run_stream *s) {
    if (s->fd < 0)
        return;
    trickle_stop(&s->trickle, s->run->runs->loop);
    loop_del(s->run->runs->loop, &s->source);
    pipes_leave(&s->run->runs->pipes, &s->fd);
    s->paused = false;
}

/* Events. */

static size_t run_io_step(const struct run_stream *s) {
    return s->run->current;
}

/* Of the stream's bytes before `end`: how many begin a character that is not complete there. */
static size_t run_io_cut(const struct run_stream *s, uint64_t end) {
    const struct capture *c = &s->capture;
    size_t want = end - s->recorded < 3 ? (size_t)(end - s->recorded) : 3;
    if (want == 0 || !capture_has(c, end - want, want))
        return 0;
    char tail[3];
    size_t n = 0;
    struct iovec parts[CAPTURE_PIECES];
    int count = capture_view(c, end - want, want, parts);
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < parts[i].iov_len; k++)
            tail[n++] = ((const char *)parts[i].iov_base)[k];
    bool incomplete = false;
    size_t skip = text_utf8_orphans(tail, n);
    size_t whole = text_utf8_prefix(tail + skip, n - skip, &incomplete);
    return incomplete ? n - skip - whole : 0;
}

/* Length of the next record, which begins at s->recorded: at most to `upto`, not over the border
 * between head and tail, and not through a character. */
static size_t run_io_record_len(const struct run_stream *s, uint64_t upto) {
    const struct run *run = s->run;
    uint64_t at = s->recorded, seam = s->capture.head_max;
    uint64_t end = upto;
    size_t room = events_extensible(&run->events, s->type, (uint16_t)run_io_step(s), at);
    bool at_seam = at <= seam && at + 3 >= seam;
    if (room < 4 || at_seam)
        room = EVENTS_CHUNK_MAX;
    if (end - at > room)
        end = at + room;
    if (at < seam && end > seam && !at_seam)
        end = seam;
    if (end < upto) {
        size_t cut = run_io_cut(s, end);
        if (cut < end - at)
            end -= cut;
    }
    return (size_t)(end - at);
}

/* Makes events of what was read. */
static void run_io_record(struct run_stream *s, bool last) {
    struct run *run = s->run;
    uint64_t upto = s->capture.total;
    if (!last)
        upto -= run_io_cut(s, upto);
    while (s->recorded < upto) {
        size_t len = run_io_record_len(s, upto);
        if (events_output(&run->events, s->type, (uint16_t)run_io_step(s), s->recorded, len, NULL) <
            0)
            return;
        s->recorded += len;
    }
    run_notify(run);
}

void run_io_end(struct run_stream *s) {
    if (s->fd < 0)
        return;
    run_io_close(s);
    run_io_record(s, true);
}

/* Back-pressure. */

/* How much may be read without overwriting what a follower that keeps up has not seen. */
static size_t run_io_room(const struct run_stream *s) {
    const struct run *run = s->run;
    size_t room = CAPTURE_READ_MAX;
    uint64_t now = 0;
    for (const struct run_watcher *w = run->watchers; w != NULL; w = w->next) {
        if (!w->follows)
            continue;
        if (now == 0)
            now = clock_mono_ms();
        if (now - w->progress_ms > RUN_IO_STALL_MS)
            continue;
        uint64_t offset =
            w->step == run_io_step(s) ? w->offset[s->type == EVENTS_STDERR ? 1 : 0] : 0;
        size_t left = capture_room(&s->capture, offset);
        room = left < room ? left : room;
    }
    return room;
}

static void run_io_resume_stream(struct run_stream *s);

static void run_io_resume_timer(void *arg) {
    struct run *run = arg;
    if (run->phase != RUN_STEP)
        return;
    run_io_resume_stream(&run->steps[run->current].out);
    run_io_resume_stream(&run->steps[run->current].err);
    if (run->steps[run->current].behind_until_ns != 0)
        run_settle(run);
}

static void run_io_pause(struct run_stream *s) {
    struct run *run = s->run;
    loop_del(run->runs->loop, &s->source);
    s->paused = true;
    uint64_t due = clock_mono_ns() + (RUN_IO_STALL_MS + 1) * CLOCK_NS_PER_MS;
    if (run->resume.slot == 0)
        loop_timer_at(run->runs->loop, &run->resume, due, run_io_resume_timer, run, NULL);
}

static void run_io_resume_stream(struct run_stream *s) {
    if (!s->paused || s->fd < 0)
        return;
    if (run_io_room(s) > 0) {
        s->paused = false;
        run_io_watch(s);
    } else {
        run_io_pause(s);
    }
}

void run_io_resume(struct run *run) {
    if (run->phase != RUN_STEP)
        return;
    run_io_resume_stream(&run->steps[run->current].out);
    run_io_resume_stream(&run->steps[run->current].err);
    /* Not now: the caller is a follower in the middle of reading. */
    if (run->steps[run->current].behind_until_ns != 0)
        loop_timer_at(run->runs->loop, &run->resume, clock_mono_ns(), run_io_resume_timer, run,
                      NULL);
}

static bool run_io_unread(const struct run *run, const struct run_watcher *w,
                          const struct run_stream *s, uint64_t cap) {
    uint64_t seen = w->step == run->current ? w->offset[s->type == EVENTS_STDERR ? 1 : 0] : 0;
    return s->capture.total > cap && seen < s->capture.total;
}

bool run_io_behind(struct run *run) {
    struct run_step *step = &run->steps[run->current];
    uint64_t cap = step->limits.values.v[LIMIT_OUTPUT_BYTES];
    uint64_t now = clock_mono_ns();
    bool behind = false;
    for (const struct run_watcher *w = run->watchers; w != NULL && !behind; w = w->next) {
        behind = w->follows && now / CLOCK_NS_PER_MS <= w->progress_ms + RUN_IO_STALL_MS &&
                 (run_io_unread(run, w, &step->out, cap) || run_io_unread(run, w, &step->err, cap));
    }
    if (!behind)
        return false;
    if (step->behind_until_ns == 0)
        step->behind_until_ns = now + RUN_IO_BEHIND_MS * CLOCK_NS_PER_MS;
    if (now >= step->behind_until_ns)
        return false;
    if (run->resume.slot == 0)
        loop_timer_at(run->runs->loop, &run->resume, now + (RUN_IO_STALL_MS + 1) * CLOCK_NS_PER_MS,
                      run_io_resume_timer, run, NULL);
    return true;
}

/* Reading. */

static void run_io_check_output(struct run_stream *s) {
    struct run *run = s->run;
    struct run_step *step = &run->steps[run->current];
    uint64_t cap = step->limits.values.v[LIMIT_OUTPUT_BYTES];
    if ((run->end_on & END_ON_OUTPUT) == 0 || s->capture.total <= cap || step->ended ||
        step->over_output || run->jail == NULL)
        return;
    step->over_output = true;
    link_kill(run->jail, (uint32_t)run->current, CAUSE_OUTPUT);
}

static void run_io_again(void *arg) {
    struct run_stream *s = arg;
    if (!s->paused)
        run_io_watch(s);
}

/* Reads once: 1 = something came, 0 = nothing now, -1 = the stream is closed. */
static int run_io_read(struct run_stream *s) {
    struct iovec parts[CAPTURE_PIECES];
    size_t room = run_io_room(s);
    if (room == 0) {
        run_io_pause(s);
        return 0;
    }
    int count = capture_iov(&s->capture, room, parts, NULL);
    ssize_t n;
    if (count < 0) {
        /* No memory: a closed pipe would end the program, as if that were its fault. It waits. */
        run_io_pause(s);
        return 0;
    }
    do
        n = readv(s->fd, parts, count);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        run_io_end(s);
        return -1;
    }
    capture_commit(&s->capture, (size_t)n);
    if (!s->widened && (size_t)n >= RUN_IO_PIPE_FULL) {
        s->widened = true;
        (void)fcntl(s->fd, F_SETPIPE_SZ, RUN_IO_PIPE); /* only a matter of speed */
    }
    run_io_record(s, false);
    run_io_check_output(s);
    (void)trickle_pauses(&s->trickle, s->run->runs->loop, &s->source, (size_t)n < TRICKLE_LITTLE,
                         run_io_again, s);
    return 1;
}

static void run_io_event(void *arg, uint32_t events) {
    struct run_stream *s = arg;
    struct run *run = s->run;
    /* After a hang-up nothing is added, so reading to the end is bounded by the pipe. */
    int reads = events & EPOLLHUP ? RUN_IO_READS : 1;
    int rc = 1;
    while (rc > 0 && reads-- > 0)
        rc = run_io_read(s);
    if (rc < 0)
        run_settle(run);
}

bool run_io_drain(struct run_stream *s) {
    while (s->fd >= 0 && !s->paused)
        if (run_io_read(s) == 0)
            break;
    return s->fd < 0;
}
