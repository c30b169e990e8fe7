#include "execs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "seen.h"
#include "server.h"

int execs_hub_scratch(struct exec_hub *hub, struct err *err) {
    fd_close(&hub->scratch[0]);
    fd_close(&hub->scratch[1]);
    if (pipe2(hub->scratch, O_CLOEXEC | O_NONBLOCK) == 0)
        return 0;
    hub->scratch[0] = hub->scratch[1] = -1;
    return err_sys(err, "making a pipe for executions");
}

struct exec_hub *execs_hub_new(struct loop *loop, struct log *log, struct metrics *metrics,
                               struct err *err) {
    struct exec_hub *hub = calloc(1, sizeof(*hub));
    if (hub == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "starting executions: out of memory");
        return NULL;
    }
    hub->loop = loop;
    hub->log = log;
    hub->metrics = metrics;
    hub->scratch[0] = hub->scratch[1] = -1;
    if (execs_hub_scratch(hub, err) < 0) {
        free(hub);
        return NULL;
    }
    return hub;
}

void execs_hub_free(struct exec_hub *hub) {
    if (hub == NULL)
        return;
    fd_close(&hub->scratch[0]);
    fd_close(&hub->scratch[1]);
    free(hub);
}

void execs_log(const struct exec *x, const struct err *err) {
    struct log_line line;
    log_begin(&line, x->set->hub->log, LOG_WARN, "exec_trouble");
    log_str(&line, "exec", x->id);
    log_str(&line, "why", err->text);
    log_end(&line);
}

/* Resting. */

static bool execs_is_idle(const struct execs *set) {
    return set->sandbox != NULL && set->running == 0 && set->pins == 0 && set->log.fd >= 0;
}

/* Whoever is there now makes it rest when he leaves. */
static void execs_rest(void *arg) {
    struct execs *set = arg;
    if (execs_is_idle(set))
        spool_log_close(&set->log);
}

/* The journal may have been opened, and there may be nobody who needs it. */
static void execs_rest_later(struct execs *set) {
    if (execs_is_idle(set) && set->rest.slot == 0)
        (void)loop_timer_at(set->hub->loop, &set->rest,
                            clock_mono_ns() + EXECS_REST_MS * CLOCK_NS_PER_MS, execs_rest, set,
                            NULL);
}

/* The table. */

struct exec *execs_find(const struct execs *set, const char *id) {
    for (struct exec *x = set->newest; x != NULL; x = x->older)
        if (strcmp(x->id, id) == 0)
            return x;
    return NULL;
}

static struct exec *execs_numbered(const struct execs *set, uint32_t number) {
    for (struct exec *x = set->newest; x != NULL; x = x->older)
        if (x->number == number)
            return x;
    return NULL;
}

void execs_insert(struct execs *set, struct exec *x) {
    x->older = set->newest;
    x->newer = NULL;
    if (set->newest != NULL)
        set->newest->newer = x;
    else
        set->oldest = x;
    set->newest = x;
    set->count++;
}

static void execs_remove(struct execs *set, struct exec *x) {
    if (x->newer != NULL)
        x->newer->older = x->older;
    else
        set->newest = x->older;
    if (x->older != NULL)
        x->older->newer = x->newer;
    else
        set->oldest = x->newer;
    set->count--;
}

void execs_forget(struct exec *x, bool record) {
    struct execs *set = x->set;
    struct err err;
    err_clear(&err);
    if (record && exec_record_forget(x, &err) < 0)
        execs_log(x, &err);
    execs_remove(set, x);
    if (x->state == EXEC_DONE)
        set->done--;
    if (record) {
        execs_written(set);
        execs_rest_later(set);
    }
    x->forgotten = true;
    if (x->pins == 0)
        exec_remove(x);
}

/* What is kept. */

static uint64_t execs_size(const struct exec *x) {
    return x->start_place.len + x->end_place.len + spool_bytes(&x->out[SPOOL_STDOUT].spool) +
           spool_bytes(&x->out[SPOOL_STDERR].spool) + spool_bytes(&x->events.file);
}

static void execs_leaves(const struct exec *x) {
    const struct exec_hub *hub = x->set->hub;
    if (hub->leaves != NULL)
        hub->leaves(hub->server, x);
}

/* Forgets the oldest finished ones, as long as there are too many. One that is being read stays for
 * the moment. */
