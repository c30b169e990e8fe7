#include "fileop_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "fileop_run_internal.h"
#include "spec.h"

#define FILEOP_RUN_RETRY_MS 20u
/* Three paths and the name of the operation. */
#define FILEOP_RUN_SPEC_MAX ((size_t)16 * 1024)

static void fileop_run_start_next(struct fileop_lane *lane);

/* Ends. */

static void fileop_run_free(struct fileop_run *r) {
    struct fileop_lane *lane = r->lane;
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        lane->first = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    else
        lane->last = r->prev;
    free(r->path);
    free(r);
}

static void fileop_run_close(struct fileop_run *r) {
    loop_defer_stop(r->lane->loop, &r->later);
    loop_del(r->lane->loop, &r->source);
    fd_close(&r->fd);
    fd_close(&r->child_in);
    fd_close(&r->child_out);
    fileop_feed_done(&r->feed);
    fileop_parse_done(&r->parse);
    buf_done(&r->spec);
}

/* The result is known: tells the owner. `r` is gone afterwards, unless its process is not. */
static void fileop_run_settle(struct fileop_run *r, const struct fileop_result *result) {
    if (r->phase == FILEOP_RUN_WAITING)
        r->lane->waiting--;
    r->phase = FILEOP_RUN_OVER;
    fileop_run_close(r);
    r->ops->done(r->arg, result);
    if (!r->active)
        fileop_run_free(r);
}

static void fileop_run_settle_code(struct fileop_run *r, enum fileop_code code, int sys) {
    struct fileop_result result = {0};
    fileop_status_set(&result, code, sys, r->path);
    fileop_run_settle(r, &result);
}

static void fileop_run_settle_gone(struct fileop_run *r) {
    struct fileop_result result = {.gone = true};
    fileop_status_set(&result, FILEOP_IO, 0, r->path);
    fileop_run_settle(r, &result);
}

/* It does not do what it should, or nobody wants it any more. */
static void fileop_run_kill(struct fileop_run *r) {
    if (r->active)
        sandbox_task_kill(&r->task, CAUSE_CANCELLED);
}

/* Its stream has ended without an END; or somebody else reads it, who knows how that ends. */
static void fileop_run_settle_cut(struct fileop_run *r) {
    struct fileop_result result = {0};
    if (!r->taken || r->cause != CAUSE_EXIT)
        fileop_status_cut(&result, r->cause, r->path);
    fileop_run_settle(r, &result);
}

/* Reading. */

static void fileop_run_event(void *arg, uint32_t events);

int fileop_run_watch(struct fileop_run *r) {
    if (r->fd < 0 || r->source.fd >= 0)
        return 0;
    return loop_add(r->lane->loop, &r->source, r->fd, EPOLLIN, fileop_run_event, r, NULL);
}

/* Contents are waited for by fileop_run_read(). */
static bool fileop_run_by_hand(const struct fileop_run *r) {
    return r->ops->readable != NULL && r->parse.contents && !r->skips;
}

void fileop_run_end_of_file(struct fileop_run *r) {
    r->eof = true;
    loop_del(r->lane->loop, &r->source);
    fd_close(&r->fd);
}

void fileop_run_widen(struct fileop_run *r, size_t came) {
    if (r->widened || came < FILEOP_RUN_PIPE_FULL)
        return;
    r->widened = true;
    (void)fcntl(r->fd, F_SETPIPE_SZ, FILEOP_RUN_PIPE); /* only a matter of speed */
}

size_t fileop_run_fill(struct fileop_run *r, const struct iovec *parts, int count) {
    ssize_t n;
    if (r->eof || r->fd < 0)
        return 0;
    do
        n = readv(r->fd, parts, count);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        fileop_run_end_of_file(r);
        return 0;
    }
    fileop_run_widen(r, (size_t)n);
    return (size_t)n;
}

struct fileop_run_turn {
    uint64_t begun_ns; /* 0 = the clock was not looked at yet */
    unsigned items;
};

static bool fileop_run_turn_over(struct fileop_run_turn *turn, bool contents) {
    if (++turn->items < FILEOP_RUN_ITEMS && !contents)
        return false;
    uint64_t now = clock_mono_ns();
    turn->items = 0;
    if (turn->begun_ns == 0)
        turn->begun_ns = now;
    return now - turn->begun_ns > FILEOP_RUN_NS;
}

/* Hands out what was read. True: nothing more in this turn; it settled, and `r` may be gone, or the
 * rest has to wait for the next one. */
