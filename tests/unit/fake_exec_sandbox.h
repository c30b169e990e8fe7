/* The sandbox of executions, made of a few functions: those of sandbox.h that executions need. For
 * one file of a unit test or of a fuzz harness: nothing here needs either. What must not happen
 * ends the program. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "execs.h"
#include "fd.h"
#include "sandboxes.h"
#include "sync.h"

#define FAKE_REQUIRE(truth)                                                                        \
    do {                                                                                           \
        if (!(truth))                                                                              \
            abort();                                                                               \
    } while (0)

struct sandbox {
    char path[64];
    int dir;
    struct loop *loop;
    struct log log;
    struct metrics metrics;
    struct wire_policy policy;
    struct limits_effective limits;
    struct request_env env;
    struct execs *part;
    struct accounts *accounts;    /* NULL = nobody's */
    struct accounts_token *token; /* asks for what is started; NULL = none */
    uint32_t next;
    struct sandbox_task *task; /* the last one that was sent */
    int in, out[2];            /* the command's ends; -1 = none */
    int kept[LINK_KEEP_FDS];   /* the runner's duplicates of the server's ends */
    int signal;
    enum cause kill;
    bool refuse;
};

/* The fake sandbox. */

uint32_t sandbox_number(struct sandbox *sb) {
    return sb->next++;
}

static inline void take_fds(struct sandbox *sb, const struct link_exec *x) {
    static const uint32_t bits[] = {WIRE_FD_STDIN,       WIRE_FD_STDOUT,      WIRE_FD_STDERR,
                                    WIRE_FD_SPEC,        WIRE_FD_BUNDLE,      WIRE_FD_KEEP_STDIN,
                                    WIRE_FD_KEEP_STDOUT, WIRE_FD_KEEP_STDERR, WIRE_FD_KEEP_INPUT};
    int *const to[] = {&sb->in,      &sb->out[0],  &sb->out[1],  NULL,        NULL,
                       &sb->kept[0], &sb->kept[1], &sb->kept[2], &sb->kept[3]};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
        if ((x->exec->fds & bits[i]) == 0)
            continue;
        if (to[i] != NULL) {
            fd_close(to[i]);
            *to[i] = fcntl(x->fds[n], F_DUPFD_CLOEXEC, 0);
        }
        n++;
    }
    FAKE_REQUIRE(n == x->fd_count);
}

int sandbox_exec(struct sandbox *sb, struct sandbox_task *t, const struct link_exec *x,
                 struct err *err) {
    if (sb->refuse)
        return err_set(err, ERR_LIMIT, 0, "too many");
    take_fds(sb, x);
    FAKE_REQUIRE(t->number != 0);
    t->sandbox = sb;
    sb->task = t;
    return 0;
}

void sandbox_task_adopt(struct sandbox *sb, struct sandbox_task *t, uint32_t number) {
    FAKE_REQUIRE(t->number == number);
    t->sandbox = sb;
    sb->task = t;
}

void sandbox_task_kill(struct sandbox_task *t, enum cause cause) {
    t->sandbox->kill = cause;
}

void sandbox_task_signal(struct sandbox_task *t, int signal) {
    t->sandbox->signal = signal;
    if (signal == 0)
        fd_close(&t->sandbox->kept[0]);
}

const struct sandbox_failure *sandbox_failure(const struct sandbox *sb) {
    static const struct sandbox_failure failure = {.stage = "process 1", .code = ECHILD};
    (void)sb;
    return &failure;
}

const char *sandbox_id(const struct sandbox *sb) {
    (void)sb;
    return "sb_fake";
}

const char *sandbox_owner(const struct sandbox *sb) {
    (void)sb;
    return "somebody";
}

struct sandbox_activity sandbox_activity(const struct sandbox *sb) {
    (void)sb;
    return (struct sandbox_activity){.writes = 1};
}

const struct sandbox_spec *sandbox_spec(const struct sandbox *sb) {
    static const struct sandbox_spec spec = {.image = "host"};
    (void)sb;
    return &spec;
}

bool sync_manifest_of(const struct sandbox *sb, const char *path, struct sync_manifest *out,
                      const char **root) {
    (void)sb;
    (void)path;
    (void)out;
    (void)root;
    return false;
}

int sandbox_dir(const struct sandbox *sb) {
    return sb->dir;
}

const struct wire_policy *sandbox_policy(const struct sandbox *sb) {
    return &sb->policy;
}

const struct request_env *sandbox_env(const struct sandbox *sb) {
    return &sb->env;
}

void *sandbox_part(const struct sandbox *sb, enum sandbox_part which) {
    FAKE_REQUIRE(which == SANDBOX_EXECS);
    return sb->part;
}

void sandbox_part_set(struct sandbox *sb, enum sandbox_part which,
                      const struct sandbox_part_ops *ops, void *part) {
    FAKE_REQUIRE(which == SANDBOX_EXECS);
    FAKE_REQUIRE(ops == &execs_part_ops);
    sb->part = part;
}