static void execs_evict(struct execs *set) {
    uint64_t bytes = 0, stay = 0;
    size_t kept = 0;
    struct exec *older;
    for (struct exec *x = set->newest; x != NULL; x = older) {
        older = x->older;
        if (x->state != EXEC_DONE)
            continue;
        kept++;
        bytes += execs_size(x);
        if ((kept <= EXECS_KEEP && (bytes <= EXECS_KEEP_BYTES || kept <= 1)) || x->pins > 0) {
            stay += execs_size(x);
            continue;
        }
        execs_leaves(x);
        execs_forget(x, true);
    }
    set->bytes = stay;
}

static uint64_t execs_needed(const struct execs *set) {
    uint64_t bytes = 0;
    for (const struct exec *x = set->newest; x != NULL; x = x->older)
        bytes += x->start_place.len + x->end_place.len + 64;
    return bytes;
}

/* Writes the records that are needed into a new journal, the oldest first. The places are taken
 * over only when it is in place. */
static int execs_copy(struct execs *set, struct spool_log *next, struct spool_log_place *places,
                      struct err *err) {
    size_t n = 0;
    for (struct exec *x = set->oldest; x != NULL; x = x->newer) {
        struct spool_log_place *at = &places[n++ * 2];
        at[0] = x->start_place;
        at[1] = x->end_place;
        if (spool_log_copy(&set->log, next, SPOOL_LOG_START, x->number, &at[0], err) < 0)
            return -1;
        if (x->end_place.len > 0 &&
            spool_log_copy(&set->log, next, SPOOL_LOG_END, x->number, &at[1], err) < 0)
            return -1;
        if (x->state == EXEC_RUNNING && (x->flags & (EXEC_PTY | EXEC_STDIN_OPEN)) != 0 &&
            exec_record_input_to(x, next, err) < 0)
            return -1;
    }
    return 0;
}

static int execs_rewrite(struct execs *set, struct err *err) {
    struct spool_log next;
    struct spool_log_place *places = calloc(set->count * 2 + 1, sizeof(*places));
    if (places == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "writing a journal anew: out of memory");
    int rc = spool_log_open(&set->log, err);
    if (rc == 0)
        rc = spool_log_anew(&set->log, &next, err);
    if (rc == 0) {
        rc = execs_copy(set, &next, places, err);
        if (rc == 0)
            rc = exec_record_room(&next, set->running, 0, err);
        if (rc == 0)
            rc = spool_log_commit(&set->log, &next, err);
        if (rc < 0)
            spool_log_drop(&next);
    }
    size_t n = 0;
    for (struct exec *x = set->oldest; rc == 0 && x != NULL; x = x->newer) {
        x->start_place = places[n * 2];
        x->end_place = places[n++ * 2 + 1];
        exec_record_moved(x);
    }
    free(places);
    return rc;
}

/* Forgotten ones that somebody still reads must not lose what they lie in. */
static bool execs_may_rewrite(const struct execs *set) {
    size_t pins = 0;
    for (const struct exec *x = set->newest; x != NULL; x = x->older)
        pins += x->pins;
    return pins == set->pins;
}

static void execs_tidy(void *arg) {
    struct execs *set = arg;
    struct err err;
    err_clear(&err);
    if (set->sandbox == NULL)
        return;
    if (set->done > EXECS_KEEP || set->bytes > EXECS_KEEP_BYTES)
        execs_evict(set);
    if (set->log.size > EXECS_LOG_MIN && set->log.size > 2 * execs_needed(set) &&
        execs_may_rewrite(set) && execs_rewrite(set, &err) < 0 && set->newest != NULL)
        execs_log(set->newest, &err);
    execs_rest_later(set);
}

/* In the next round: somebody waits for the answer that leaves at the end of this one. */
static void execs_tidy_next(void *arg) {
    struct execs *set = arg;
    if (set->sandbox != NULL)
        loop_defer(set->hub->loop, &set->tidy, execs_tidy, set);
}

static void execs_tidy_soon(struct execs *set) {
    loop_defer(set->hub->loop, &set->tidy, execs_tidy_next, set);
}

void execs_settle(struct execs *set) {
    if (set->sandbox == NULL || !set->tidy.pending)
        return;
    loop_defer_stop(set->hub->loop, &set->tidy);
    execs_tidy(set);
}

