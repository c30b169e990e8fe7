#include "execution.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "accounts.h"
#include "clock.h"
#include "end_wire.h"
#include "execs.h"
#include "fd.h"
#include "receipt_exec.h"
#include "str.h"
#include "text.h"

/* An execution that is over before this needs no watching of its pipes, and no files: what they
 * hold is copied into the journal at its END. A program that fills a pipe meanwhile waits a little,
 * once. With somebody who follows it the time is shorter. */
#define EXEC_LISTEN_NS (25 * CLOCK_NS_PER_MS)
#define EXEC_FOLLOW_NS (2 * CLOCK_NS_PER_MS)

/* What it runs, for people: its arguments with blanks between, cut. */
static char *exec_command_text(const struct request_step *step) {
    char text[EXEC_COMMAND_SIZE];
    size_t len = 0;
    for (size_t i = 0; i < step->argc && len < sizeof(text) - 1; i++) {
        size_t room = sizeof(text) - 1 - len, n = strlen(step->argv[i]);
        if (i > 0) {
            text[len++] = ' ';
            room--;
        }
        n = n < room ? n : room;
        memcpy(text + len, step->argv[i], n);
        len += n;
    }
    return strndup(text, text_utf8_prefix(text, len, NULL));
}

static void exec_init_streams(struct exec *x, const int *dir) {
    uint64_t cap = x->limits.values.v[LIMIT_OUTPUT_BYTES];
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct exec_stream *s = &x->out[i];
        s->exec = x;
        s->which = (enum spool_stream)i;
        s->fd = -1;
        s->source.fd = -1;
        spool_init(&s->spool, dir, cap);
    }
    spool_events_init(&x->events, dir);
    inlet_init(&x->input.inlet);
    x->input.fd = -1;
    x->input.source.fd = -1;
}

struct exec *exec_new(struct execs *set, const struct exec_birth *birth, struct err *err) {
    struct exec *x = calloc(1, sizeof(*x));
    if (x != NULL) {
        x->set = set;
        x->limits = *birth->limits;
        exec_init_streams(x, &set->dir);
        x->name = strdup(birth->name);
        x->command = birth->step != NULL ? exec_command_text(birth->step) : strdup(birth->command);
    }
    if (x == NULL || x->name == NULL || x->command == NULL) {
        exec_free(x);
        err_set(err, ERR_SYSTEM, ENOMEM, "making an execution: out of memory");
        return NULL;
    }
    str_copy(x->id, sizeof(x->id), birth->id);
    if (birth->hash != NULL)
        memcpy(x->hash, birth->hash, sizeof(x->hash));
    if (birth->trace != NULL)
        x->trace = *birth->trace;
    x->flags = birth->flags;
    x->rows = birth->rows;
    x->cols = birth->cols;
    x->end_on = birth->end_on;
    x->created_ms = clock_real_ms();
    x->task.ops = &exec_task_ops;
    x->task.command = true;
    end_init(&x->end, CAUSE_NONE);
    return x;
}

void exec_free(struct exec *x) {
    if (x == NULL)
        return;
    struct loop *loop = x->set->hub->loop;
    loop_timer_stop(loop, &x->listen);
    exec_stdin_close(x);
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        exec_io_close(&x->out[i]);
        spool_done(&x->out[i].spool);
    }
    spool_events_done(&x->events);
    free(x->name);
    free(x->command);
    free(x->trace_state);
    receipt_exec_free(x->receipt);
    accounts_budget_settle(&x->hold, 0);
    accounts_token_unref(x->token);
    free(x);
}

void exec_remove(struct exec *x) {
    spool_remove(&x->out[SPOOL_STDOUT].spool);
    spool_remove(&x->out[SPOOL_STDERR].spool);
    spool_remove(&x->events.file);
    exec_free(x);
}

static void exec_listen(void *arg) {
    struct exec *x = arg;
    exec_io_watch(&x->out[SPOOL_STDOUT]);
    exec_io_watch(&x->out[SPOOL_STDERR]);
}

static void exec_listen_in(struct exec *x, uint64_t ns) {
    struct loop *loop = x->set->hub->loop;
    if (loop_timer_at(loop, &x->listen, clock_mono_ns() + ns, exec_listen, x, NULL) < 0)
        exec_listen(x);
}

/* Watching. */

void exec_pin(struct exec *x) {
    x->pins++;
    x->set->pins++;
    if (x->set->log.fd < 0 && x->state == EXEC_DONE)
        (void)spool_log_open(&x->set->log, NULL); /* reading says what is wrong */
}

void exec_unpin(struct exec *x) {
    struct execs *set = x->set;
    set->pins--;
    if (--x->pins == 0) {
        if (x->forgotten) {
            exec_remove(x);
        } else if (x->state == EXEC_DONE) {
            spool_rest(&x->out[SPOOL_STDOUT].spool);
            spool_rest(&x->out[SPOOL_STDERR].spool);
            spool_rest(&x->events.file);
        }
    }
    execs_unpinned(set);
}