static bool fileop_run_hand_out(struct fileop_run *r, struct fileop_run_turn *turn) {
    struct fileop_item item;
    struct err err = {0};
    while (!r->paused && !r->cancelled && !fileop_run_by_hand(r)) {
        if (fileop_run_turn_over(turn, r->parse.contents)) {
            fileop_run_soon(r);
            return true;
        }
        int rc = fileop_parse_next(&r->parse, &item, &err);
        if (rc == 0)
            return false;
        if (rc < 0) {
            fileop_run_kill(r);
            fileop_run_settle_code(r, FILEOP_IO, EPROTO);
            return true;
        }
        if (item.rec.type == FILEOP_END) {
            struct fileop_result result = {.more = (item.rec.flags & FILEOP_MORE) != 0};
            fileop_run_settle(r, &result);
            return true;
        }
        if (item.rec.type == FILEOP_ERROR && item.rec.path_len == 0) {
            fileop_run_settle_code(r, item.rec.code, item.rec.sys);
            return true;
        }
        if (r->skips && item.rec.type == FILEOP_DATA)
            continue;
        if (r->ops->item(r->arg, &item) < 0) {
            fileop_run_kill(r);
            fileop_run_settle_code(r, FILEOP_IO, 0);
            return true;
        }
    }
    return false;
}

static void fileop_run_work(struct fileop_run *r) {
    if (r->cancelled) {
        fileop_run_settle_code(r, FILEOP_IO, ECANCELED);
        return;
    }
    struct fileop_run_turn turn = {0};
    for (int i = 0; i < FILEOP_RUN_READS; i++) {
        size_t room = 0;
        if (fileop_run_hand_out(r, &turn))
            return;
        if (r->paused || r->cancelled || r->eof || fileop_run_by_hand(r))
            break;
        char *space = fileop_parse_space(&r->parse, &room);
        if (space == NULL) {
            fileop_run_kill(r);
            fileop_run_settle_code(r, FILEOP_IO, ENOMEM);
            return;
        }
        struct iovec part = {.iov_base = space, .iov_len = room};
        size_t n = fileop_run_fill(r, &part, 1);
        if (n == 0 && !r->eof)
            break;
        fileop_parse_add(&r->parse, n);
    }
    if (r->paused || r->cancelled)
        return;
    if (fileop_run_by_hand(r)) {
        loop_del(r->lane->loop, &r->source);
        r->ops->readable(r->arg);
    } else if (r->eof && !r->active) {
        fileop_run_settle_cut(r);
    }
}

static void fileop_run_event(void *arg, uint32_t events) {
    struct fileop_run *r = arg;
    (void)events;
    if (r->later.pending)
        return; /* its turn comes at the end of the round */
    if (r->paused || r->cancelled) {
        loop_del(r->lane->loop, &r->source);
        return;
    }
    fileop_run_work(r);
}

static void fileop_run_later(void *arg) {
    struct fileop_run *r = arg;
    if (fileop_run_watch(r) < 0) {
        fileop_run_kill(r);
        fileop_run_settle_code(r, FILEOP_IO, ENOMEM);
        return;
    }
    fileop_run_work(r);
}

void fileop_run_soon(struct fileop_run *r) {
    loop_defer(r->lane->loop, &r->later, fileop_run_later, r);
}

/* Starting. */

static void fileop_run_ended(struct sandbox_task *t, const struct wire_end *end) {
    struct fileop_run *r = (struct fileop_run *)(void *)t;
    struct fileop_lane *lane = r->lane;
    r->active = false;
    r->cause = end->cause;
    lane->running -= r->watch ? 0 : 1;
    lane->watching -= r->watch ? 1 : 0;
    if (r->phase == FILEOP_RUN_OVER)
        fileop_run_free(r);
    else if (!r->paused && !fileop_run_by_hand(r))
        fileop_run_soon(r);
    fileop_run_start_next(lane);
}

static void fileop_run_lost(struct sandbox_task *t, enum cause cause) {
    struct fileop_run *r = (struct fileop_run *)(void *)t;
    r->active = false;
    r->cause = cause;
    r->lane->running -= r->watch ? 0 : 1;
    r->lane->watching -= r->watch ? 1 : 0;
    if (r->phase == FILEOP_RUN_OVER)
        fileop_run_free(r);
    else
        fileop_run_settle_gone(r);
}

static const struct sandbox_task_ops fileop_run_task_ops = {.ended = fileop_run_ended,
                                                            .lost = fileop_run_lost};

static int fileop_run_pipe(int *ours, int *theirs, bool write, struct err *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "making a pipe for a file operation");
    *ours = ends[write ? 1 : 0];
    *theirs = ends[write ? 0 : 1];
    if (fcntl(*ours, F_SETFL, O_NONBLOCK) < 0)
        return err_sys(err, "preparing a pipe for a file operation");
    return 0;
}

static int fileop_run_open_in(struct fileop_run *r, struct err *err) {
    int in = -1;
    if (!r->upload || r->opened)
        return 0;
    int rc = fileop_run_pipe(&in, &r->child_in, true, err);
    if (rc == 0)
        rc = fileop_feed_open(&r->feed, fd_steal(&in), err);
    r->opened = rc == 0;
    fd_close(&in);
    return rc;
}

