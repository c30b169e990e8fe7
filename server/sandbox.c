#include "sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "accounts_budget.h"
#include "clock.h"
#include "fd.h"
#include "id.h"
#include "sandbox_internal.h"
#include "str.h"

struct sandbox *sandbox_new(struct sandboxes *all, const char *owner, struct err *err) {
    size_t owner_size = strlen(owner) + 1;
    struct sandbox *sb = calloc(1, sizeof(*sb) + owner_size);
    struct sandbox_live *live = calloc(1, sizeof(*live));
    if (sb == NULL || live == NULL) {
        free(sb);
        free(live);
        err_set(err, ERR_SYSTEM, ENOMEM, "making a sandbox: out of memory");
        return NULL;
    }
    sb->all = all;
    sb->live = live;
    live->sandbox = sb;
    memcpy(sb->owner, owner, owner_size);
    sb->live->dir = -1;
    sb->live->depth = -1;
    sb->live->number_floor = SANDBOX_NUMBERS;
    sb->live->next_number = 1; /* 0 = none */
    str_copy(sb->live->failed.stage, sizeof(sb->live->failed.stage), "sandbox");
    sb->live->used_ns = clock_mono_ns();
    return sb;
}

static void sandbox_drop_kept(struct sandbox *sb) {
    for (size_t i = 0; i < sb->live->kept_count; i++)
        for (size_t k = 0; k < LINK_KEEP_FDS; k++)
            fd_close(&sb->live->kept[i].fds[k]);
    free(sb->live->kept);
    sb->live->kept = NULL;
    sb->live->kept_count = 0;
}

static void sandbox_free_live(struct sandbox *sb) {
    if (sb->live == NULL)
        return;
    loop_timer_stop(sb->all->loop, &sb->live->life);
    loop_timer_stop(sb->all->loop, &sb->live->watchdog);
    sandbox_settle(sb, UINT64_MAX);
    for (size_t i = 0; i < SANDBOX_PARTS; i++)
        if (sb->live->parts[i].part != NULL)
            sb->live->parts[i].ops->free(sb->live->parts[i].part);
    while (sb->live->waits != NULL)
        sandbox_wait_stop(sb->live->waits);
    while (sb->live->ops != NULL) {
        struct sandbox_op *op = sb->live->ops;
        sb->live->ops = op->next;
        free(op);
    }
    sandbox_drop_kept(sb);
    if (sb->all->store != NULL)
        store_then_stop(sb->all->store, &sb->live->written);
    quota_let_go(sb->all->quota, &sb->live->held);
    hostmem_give(sb->all->mem, &sb->live->mem);
    sandbox_spec_done(&sb->live->spec);
    fd_close(&sb->live->dir);
    free(sb->live);
    sb->live = NULL;
}

void sandbox_free(struct sandbox *sb) {
    if (sb == NULL)
        return;
    sandbox_free_live(sb);
    free(sb->detail);
    free(sb);
}

static bool sandbox_rests(const struct sandbox *sb) {
    const struct sandbox_live *live = sb->live;
    if (sb->state != SANDBOX_GONE || live->closing || live->holds > 0 || live->tasks != NULL ||
        live->ops != NULL || live->waits != NULL || live->unsaved || live->written.waiting)
        return false;
    for (size_t i = 0; i < SANDBOX_PARTS; i++) {
        const struct sandbox_part_ops *ops = live->parts[i].ops;
        if (live->parts[i].part != NULL && ops->rests != NULL && !ops->rests(live->parts[i].part))
            return false;
    }
    return true;
}

bool sandbox_shrink(struct sandbox *sb) {
    if (!sandbox_rests(sb))
        return false;
    if (sb->live->detail[0] != '\0' && (sb->detail = strdup(sb->live->detail)) == NULL)
        return false;
    sandbox_free_live(sb);
    return true;
}

void sandbox_hold(struct sandbox *sb) {
    sb->live->holds++;
}

void sandbox_release(struct sandbox *sb) {
    sb->live->holds--;
}

/* Tasks. */

