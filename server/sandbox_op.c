#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "sandbox_internal.h"
#include "str.h"

static void sandbox_op_watch(struct sandbox *sb);

/* The first one that is not late. */
static struct sandbox_op *sandbox_op_awaited(const struct sandbox *sb) {
    struct sandbox_op *op = sb->live->ops;
    while (op != NULL && op->late)
        op = op->next;
    return op;
}

/* Only whoever asked is told: others use the connection, and the answer may still come. */
static void sandbox_op_overdue(void *arg) {
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_awaited(sb);
    if (op == NULL)
        return;
    struct wire_done done;
    memset(&done, 0, sizeof(done));
    done.what = (uint32_t)op->what;
    done.code = ETIMEDOUT;
    memcpy(done.key, op->key, sizeof(done.key));
    sandbox_op_fn *fn = op->fn;
    op->late = true;
    op->fn = NULL;
    sandbox_op_watch(sb);
    if (fn != NULL)
        fn(op->arg, sb, &done);
}

static void sandbox_op_watch(struct sandbox *sb) {
    const struct sandbox_op *op = sandbox_op_awaited(sb);
    if (op == NULL)
        loop_timer_stop(sb->all->loop, &sb->live->watchdog);
    else
        loop_timer_at(sb->all->loop, &sb->live->watchdog, op->due_ns, sandbox_op_overdue, sb, NULL);
}

static struct sandbox_op *sandbox_op_new(struct sandbox *sb, enum wire_type what, const char *key,
                                         struct err *err) {
    if ((sb->state != SANDBOX_READY && sb->state != SANDBOX_PAUSED) || sb->detached ||
        sb->live->jail == NULL) {
        err_set(err, ERR_STATE, 0, "the sandbox is not there now");
        return NULL;
    }
    struct sandbox_op *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "asking a sandbox for something: out of memory");
        return NULL;
    }
    op->what = what;
    str_copy(op->key, sizeof(op->key), key);
    return op;
}

static struct sandbox_op *sandbox_op_add(struct sandbox *sb, struct sandbox_op *op,
                                         sandbox_op_fn *fn, void *arg) {
    op->fn = fn;
    op->arg = arg;
    op->due_ns = clock_mono_ns() + sb->all->answer_ms * CLOCK_NS_PER_MS;
    if (sb->live->ops == NULL)
        sb->live->ops = op;
    else
        sb->live->last_op->next = op;
    sb->live->last_op = op;
    sandbox_op_watch(sb);
    return op;
}

static struct sandbox_op *sandbox_op_take(struct sandbox *sb) {
    struct sandbox_op *op = sb->live->ops;
    sb->live->ops = op->next;
    if (sb->live->ops == NULL)
        sb->live->last_op = NULL;
    if (op->what == WIRE_RESTORE)
        sb->live->restoring--;
    sandbox_op_watch(sb);
    return op;
}

struct sandbox_op *sandbox_op_freeze(struct sandbox *sb, bool frozen, sandbox_op_fn *fn, void *arg,
                                     struct err *err) {
    struct sandbox_op *op = sandbox_op_new(sb, WIRE_FREEZE, "", err);
    if (op == NULL)
        return NULL;
    sb->live->frozen = frozen;
    link_freeze(sb->live->jail, frozen);
    return sandbox_op_add(sb, op, fn, arg);
}

struct sandbox_op *sandbox_op_snapshot(struct sandbox *sb, const char *key, sandbox_op_fn *fn,
                                       void *arg, struct err *err) {
    struct sandbox_op *op = sandbox_op_new(sb, WIRE_SNAPSHOT, key, err);
    if (op == NULL)
        return NULL;
    link_snapshot(sb->live->jail, key);
    return sandbox_op_add(sb, op, fn, arg);
}

struct sandbox_op *sandbox_op_restore(struct sandbox *sb, const char *key, sandbox_op_fn *fn,
                                      void *arg, struct err *err) {
    if (sb->state == SANDBOX_PAUSED || sb->live->frozen) {
        err_set(err, ERR_STATE, 0, "the sandbox is paused");
        return NULL;
    }
    struct sandbox_op *op = sandbox_op_new(sb, WIRE_RESTORE, key, err);
    if (op == NULL)
        return NULL;
    link_restore(sb->live->jail, key);
    sb->live->restoring++;
    return sandbox_op_add(sb, op, fn, arg);
}

void sandbox_op_forget(struct sandbox_op *op) {
    op->fn = NULL;
}

static void sandbox_op_frozen(struct sandbox *sb, const struct wire_done *done) {
    enum sandbox_state state = done->frozen != 0 ? SANDBOX_PAUSED : SANDBOX_READY;
    sb->all->states[sb->state]--;
    sb->state = state;
    sb->all->states[state]++;
    /* The last request counts: an answer to an earlier one does not undo it. */
    for (const struct sandbox_op *op = sb->live->ops; op != NULL; op = op->next)
        if (op->what == WIRE_FREEZE)
            return;
    sb->live->frozen = done->frozen != 0;
}

/* What the runner did, whoever asked for it. */
static void sandbox_op_apply(struct sandbox *sb, const struct wire_done *done) {
    if (done->what == WIRE_FREEZE)
        sandbox_op_frozen(sb, done);
    else if (done->code == 0)
        sb->live->layers++;
    if (done->what == WIRE_SNAPSHOT && done->code == 0) {
        sb->live->renewed = sb->live->depth >= 0 && sb->live->depth != (int64_t)done->depth;
        sb->live->depth = (int64_t)done->depth;
    }
    if (done->what == WIRE_RESTORE) {
        sb->live->depth = -1;
        sb->live->writes++;
    }
}

/* Of an earlier server's, or one that took too long: nobody has learnt of the snapshot. */
static void sandbox_op_unheard(struct sandbox *sb, const struct wire_done *done) {
    struct log_line line;
    if (done->what == WIRE_SNAPSHOT && done->code == 0)
        link_drop_snapshot(link_of(sb->live->jail), done->key);
    log_begin(&line, sb->all->log, LOG_DEBUG, "sandbox_answer_unheard");
    log_str(&line, "sandbox", sb->id);
    log_u64(&line, "what", done->what);
    log_i64(&line, "code", done->code);
    log_end(&line);
}

void sandbox_op_done(struct sandbox *sb, const struct wire_done *done) {
    struct sandbox_op *op = NULL;
    if (sb->live->ops != NULL && done->what == (uint32_t)sb->live->ops->what &&
        strcmp(done->key, sb->live->ops->key) == 0)
        op = sandbox_op_take(sb);
    if (sb->state == SANDBOX_READY || sb->state == SANDBOX_PAUSED)
        sandbox_op_apply(sb, done);
    if (op == NULL || op->late)
        sandbox_op_unheard(sb, done);
    if (op == NULL)
        return;
    sandbox_touch(sb);
    if (op->fn != NULL)
        op->fn(op->arg, sb, done);
    free(op);
}

void sandbox_op_fail_all(struct sandbox *sb) {
    while (sb->live->ops != NULL) {
        struct sandbox_op *op = sandbox_op_take(sb);
        if (op->fn != NULL)
            op->fn(op->arg, sb, NULL);
        free(op);
    }
}