/* Only now: what waits for a slot takes no descriptors. */
static int fileop_run_open(struct fileop_run *r, struct err *err) {
    if (fileop_run_open_in(r, err) < 0)
        return -1;
    return r->fd >= 0 || r->taken ? 0 : fileop_run_pipe(&r->fd, &r->child_out, false, err);
}

static int fileop_run_send(struct fileop_run *r, struct err *err) {
    if (fileop_run_open(r, err) < 0)
        return -1;
    struct wire_exec exec = {.kind = WIRE_EXEC_FILES,
                             .fds = WIRE_FD_STDOUT | (r->upload ? WIRE_FD_STDIN : 0u),
                             .limits = sandbox_limits(r->lane->sandbox)->values,
                             .spec_size = (uint32_t)r->spec.len};
    int fds[2] = {r->upload ? r->child_in : r->child_out, r->child_out};
    struct link_exec x = {
        .exec = &exec, .spec = r->spec.data, .fds = fds, .fd_count = r->upload ? 2 : 1};
    r->task.ops = &fileop_run_task_ops;
    return sandbox_exec(r->lane->sandbox, &r->task, &x, err);
}

static void fileop_run_sent(struct fileop_run *r) {
    r->phase = FILEOP_RUN_WORKING;
    r->active = true;
    r->lane->waiting--;
    r->lane->running += r->watch ? 0 : 1;
    r->lane->watching += r->watch ? 1 : 0;
    fd_close(&r->child_in);
    fd_close(&r->child_out);
    buf_done(&r->spec);
    fileop_run_soon(r);
}

static void fileop_run_retry(void *arg) {
    fileop_run_start_next(arg);
}

static struct fileop_run *fileop_run_first_waiting(const struct fileop_lane *lane) {
    struct fileop_run *r = lane->first;
    while (r != NULL &&
           (r->phase != FILEOP_RUN_WAITING || r->cancelled ||
            (r->watch ? lane->watching >= FILEOP_RUN_WATCHES : lane->running >= FILEOP_RUN_SLOTS)))
        r = r->next;
    return r;
}

/* As long as there is a slot. */
static void fileop_run_start_next(struct fileop_lane *lane) {
    struct fileop_run *r;
    struct err err = {0};
    while (lane->waiting > 0 && (r = fileop_run_first_waiting(lane)) != NULL) {
        if (fileop_run_send(r, &err) == 0) {
            fileop_run_sent(r);
        } else if (err.kind == ERR_LIMIT || err.kind == ERR_STATE || err.code == EMFILE ||
                   err.code == ENFILE) {
            /* Commands took the runner's last place, the runner is being looked for, or descriptors
             * are short; nobody tells when it is over. (When the sandbox goes, lane_gone() comes.)
             */
            loop_timer_at(lane->loop, &lane->retry,
                          clock_mono_ns() + FILEOP_RUN_RETRY_MS * CLOCK_NS_PER_MS, fileop_run_retry,
                          lane, NULL);
            return;
        } else {
            r->cancelled = true;
            fileop_run_soon(r);
        }
    }
}

/* The lane of a sandbox. */

static void fileop_run_lane_gone(void *part) {
    struct fileop_lane *lane = part;
    loop_timer_stop(lane->loop, &lane->retry);
    for (struct fileop_run *r = lane->first, *next; r != NULL; r = next) {
        next = r->next;
        if (r->phase != FILEOP_RUN_OVER && !r->active)
            fileop_run_settle_gone(r);
    }
}

static void fileop_run_lane_free(void *part) {
    struct fileop_lane *lane = part;
    for (struct fileop_run *r = lane->first; r != NULL; r = r->next)
        r->active = false;
    fileop_run_lane_gone(lane);
    while (lane->first != NULL)
        fileop_run_free(lane->first);
    free(lane);
}

static bool fileop_run_lane_rests(const void *part) {
    const struct fileop_lane *lane = part;
    return lane->first == NULL;
}

static const struct sandbox_part_ops fileop_run_lane_ops = {
    .free = fileop_run_lane_free, .gone = fileop_run_lane_gone, .rests = fileop_run_lane_rests};

static struct fileop_lane *fileop_run_lane(struct sandbox *sb) {
    struct fileop_lane *lane = sandbox_part(sb, SANDBOX_FILES);
    if (lane != NULL)
        return lane;
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL)
        return NULL;
    lane->sandbox = sb;
    lane->loop = sandbox_loop(sb);
    sandbox_part_set(sb, SANDBOX_FILES, &fileop_run_lane_ops, lane);
    return lane;
}

static void fileop_run_writable(void *arg) {
    struct fileop_run *r = arg;
    if (r->ops->writable != NULL && r->phase != FILEOP_RUN_OVER && !r->cancelled)
        r->ops->writable(r->arg);
}