static void sandbox_add_task(struct sandbox *sb, struct sandbox_task *t, uint32_t number) {
    t->sandbox = sb;
    t->number = number;
    t->kill = CAUSE_NONE;
    t->prev = NULL;
    t->next = sb->live->tasks;
    if (t->next != NULL)
        t->next->prev = t;
    sb->live->tasks = t;
    sb->live->task_count++;
    sb->live->started++;
    if (t->command && sb->live->command_count++ == 0 && sb->all->processors != NULL)
        processors_busy(sb->all->processors, &sb->live->processors, sandbox_owner(sb),
                        sb->live->held.user != NULL ? sb->live->held.user->weight : 0,
                        &sb->live->jail);
    if (!t->reads) {
        sb->live->writes++;
        sb->live->writing_count++;
    }
}

static void sandbox_remove_task(struct sandbox *sb, struct sandbox_task *t) {
    if (t->prev != NULL)
        t->prev->next = t->next;
    else
        sb->live->tasks = t->next;
    if (t->next != NULL)
        t->next->prev = t->prev;
    t->sandbox = NULL;
    sb->live->task_count--;
    if (t->command && --sb->live->command_count == 0 && sb->all->processors != NULL)
        processors_rest(sb->all->processors, &sb->live->processors, PROCESSORS_UNKNOWN_NS);
    if (!t->reads)
        sb->live->writing_count--;
}

static struct sandbox_task *sandbox_find_task(const struct sandbox *sb, uint32_t number) {
    struct sandbox_task *t = sb->live->tasks;
    while (t != NULL && t->number != number)
        t = t->next;
    return t;
}

int sandbox_reserve_numbers(struct sandbox *sb, struct err *err) {
    uint32_t before = sb->live->number_floor;
    if (sb->live->next_number > UINT32_MAX - 2 * SANDBOX_NUMBERS)
        return err_set(err, ERR_LIMIT, 0, "the sandbox has run as many commands as it can");
    sb->live->number_floor = sb->live->next_number + SANDBOX_NUMBERS;
    if (sandbox_store_write_now(sb, err) == 0)
        return 0;
    sb->live->number_floor = before;
    return -1;
}

static int sandbox_take_number(struct sandbox *sb, struct err *err) {
    return sb->live->next_number < sb->live->number_floor ? 0 : sandbox_reserve_numbers(sb, err);
}

static int sandbox_may_start(const struct sandbox *sb, const struct sandbox_task *t,
                             struct err *err) {
    if (sb->state == SANDBOX_GONE)
        return err_set(err, ERR_STATE, 0, "the sandbox is gone");
    if (sb->live->jail == NULL || sb->detached || sb->state == SANDBOX_OPENING)
        return err_set(err, ERR_STATE, 0, "the sandbox is not ready");
    if (t->command && (sb->state == SANDBOX_PAUSED || sb->live->frozen))
        return err_set(err, ERR_STATE, 0, "the sandbox is paused: resume it first");
    if (sb->live->restoring > 0)
        return err_set(err, ERR_STATE, 0, "the sandbox is being restored");
    uint32_t max = link_of(sb->live->jail)->welcome.execs;
    if (sb->live->task_count >= max)
        return err_set(err, ERR_LIMIT, 0,
                       "%zu commands and file operations run in the sandbox; at most %u can",
                       sb->live->task_count, max);
    return 0;
}

uint32_t sandbox_number(struct sandbox *sb) {
    return sandbox_take_number(sb, NULL) < 0 ? 0 : sb->live->next_number++;
}

int sandbox_exec(struct sandbox *sb, struct sandbox_task *t, const struct link_exec *x,
                 struct err *err) {
    struct link_exec packet = *x;
    if (sandbox_may_start(sb, t, err) < 0 || (t->number == 0 && sandbox_take_number(sb, err) < 0))
        return -1;
    packet.open = NULL;
    packet.number = t->number != 0 ? t->number : sb->live->next_number++;
    if (link_exec(sb->live->jail, &packet, err) < 0)
        return -1;
    sandbox_add_task(sb, t, packet.number);
    if (t->command)
        sb->live->executions++;
    return 0;
}

void sandbox_task_adopt(struct sandbox *sb, struct sandbox_task *t, uint32_t number) {
    sandbox_add_task(sb, t, number);
}

void sandbox_task_kill(struct sandbox_task *t, enum cause cause) {
    struct sandbox *sb = t->sandbox;
    if (sb == NULL || t->kill != CAUSE_NONE)
        return;
    t->kill = cause;
    if (sb->live->jail != NULL && !sb->detached)
        link_kill(sb->live->jail, t->number, cause);
}

