/* A sandbox whose tasks are played by the test: what sandbox.c does, in a few lines. For one file
 * of a program: it defines the functions of sandbox.h that a task needs. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fd.h"
#include "loop.h"
#include "sandbox.h"
#include "spec.h"
#include "unit.h"

#define TASKS_MAX 64

struct fake_task {
    struct sandbox_task *task; /* NULL = over */
    int in, out;               /* its stdin and stdout; owned */
    bool killed;
    char op[32];
};

struct sandbox {
    struct loop *loop;
    enum sandbox_state state;
    size_t execs_max;
    struct limits_effective limits;
    const struct sandbox_part_ops *part_ops;
    void *part;
    struct fake_task tasks[TASKS_MAX];
    size_t count;
};

int sandbox_exec(struct sandbox *sb, struct sandbox_task *t, const struct link_exec *x,
                 struct err *err) {
    struct spec spec;
    size_t alive = 0;
    for (size_t i = 0; i < sb->count; i++)
        alive += sb->tasks[i].task != NULL;
    if (sb->execs_max > 0 && alive >= sb->execs_max)
        return err_set(err, ERR_LIMIT, 0, "full");
    struct fake_task *f = &sb->tasks[sb->count++];
    assert_true(sb->count <= TASKS_MAX);
    assert_int_equal(x->exec->kind, WIRE_EXEC_FILES);
    bool in = (x->exec->fds & WIRE_FD_STDIN) != 0;
    assert_int_equal(x->fd_count, in ? 2 : 1);
    f->in = in ? fcntl(x->fds[0], F_DUPFD_CLOEXEC, 0) : -1;
    f->out = fcntl(x->fds[x->fd_count - 1], F_DUPFD_CLOEXEC, 0);
    f->task = t;
    char *text = malloc(x->exec->spec_size);
    memcpy(text, x->spec, x->exec->spec_size);
    assert_int_equal(spec_decode(text, x->exec->spec_size, &spec, NULL), 0);
    snprintf(f->op, sizeof(f->op), "%s", spec.argv[0]);
    free(text);
    return 0;
}

void sandbox_task_kill(struct sandbox_task *t, enum cause cause) {
    assert_int_equal(cause, CAUSE_CANCELLED);
    struct sandbox *sb = t->sandbox;
    for (size_t i = 0; sb != NULL && i < sb->count; i++)
        if (sb->tasks[i].task == t)
            sb->tasks[i].killed = true;
}

enum sandbox_state sandbox_state(const struct sandbox *sb) {
    return sb->state;
}

struct loop *sandbox_loop(const struct sandbox *sb) {
    return sb->loop;
}

const struct limits_effective *sandbox_limits(const struct sandbox *sb) {
    return &sb->limits;
}

void *sandbox_part(const struct sandbox *sb, enum sandbox_part which) {
    assert_int_equal(which, SANDBOX_FILES);
    return sb->part;
}

void sandbox_part_set(struct sandbox *sb, enum sandbox_part which,
                      const struct sandbox_part_ops *ops, void *part) {
    (void)which;
    sb->part_ops = ops;
    sb->part = part;
}

static inline struct sandbox *box_new(void) {
    struct err err = {0};
    struct sandbox *sb = calloc(1, sizeof(*sb));
    sb->loop = loop_new(&err);
    assert_non_null(sb->loop);
    sb->state = SANDBOX_READY;
    return sb;
}

static inline void box_free(struct sandbox *sb) {
    if (sb->part != NULL)
        sb->part_ops->free(sb->part);
    for (size_t i = 0; i < sb->count; i++) {
        fd_close(&sb->tasks[i].in);
        fd_close(&sb->tasks[i].out);
    }
    loop_free(sb->loop);
    free(sb);
}

static inline void turn(struct sandbox *sb) {
    struct err err = {0};
    for (int i = 0; i < 6; i++)
        unit_works(loop_once(sb->loop, CLOCK_NS_PER_MS / 2, &err), err);
}