static int fileop_run_prepare(struct fileop_run *r, const char *const *argv, size_t argc,
                              struct err *err) {
    r->path = strdup(argc > 1 ? argv[1] : "");
    if (r->path == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "starting a file operation: out of memory");
    return spec_encode("/", argv, argc, NULL, 0, &r->spec, err);
}

static void fileop_run_append(struct fileop_lane *lane, struct fileop_run *r) {
    r->lane = lane;
    r->prev = lane->last;
    if (r->prev != NULL)
        r->prev->next = r;
    else
        lane->first = r;
    lane->last = r;
}

/* Does this operation only look? What is not known to is taken to change something. */
static bool fileop_run_reads(const char *name) {
    static const char *const names[] = {"stat", "read",  "list", "pack", "watch",
                                        "scan", "upper", "look", "fetch"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

struct fileop_run *fileop_run_start(struct sandbox *sb, const char *const *argv, size_t argc,
                                    bool upload, const struct fileop_run_ops *ops, void *arg,
                                    struct err *err) {
    enum sandbox_state state = sandbox_state(sb);
    if (state != SANDBOX_READY && state != SANDBOX_PAUSED) {
        err_set(err, ERR_STATE, 0, "The sandbox is not ready.");
        return NULL;
    }
    struct fileop_lane *lane = fileop_run_lane(sb);
    struct fileop_run *r = lane != NULL ? calloc(1, sizeof(*r)) : NULL;
    if (r == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "starting a file operation: out of memory");
        return NULL;
    }
    r->watch = strcmp(argv[0], "watch") == 0;
    r->task.reads = fileop_run_reads(argv[0]);
    /* Watches may last for ever: to wait for one is no use. */
    if (r->watch ? lane->watching >= FILEOP_RUN_WATCHES : lane->waiting >= FILEOP_RUN_QUEUE) {
        err_set(err, ERR_LIMIT, 0,
                r->watch ? "Too many watches are open in this sandbox."
                         : "Too many file operations wait in this sandbox.");
        free(r);
        return NULL;
    }
    r->ops = ops;
    r->arg = arg;
    r->upload = upload;
    r->fd = r->child_in = r->child_out = r->source.fd = -1;
    buf_init(&r->spec, FILEOP_RUN_SPEC_MAX);
    fileop_feed_init(&r->feed, lane->loop, fileop_run_writable, r);
    fileop_parse_init(&r->parse);
    fileop_run_append(lane, r);
    if (fileop_run_prepare(r, argv, argc, err) < 0) {
        fileop_run_close(r);
        fileop_run_free(r);
        return NULL;
    }
    lane->waiting++;
    fileop_run_start_next(lane);
    return r;
}

/* What its owner asks for. */

void fileop_run_pause(struct fileop_run *r) {
    r->paused = true;
}

void fileop_run_resume(struct fileop_run *r) {
    r->paused = false;
    if (r->phase == FILEOP_RUN_WORKING)
        fileop_run_soon(r);
}

void fileop_run_skip(struct fileop_run *r) {
    r->skips = true;
    fileop_run_resume(r);
}

void fileop_run_cancel(struct fileop_run *r) {
    if (r->cancelled)
        return;
    r->cancelled = true;
    fileop_run_kill(r);
    fileop_run_soon(r);
}

int fileop_run_put(struct fileop_run *r, const struct fileop_record *rec, const char *path,
                   const char *target, const void *data) {
    if (r->phase == FILEOP_RUN_OVER || r->cancelled)
        return -1;
    return fileop_feed_put(&r->feed, rec, path, target, data);
}

ssize_t fileop_run_put_bytes(struct fileop_run *r, const void *data, size_t len) {
    if (r->phase == FILEOP_RUN_OVER || r->cancelled)
        return -1;
    return fileop_feed_bytes(&r->feed, data, len);
}

void fileop_run_finish(struct fileop_run *r) {
    if (r->phase != FILEOP_RUN_OVER && !r->cancelled)
        fileop_feed_finish(&r->feed);
}

int fileop_run_take_stdin(struct fileop_run *r) {
    if (fileop_run_open_in(r, NULL) < 0)
        return -1;
    return fileop_feed_take(&r->feed);
}

int fileop_run_take_stdout(struct fileop_run *r) {
    if (r->fd < 0 && fileop_run_pipe(&r->fd, &r->child_out, false, NULL) < 0)
        return -1;
    loop_del(r->lane->loop, &r->source);
    r->taken = r->eof = true;
    (void)fcntl(r->fd, F_SETFL, 0);
    (void)fcntl(r->fd, F_SETPIPE_SZ, FILEOP_RUN_PIPE); /* only a matter of speed */
    return fd_steal(&r->fd);
}