void execs_written(struct execs *set) {
    if (set->sandbox != NULL && set->log.size > EXECS_LOG_MIN)
        execs_tidy_soon(set);
}

/* A set that its sandbox has left stays for who reads in it. */
static void execs_let_go(void *arg) {
    struct execs *set = arg;
    if (set->pins > 0)
        return;
    while (set->oldest != NULL) {
        struct exec *x = set->oldest;
        execs_remove(set, x);
        exec_free(x);
    }
    loop_timer_stop(set->hub->loop, &set->rest);
    loop_defer_stop(set->hub->loop, &set->tidy);
    spool_log_close(&set->log);
    if (set->freed)
        free(set);
}

void execs_unpinned(struct execs *set) {
    if (set->sandbox == NULL && set->pins == 0)
        loop_defer(set->hub->loop, &set->tidy, execs_let_go, set);
    execs_rest_later(set);
}

void execs_finished(struct exec *x) {
    struct execs *set = x->set;
    set->running--;
    set->done++;
    set->bytes += execs_size(x);
    seen_exec_ended(x);
    uint64_t cpu_ns = x->usage.cpu_user_ns + x->usage.cpu_system_ns + x->lost_cpu_ns;
    accounts_budget_settle(&x->hold, (cpu_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS);
    if (set->done > EXECS_KEEP || set->bytes > EXECS_KEEP_BYTES)
        execs_tidy_soon(set);
    execs_written(set);
    execs_rest_later(set);
}

/* Coming back. */

static void execs_replay(void *arg, const struct spool_log_record *r) {
    struct execs *set = arg;
    struct exec *x = execs_numbered(set, r->number);
    switch (r->type) {
    case SPOOL_LOG_START:
        x = x == NULL ? exec_record_read_start(set, r) : NULL;
        if (x != NULL)
            execs_insert(set, x);
        break;
    case SPOOL_LOG_END:
        if (x != NULL && exec_record_read_end(x, r) == 0)
            set->done++;
        break;
    case SPOOL_LOG_FORGET:
        if (x != NULL)
            execs_forget(x, false);
        break;
    case SPOOL_LOG_INPUT:
        if (x != NULL)
            exec_record_read_input(x, r);
        break;
    default:
        break;
    }
}

/* The file of a terminal's output is longer than that; what somebody was told was there. */
static void execs_load_terminal(struct exec *x) {
    struct spool *s = &x->out[SPOOL_STDOUT].spool;
    struct err err;
    err_clear(&err);
    if (spool_cut_terminal(s, x->events.end[SPOOL_STDOUT], &err) < 0)
        execs_log(x, &err);
}

/* Of those that have no end: what came of their output. */
static void execs_load_running(struct exec *x) {
    uint64_t total[SPOOL_STREAMS];
    char name[SPOOL_NAME_SIZE];
    struct err err;
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct spool *s = &x->out[i].spool;
        err_clear(&err);
        exec_io_name(x, i == SPOOL_STDOUT ? EXEC_IO_OUT : EXEC_IO_ERR, name);
        if (spool_load(s, name, &err) < 0 && err.code != ENOENT)
            execs_log(x, &err);
        total[i] = s->total;
    }
    err_clear(&err);
    exec_io_name(x, EXEC_IO_EVENTS, name);
    if (spool_events_load(&x->events, name, total, &err) < 0)
        execs_log(x, &err);
    if ((x->flags & EXEC_PTY) != 0)
        execs_load_terminal(x);
    exec_io_recover(x);
    if (x->token != NULL)
        accounts_budget_again(x->token, x->limits.values.v[LIMIT_CPU_MS], &x->hold);
    x->set->running++;
}