void sandbox_task_signal(struct sandbox_task *t, int signal) {
    struct sandbox *sb = t->sandbox;
    if (sb != NULL && sb->live->jail != NULL && !sb->detached)
        link_signal(sb->live->jail, t->number, signal);
}

/* How much it was is known when it is dead: until then the most that it can be is counted. */
static void sandbox_owe(struct sandbox *sb, const struct sandbox_task *t) {
    struct accounts_token *token = t->token != NULL ? t->token : sb->live->held.token;
    uint64_t cpu_ns = t->ops->worst_cpu_ns(t);
    struct sandbox_owed *owed = realloc(sb->live->owed, (sb->live->owed_count + 1) * sizeof(*owed));
    quota_spent(sb->all->quota, sb->live->held.user, token, cpu_ns);
    if (owed == NULL)
        return; /* it stays counted */
    sb->live->owed = owed;
    owed[sb->live->owed_count].token = token != NULL ? accounts_token_ref(token) : NULL;
    owed[sb->live->owed_count++].cpu_ns = cpu_ns;
}

/* Several share it by what each was counted as. */
void sandbox_settle(struct sandbox *sb, uint64_t cpu_ns) {
    uint64_t counted = 0;
    for (size_t i = 0; i < sb->live->owed_count; i++)
        counted += sb->live->owed[i].cpu_ns;
    for (size_t i = 0; i < sb->live->owed_count; i++) {
        struct sandbox_owed *o = &sb->live->owed[i];
        if (cpu_ns < counted) {
            /* In milliseconds the product is small enough. */
            uint64_t share = (o->cpu_ns / CLOCK_NS_PER_MS) * (cpu_ns / CLOCK_NS_PER_MS + 1) /
                             (counted / CLOCK_NS_PER_MS + 1);
            uint64_t used =
                share * CLOCK_NS_PER_MS < o->cpu_ns ? share * CLOCK_NS_PER_MS : o->cpu_ns;
            quota_unspent(sb->all->quota, sb->owner, o->token, o->cpu_ns - used);
            accounts_budget_refund(o->token, (o->cpu_ns - used) / CLOCK_NS_PER_MS);
        }
        if (o->token != NULL)
            accounts_token_unref(o->token);
    }
    free(sb->live->owed);
    sb->live->owed = NULL;
    sb->live->owed_count = 0;
}

void sandbox_lose_tasks(struct sandbox *sb, enum cause cause) {
    while (sb->live->tasks != NULL) {
        struct sandbox_task *t = sb->live->tasks;
        /* Or whoever deletes the sandbox before the end has used nothing. */
        if (cause == CAUSE_CANCELLED && t->ops->worst_cpu_ns != NULL)
            sandbox_owe(sb, t);
        sandbox_remove_task(sb, t);
        t->ops->lost(t, cause);
    }
}

/* What it used as a whole, as far as ENDs tell. */
static void sandbox_measure(struct sandbox *sb, const struct wire_usage *u) {
    sb->live->disk_bytes = u->disk_bytes;
    sb->live->inodes = u->inodes;
    if (u->mem_peak_bytes > sb->live->mem_peak_bytes)
        sb->live->mem_peak_bytes = u->mem_peak_bytes;
    sb->live->measured = true;
}

void sandbox_ended(struct sandbox *sb, const struct wire_end *end) {
    struct sandbox_task *t = sandbox_find_task(sb, end->head.exec);
    if (t == NULL) {
        /* Of an earlier server's, or of one that was given up: nobody wants to know. */
        if (end->head.exec >= sb->live->next_number)
            link_fail(sb->live->jail, "an end came for what was not running");
        return;
    }
    sandbox_measure(sb, &end->usage);
    quota_spent(sb->all->quota, sb->live->held.user,
                t->token != NULL ? t->token : sb->live->held.token,
                end->usage.cpu_user_ns + end->usage.cpu_system_ns);
    sandbox_remove_task(sb, t);
    sandbox_touch(sb);
    t->ops->ended(t, end);
}

void sandbox_started(struct sandbox *sb, uint32_t number, int master) {
    struct sandbox_task *t = sandbox_find_task(sb, number);
    if (t != NULL && t->ops->started != NULL)
        t->ops->started(t, master);
    else
        fd_close(&master);
}

/* Adoption. */