void exec_watch(struct exec *x, struct exec_watcher *w) {
    w->exec = x;
    w->prev = NULL;
    w->next = x->watchers;
    if (w->next != NULL)
        w->next->prev = w;
    x->watchers = w;
    exec_pin(x);
    if (w->follows && x->listen.slot != 0)
        exec_listen_in(x, EXEC_FOLLOW_NS);
}

void exec_unwatch(struct exec_watcher *w) {
    struct exec *x = w->exec;
    if (x == NULL)
        return;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        x->watchers = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->exec = NULL;
    exec_unpin(x);
}

/* `changed` may take its own watcher off, and no other. */
static void exec_tell(struct exec *x, bool all) {
    struct exec_watcher *next;
    for (struct exec_watcher *w = x->watchers; w != NULL; w = next) {
        next = w->next;
        if (all || w->follows)
            w->changed(w);
    }
}

void exec_notify(struct exec *x) {
    exec_tell(x, false);
}

uint64_t exec_last_seq(const struct exec *x) {
    return EXEC_SEQ_STARTED + x->events.count + (x->state == EXEC_DONE ? 2u : 0u);
}

/* Running. */

void exec_begun(struct exec *x) {
    x->set->running++;
    x->began = x->set->sandbox != NULL ? sandbox_activity(x->set->sandbox).writes : 0;
    exec_listen_in(x, EXEC_LISTEN_NS);
}

void exec_kill(struct exec *x, enum cause cause) {
    if (x->state != EXEC_RUNNING || x->killed || x->task.sandbox == NULL)
        return;
    x->killed = true;
    sandbox_task_kill(&x->task, cause);
}

int exec_resize(struct exec *x, uint16_t rows, uint16_t cols, struct err *err) {
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    int master = x->out[SPOOL_STDOUT].fd;
    x->rows = rows;
    x->cols = cols;
    /* Before the terminal is there, and after it has hung up, there is nobody to tell. */
    if (master >= 0 && ioctl(master, TIOCSWINSZ, &size) < 0)
        return err_sys(err, "changing the size of a terminal");
    return 0;
}

static void exec_started(struct sandbox_task *t, int master) {
    struct exec *x = (struct exec *)(void *)t;
    exec_take_master(x, master, true);
}

void exec_take_master(struct exec *x, int master, bool fresh) {
    struct winsize size = {0};
    struct exec_stream *s = &x->out[SPOOL_STDOUT];
    int mine = master;
    if ((x->flags & EXEC_PTY) == 0 || s->fd >= 0 || x->state != EXEC_RUNNING) {
        fd_close(&mine);
        return;
    }
    (void)fcntl(master, F_SETFL, O_NONBLOCK);
    s->fd = master;
    /* The size may have been changed before it came; of an adopted one only itself knows. */
    if (fresh) {
        (void)exec_resize(x, x->rows, x->cols, NULL);
    } else if (ioctl(master, TIOCGWINSZ, &size) == 0) {
        x->rows = size.ws_row;
        x->cols = size.ws_col;
    }
    exec_io_watch(s);
    /* A descriptor can be in the loop once. */
    int input = fcntl(master, F_DUPFD_CLOEXEC, 0);
    if (input >= 0)
        exec_stdin_open(x, input);
    else
        exec_stdin_close(x);
}

/* What it wrote could not be kept: that is our fault. */
static void exec_spool_end(struct exec *x) {
    end_init(&x->end, CAUSE_INTERNAL);
    str_copy(x->end.stage, sizeof(x->end.stage), "spool");
    x->end.code = x->spool_error;
}

/* On a full disk it has ended as it has, and the next server will know at least that. */
static void exec_unkept(struct exec *x, const struct err *why) {
    struct err err;
    err_clear(&err);
    execs_log(x, why);
    if (!exec_io_no_space(why)) {
        x->spool_error = why->code != 0 ? why->code : EIO;
        exec_spool_end(x);
        x->ok = false;
    }
    if (exec_record_end_bare(x, &err) < 0)
        execs_log(x, &err);
}

/* After a restart of the server nobody knows what was done meanwhile. */
static uint32_t exec_others(const struct exec *x) {
    uint64_t now =
        x->set->sandbox != NULL && x->began != 0 ? sandbox_activity(x->set->sandbox).writes : 0;
    return x->began != 0 && now >= x->began && now - x->began < UINT32_MAX
               ? (uint32_t)(now - x->began)
               : UINT32_MAX;
}

