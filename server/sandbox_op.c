#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "sandbox_internal.h"
#include "str.h"

static void sandbox_op_hangs(void *arg) {
    struct sandbox *sb = arg;
    if (sb->jail != NULL)
        link_fail(sb->jail, "a request to a sandbox was not answered in time");
}

static void sandbox_op_watch(struct sandbox *sb) {
    if (sb->ops == NULL)
        loop_timer_stop(sb->all->loop, &sb->watchdog);
    else
        loop_timer_at(sb->all->loop, &sb->watchdog,
                      clock_mono_ns() + SANDBOX_ANSWER_MS * CLOCK_NS_PER_MS, sandbox_op_hangs, sb,
                      NULL);
}

static struct sandbox_op *sandbox_op_new(struct sandbox *sb, enum wire_type what, const char *key,
                                         struct err *err) {
    if (sb->jail == NULL || sb->detached ||
        (sb->state != SANDBOX_READY && sb->state != SANDBOX_PAUSED)) {
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
    if (sb->ops == NULL)
        sb->ops = op;
    else
        sb->last_op->next = op;
    sb->last_op = op;
    sandbox_op_watch(sb);
    return op;
}

static struct sandbox_op *sandbox_op_take(struct sandbox *sb) {
    struct sandbox_op *op = sb->ops;
    sb->ops = op->next;
    if (sb->ops == NULL)
        sb->last_op = NULL;
    if (op->what == WIRE_RESTORE)
        sb->restoring--;
    sandbox_op_watch(sb);
    return op;
}

struct sandbox_op *sandbox_op_freeze(struct sandbox *sb, bool frozen, sandbox_op_fn *fn, void *arg,
                                     struct err *err) {
    struct sandbox_op *op = sandbox_op_new(sb, WIRE_FREEZE, "", err);
    if (op == NULL)
        return NULL;
    sb->frozen = frozen;
    link_freeze(sb->jail, frozen);
    return sandbox_op_add(sb, op, fn, arg);
}

struct sandbox_op *sandbox_op_snapshot(struct sandbox *sb, const char *key, sandbox_op_fn *fn,
                                       void *arg, struct err *err) {
    struct sandbox_op *op = sandbox_op_new(sb, WIRE_SNAPSHOT, key, err);
    if (op == NULL)
        return NULL;
    link_snapshot(sb->jail, key);
    return sandbox_op_add(sb, op, fn, arg);
}

struct sandbox_op *sandbox_op_restore(struct sandbox *sb, const char *key, sandbox_op_fn *fn,
                                      void *arg, struct err *err) {
    if (sb->state == SANDBOX_PAUSED || sb->frozen) {
        err_set(err, ERR_STATE, 0, "the sandbox is paused");
        return NULL;
    }
    struct sandbox_op *op = sandbox_op_new(sb, WIRE_RESTORE, key, err);
    if (op == NULL)
        return NULL;
    link_restore(sb->jail, key);
    sb->restoring++;
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
    for (const struct sandbox_op *op = sb->ops; op != NULL; op = op->next)
        if (op->what == WIRE_FREEZE)
            return;
    sb->frozen = done->frozen != 0;
}

void sandbox_op_done(struct sandbox *sb, const struct wire_done *done) {
    if (sb->ops == NULL || done->what != (uint32_t)sb->ops->what ||
        strcmp(done->key, sb->ops->key) != 0) {
        link_fail(sb->jail, "an answer came for what was not asked");
        return;
    }
    struct sandbox_op *op = sandbox_op_take(sb);
    if (op->what == WIRE_FREEZE)
        sandbox_op_frozen(sb, done);
    else if (done->code == 0)
        sb->layers++;
    if (op->what == WIRE_SNAPSHOT && done->code == 0) {
        sb->renewed = sb->depth >= 0 && sb->depth != (int64_t)done->depth;
        sb->depth = (int64_t)done->depth;
    }
    if (op->what == WIRE_RESTORE)
        sb->depth = -1;
    if (op->what == WIRE_RESTORE && done->code == 0) {
        struct err err;
        sb->epoch++;
        if (sandbox_store_write(sb, &err) < 0)
            log_err(sb->all->log, LOG_ERROR, "sandbox_not_written", &err);
    }
    sandbox_touch(sb);
    if (op->fn != NULL)
        op->fn(op->arg, sb, done);
    free(op);
}

void sandbox_op_fail_all(struct sandbox *sb) {
    while (sb->ops != NULL) {
        struct sandbox_op *op = sandbox_op_take(sb);
        if (op->fn != NULL)
            op->fn(op->arg, sb, NULL);
        free(op);
    }
}