static bool sandbox_was_kept(const struct sandbox *sb, uint32_t number) {
    for (size_t i = 0; i < sb->live->kept_count; i++)
        if (sb->live->kept[i].exec.head.exec == number)
            return true;
    return false;
}

static void sandbox_lose_unkept(struct sandbox *sb) {
    struct sandbox_task *t = sb->live->tasks;
    while (t != NULL) {
        if (sandbox_was_kept(sb, t->number)) {
            t = t->next;
            continue;
        }
        sandbox_remove_task(sb, t);
        t->ops->lost(t, CAUSE_INTERRUPTED);
        t = sb->live->tasks; /* it may have done anything to the list */
    }
    for (t = sb->live->jail != NULL ? sb->live->tasks : NULL; t != NULL; t = t->next)
        if (t->kill != CAUSE_NONE)
            link_kill(sb->live->jail, t->number, t->kill);
}

static void sandbox_tell_kept(struct sandbox *sb, const struct sandbox_part_ops *ops, void *part) {
    struct wire_kept_exec *kept = calloc(sb->live->kept_count + 1, sizeof(*kept));
    int(*fds)[LINK_KEEP_FDS] = calloc(sb->live->kept_count + 1, sizeof(*fds));
    size_t n = 0;
    for (size_t i = 0; kept != NULL && fds != NULL && i < sb->live->kept_count; i++) {
        if (sandbox_find_task(sb, sb->live->kept[i].exec.head.exec) != NULL)
            continue; /* the connection was away, not the server: its owner has everything */
        kept[n] = sb->live->kept[i].exec;
        for (size_t k = 0; k < LINK_KEEP_FDS; k++)
            fds[n][k] = fd_steal(&sb->live->kept[i].fds[k]);
        n++;
    }
    if (kept != NULL && fds != NULL)
        ops->adopted(part, kept, fds, n);
    for (size_t i = 0; fds != NULL && i < n; i++)
        for (size_t k = 0; k < LINK_KEEP_FDS; k++)
            fd_close(&fds[i][k]);
    free(kept);
    free(fds);
}

void sandbox_take_kept(struct sandbox *sb) {
    for (size_t i = 0; i < sb->live->kept_count; i++)
        if (sb->live->kept[i].exec.head.exec >= sb->live->next_number)
            sb->live->next_number = sb->live->kept[i].exec.head.exec + 1;
    sandbox_lose_unkept(sb);
    for (size_t i = 0; i < SANDBOX_PARTS && sb->live->jail != NULL; i++)
        if (sb->live->parts[i].part != NULL && sb->live->parts[i].ops->adopted != NULL)
            sandbox_tell_kept(sb, sb->live->parts[i].ops, sb->live->parts[i].part);
    for (size_t i = 0; i < sb->live->kept_count && sb->live->jail != NULL; i++) {
        const struct wire_kept_exec *kept = &sb->live->kept[i].exec;
        /* Nothing is kept for file operations but that they run. */
        if (sandbox_find_task(sb, kept->head.exec) == NULL &&
            (kept->fds != 0 || sandbox_orphan_adopt(sb, kept->head.exec) < 0))
            link_kill(sb->live->jail, kept->head.exec, CAUSE_INTERRUPTED);
    }
    sandbox_drop_kept(sb);
}

/* What others ask. */

bool sandbox_busy(const struct sandbox *sb) {
    if (sb->live->ops != NULL)
        return true;
    return sb->state == SANDBOX_PAUSED ? sb->live->task_count > sb->live->command_count
                                       : sb->live->task_count > 0;
}

void sandbox_touch(struct sandbox *sb) {
    sb->live->used_ns = clock_mono_ns();
}

const char *sandbox_id(const struct sandbox *sb) {
    return sb->id;
}

/* What there is of one that has nothing left. */
static const struct sandbox_live sandbox_nothing = {
    .spec = {.backend = BACKEND_NATIVE}, .dir = -1, .failed = {.stage = "sandbox"}};

const struct sandbox_live *sandbox_left(const struct sandbox *sb) {
    return sb->live != NULL ? sb->live : &sandbox_nothing;
}

const struct sandbox_failure *sandbox_failure(const struct sandbox *sb) {
    return &sandbox_left(sb)->failed;
}

const struct trace *sandbox_trace(const struct sandbox *sb) {
    return &sb->trace;
}