static bool execs_lacks(const struct execs *set, const struct spool *s) {
    return spool_has_file(s) && faccessat(set->dir, s->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
           errno == ENOENT;
}

/* One whose files are gone was forgotten, and the record of that was not written (a full disk). */
static void execs_load_done(struct exec *x) {
    struct execs *set = x->set;
    if (execs_lacks(set, &x->out[SPOOL_STDOUT].spool) ||
        execs_lacks(set, &x->out[SPOOL_STDERR].spool) || execs_lacks(set, &x->events.file))
        execs_forget(x, false);
    else
        set->bytes += execs_size(x);
}

static int execs_load(struct execs *set, struct err *err) {
    if (!spool_log_exists(&set->log))
        return 0;
    if (spool_log_load(&set->log, execs_replay, set, err) < 0)
        return -1;
    struct exec *older;
    for (struct exec *x = set->newest; x != NULL; x = older) {
        older = x->older;
        if (x->state == EXEC_RUNNING)
            execs_load_running(x);
        else
            execs_load_done(x);
    }
    execs_tidy(set);
    return 0;
}

static void execs_adopted(void *part, const struct wire_kept_exec *kept, int fds[][LINK_KEEP_FDS],
                          size_t count) {
    struct execs *set = part;
    for (size_t i = 0; i < count; i++) {
        struct exec *x = execs_numbered(set, kept[i].head.exec);
        /* What is over for us, or unknown, is not adopted: the sandbox ends it. */
        if (x != NULL && x->state == EXEC_RUNNING && x->task.sandbox == NULL)
            exec_adopt(x, fds[i]);
        for (int k = 0; k < LINK_KEEP_FDS; k++)
            fd_close(&fds[i][k]);
    }
    struct exec *older;
    for (struct exec *x = set->newest; x != NULL; x = older) {
        older = x->older;
        if (x->state == EXEC_RUNNING && x->task.sandbox == NULL)
            exec_abort(x, CAUSE_INTERRUPTED);
        else if (x->state == EXEC_RUNNING)
            exec_stdin_again(x);
    }
}

/* What is open can still be read, and nothing is opened or removed by name any more: also nothing
 * of executions that are forgotten and pinned, which no table leads to. The number of the
 * descriptor will soon be that of another sandbox. */
static void execs_leave(struct execs *set) {
    set->log.dir = -1;
    set->dir = -1;
    set->sandbox = NULL;
    loop_defer_stop(set->hub->loop, &set->tidy);
}

static void execs_gone(void *part) {
    struct execs *set = part;
    for (struct exec *x = set->newest; x != NULL; x = x->older)
        exec_abort(x, CAUSE_INTERRUPTED); /* those that no adoption has found */
    for (const struct exec *x = set->oldest; x != NULL; x = x->newer)
        execs_leaves(x);
    execs_leave(set);
    execs_let_go(set);
}

static bool execs_rests(const void *part) {
    const struct execs *set = part;
    return set->oldest == NULL && set->pins == 0;
}

/* Also without having been gone: the server stops, and what runs goes on. */
static void execs_free(void *part) {
    struct execs *set = part;
    execs_leave(set);
    set->freed = true;
    execs_let_go(set);
}

const struct sandbox_part_ops execs_part_ops = {
    .free = execs_free, .adopted = execs_adopted, .gone = execs_gone, .rests = execs_rests};

struct execs *execs_of(const struct sandbox *sb) {
    return sandbox_part(sb, SANDBOX_EXECS);
}

struct execs *execs_new(struct exec_hub *hub, struct sandbox *sb, struct err *err) {
    struct execs *set = calloc(1, sizeof(*set));
    if (set == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "keeping executions: out of memory");
        return NULL;
    }
    set->hub = hub;
    set->sandbox = sb;
    set->dir = sandbox_dir(sb);
    spool_log_init(&set->log, set->dir);
    if (execs_load(set, err) < 0) {
        set->freed = true;
        execs_let_go(set);
        return NULL;
    }
    sandbox_part_set(sb, SANDBOX_EXECS, &execs_part_ops, set);
    return set;
}

int execs_attach(struct server *s, struct sandbox *sb, struct err *err) {
    if (execs_of(sb) != NULL)
        return 0;
    if (s->exec_hub == NULL)
        s->exec_hub = execs_hub_new(s->loop, &s->log, &s->metrics, err);
    if (s->exec_hub != NULL) {
        s->exec_hub->audit = &s->audit;
        s->exec_hub->ended = s->exec_ended;
        s->exec_hub->server = s;
        s->exec_hub->leaves = s->exec_leaves;
        s->exec_hub->accounts = s->accounts.accounts;
        s->exec_hub->pipes = &s->runs.pipes;
    }
    if (s->exec_hub == NULL)
        return -1;
    return execs_new(s->exec_hub, sb, err) != NULL ? 0 : -1;
}