/* It is over, in every respect but the records. */
static void exec_over(struct exec *x, struct exec_record_rest *rest) {
    struct exec_hub *hub = x->set->hub;
    struct err err;
    err_clear(&err);
    loop_timer_stop(hub->loop, &x->listen);
    exec_stdin_close(x);
    x->ended_ms = clock_real_ms();
    x->others = exec_others(x);
    if (spool_events_finish(&x->events, &err) < 0 && !exec_io_no_space(&err))
        x->spool_error = err.code != 0 ? err.code : EIO;
    if (x->spool_error != 0)
        exec_spool_end(x);
    x->ok = end_ok(&x->end);
    x->state = EXEC_DONE;
    if (exec_record_end(x, rest, &err) < 0)
        exec_unkept(x, &err);
    /* What lies in the pipes is in the journal now. */
    exec_io_close(&x->out[SPOOL_STDOUT]);
    exec_io_close(&x->out[SPOOL_STDERR]);
    if (hub->ended != NULL)
        hub->ended(hub->audit, x);
    exec_pin(x);
    execs_finished(x);
    exec_tell(x, true);
    exec_unpin(x);
}

static void exec_drain(struct exec *x, struct exec_record_rest *rest) {
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        char *copy = x->set->hub->copies[i];
        rest->data[i] = copy;
        rest->len[i] = exec_io_last(&x->out[i], copy);
    }
    for (int i = 0; i < SPOOL_STREAMS; i++)
        spool_finish(&x->out[i].spool);
}

static void exec_ended(struct sandbox_task *t, const struct wire_end *wire) {
    struct exec *x = (struct exec *)(void *)t;
    struct exec_record_rest rest = {0};
    if (x->state != EXEC_RUNNING)
        return;
    exec_drain(x, &rest);
    uint64_t out = x->out[SPOOL_STDOUT].spool.total, err = x->out[SPOOL_STDERR].spool.total;
    x->usage = wire->usage;
    x->setup_ns = wire->setup_ns;
    end_wire_read(wire, out > err ? out : err, x->limits.values.v[LIMIT_OUTPUT_BYTES], &x->end);
    exec_over(x, &rest);
}

void exec_abort(struct exec *x, enum cause cause) {
    struct exec_record_rest rest = {0};
    if (x->state != EXEC_RUNNING)
        return;
    exec_drain(x, &rest);
    end_init(&x->end, cause);
    if (cause == CAUSE_INTERNAL) {
        const struct sandbox_failure *why = sandbox_failure(x->set->sandbox);
        str_copy(x->end.stage, sizeof(x->end.stage), why->stage);
        x->end.code = why->code;
    }
    exec_over(x, &rest);
}

/* All its processors from the beginning to now, and no more than its limit. */
static uint64_t exec_worst_cpu_ns(const struct sandbox_task *t) {
    const struct exec *x = (const struct exec *)(const void *)t;
    const uint64_t *limits = x->limits.values.v;
    uint64_t now = clock_real_ms(), ran = now > x->created_ms ? now - x->created_ms : 0;
    uint64_t cpus = (limits[LIMIT_CPUS_MILLI] + 999) / 1000;
    uint64_t most = limits[LIMIT_CPU_MS];
    uint64_t ms = cpus > 0 && ran > most / cpus ? most : ran * cpus;
    return (ms < UINT64_MAX / CLOCK_NS_PER_MS ? ms : 0) * CLOCK_NS_PER_MS;
}

static void exec_lost(struct sandbox_task *t, enum cause cause) {
    struct exec *x = (struct exec *)(void *)t;
    if (cause == CAUSE_CANCELLED && x->state == EXEC_RUNNING)
        x->lost_cpu_ns = exec_worst_cpu_ns(t);
    exec_abort((struct exec *)(void *)t, cause);
}

const struct sandbox_task_ops exec_task_ops = {.started = exec_started,
                                               .ended = exec_ended,
                                               .lost = exec_lost,
                                               .worst_cpu_ns = exec_worst_cpu_ns};

void exec_adopt(struct exec *x, int fds[LINK_KEEP_FDS]) {
    struct exec_stream *out = &x->out[SPOOL_STDOUT], *err = &x->out[SPOOL_STDERR];
    sandbox_task_adopt(x->set->sandbox, &x->task, x->number);
    exec_stdin_adopt(x, fd_steal(&fds[LINK_KEEP_INPUT]));
    if ((x->flags & EXEC_PTY) != 0) {
        if (fds[LINK_KEEP_STDOUT] >= 0)
            exec_take_master(x, fd_steal(&fds[LINK_KEEP_STDOUT]), false);
    } else {
        out->fd = fd_steal(&fds[LINK_KEEP_STDOUT]);
        err->fd = fd_steal(&fds[LINK_KEEP_STDERR]);
        if (fds[LINK_KEEP_STDIN] >= 0 && (x->input.open || x->input.ending))
            exec_stdin_open(x, fd_steal(&fds[LINK_KEEP_STDIN]));
        else
            exec_stdin_close(x);
    }
    for (int i = 0; i < LINK_KEEP_FDS; i++)
        fd_close(&fds[i]);
    exec_listen(x);
}