const char *sandbox_owner(const struct sandbox *sb) {
    return sb->owner;
}

enum sandbox_state sandbox_state(const struct sandbox *sb) {
    return sb->state;
}

const struct wire_policy *sandbox_policy(const struct sandbox *sb) {
    return &sandbox_left(sb)->spec.policy;
}

const struct limits_effective *sandbox_limits(const struct sandbox *sb) {
    return &sandbox_left(sb)->spec.limits;
}

const struct request_env *sandbox_env(const struct sandbox *sb) {
    return &sandbox_left(sb)->spec.env;
}

int sandbox_dir(const struct sandbox *sb) {
    return sandbox_left(sb)->dir;
}

struct loop *sandbox_loop(const struct sandbox *sb) {
    return sb->all->loop;
}

const struct sandbox_spec *sandbox_spec(const struct sandbox *sb) {
    return &sandbox_left(sb)->spec;
}

struct link *sandbox_link(const struct sandbox *sb) {
    struct link_jail *jail = sandbox_left(sb)->jail;
    return jail != NULL && !sb->detached ? link_of(jail) : NULL;
}

const struct link_jail *sandbox_jail(const struct sandbox *sb) {
    return sandbox_left(sb)->jail;
}

const char *sandbox_shard(const struct sandbox *sb) {
    return sandbox_left(sb)->shard;
}

struct sandbox *sandbox_older(const struct sandbox *sb) {
    return sb->older;
}

struct sandbox_activity sandbox_activity(const struct sandbox *sb) {
    const struct sandbox_live *live = sandbox_left(sb);
    return (struct sandbox_activity){
        .started = live->started,
        .running = live->task_count,
        .commands = live->command_count,
        .writes = live->writes,
        .writing = live->writing_count,
    };
}

uint64_t sandbox_layer_serial(const struct sandbox *sb) {
    return sandbox_left(sb)->layers;
}

/* Boundaries. */

struct sandbox_boundary_wait {
    void (*done)(void *arg, int code);
    void *arg;
};

static void sandbox_boundary_done(void *arg, struct sandbox *sb, const struct wire_done *done) {
    struct sandbox_boundary_wait *w = arg;
    int code = done == NULL ? ECANCELED : done->code;
    /* A copy was made instead: the live layer is the one that it was. */
    if (code == 0 && !sb->live->renewed)
        code = EBUSY;
    if (done != NULL && done->code == 0) {
        /* The layers below live on in the sandbox itself. */
        if (sb->live->boundary[0] != '\0')
            link_drop_snapshot(link_of(sb->live->jail), sb->live->boundary);
        memcpy(sb->live->boundary, done->key, sizeof(sb->live->boundary));
    }
    w->done(w->arg, code);
    free(w);
}

int sandbox_boundary(struct sandbox *sb, void (*done)(void *arg, int code), void *arg,
                     struct err *err) {
    char key[WIRE_NAME_MAX];
    if (sb->live->command_count > 0)
        return err_set(err, ERR_STATE, 0, "a command runs in the sandbox");
    if (id_make(key, sizeof(key), "edge_", err) < 0)
        return -1;
    struct sandbox_boundary_wait *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "marking a sandbox's files: out of memory");
    *w = (struct sandbox_boundary_wait){.done = done, .arg = arg};
    if (sandbox_op_snapshot(sb, key, sandbox_boundary_done, w, err) == NULL) {
        free(w);
        return -1;
    }
    return 0;
}

void *sandbox_part(const struct sandbox *sb, enum sandbox_part which) {
    return sandbox_left(sb)->parts[which].part;
}

void sandbox_part_set(struct sandbox *sb, enum sandbox_part which,
                      const struct sandbox_part_ops *ops, void *part) {
    sb->live->parts[which].ops = ops;
    sb->live->parts[which].part = part;
}

struct sandbox_sight sandbox_sight(const struct sandbox *sb) {
    const struct sandbox_live *live = sandbox_left(sb);
    return (struct sandbox_sight){.created_ms = sb->created_ms,
                                  .expires_ms = live->expires_ms,
                                  .gone_ms = sb->gone_ms,
                                  .executions = live->executions,
                                  .running = live->command_count,
                                  .measured = live->measured,
                                  .disk_bytes = live->disk_bytes,
                                  .mem_peak_bytes = live->mem_peak_bytes};
}
