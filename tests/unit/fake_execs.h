/* Executions against a sandbox that is made of a few functions: the test holds the command's ends
 * of the pipes and says when it is over. A server that is killed is one whose memory is never
 * looked at again. For one file of a program. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "exec_request.h"
#include "fake_exec_sandbox.h"
#include "unit.h"

/* Set-up. */

static inline struct execs *attach(struct sandbox *sb) {
    struct err err = {0};
    struct exec_hub *hub = execs_hub_new(sb->loop, &sb->log, &sb->metrics, &err);
    assert_non_null(hub);
    hub->accounts = sb->accounts;
    struct execs *set = execs_new(hub, sb, &err);
    if (set == NULL)
        fail_msg("%s", err.text);
    return set;
}

static inline void detach(struct sandbox *sb) {
    struct exec_hub *hub = sb->part->hub;
    execs_part_ops.free(sb->part);
    sb->part = NULL;
    execs_hub_free(hub);
}

/* Counts the files of the sandbox's directory, or removes them. */
static inline size_t files(const struct sandbox *sb, bool remove_them) {
    size_t count = 0;
    DIR *dir = opendir(sb->path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        count++;
        if (remove_them)
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    return count;
}

static inline int setup(void **state) {
    struct sandbox *sb = calloc(1, sizeof(*sb));
    struct err err = {0};
    snprintf(sb->path, sizeof(sb->path), "/tmp/unit-execs-XXXXXX");
    if (mkdtemp(sb->path) == NULL)
        return -1;
    sb->dir = open(sb->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    sb->loop = loop_new(&err);
    log_init(&sb->log, STDERR_FILENO, LOG_ERROR, "unit");
    for (int i = 0; i < LIMIT_COUNT; i++)
        sb->limits.values.v[i] = 1 << 20;
    sb->policy.writable = WIRE_WRITABLE_ALL;
    sb->next = 1;
    sb->in = sb->out[0] = sb->out[1] = -1;
    for (int i = 0; i < LINK_KEEP_FDS; i++)
        sb->kept[i] = -1;
    *state = sb;
    return attach(sb) == NULL;
}

static inline int teardown(void **state) {
    struct sandbox *sb = *state;
    detach(sb);
    fd_close(&sb->in);
    for (int i = 0; i < 2; i++)
        fd_close(&sb->out[i]);
    for (int i = 0; i < LINK_KEEP_FDS; i++)
        fd_close(&sb->kept[i]);
    loop_free(sb->loop);
    fd_close(&sb->dir);
    files(sb, true);
    int rc = rmdir(sb->path);
    free(sb);
    return rc;
}

static inline void turns(struct sandbox *sb, int count, uint64_t wait_ns) {
    struct err err = {0};
    for (int i = 0; i < count; i++)
        unit_works(loop_once(sb->loop, wait_ns, &err), err);
}

static inline void turn(struct sandbox *sb) {
    turns(sb, 8, CLOCK_NS_PER_MS / 2);
}

static inline struct exec *start(struct sandbox *sb, const char *id, const char *json) {
    struct exec_request r;
    struct api_error error = {0};
    struct err err = {0};
    assert_int_equal(exec_request_decode(json, strlen(json), &r, &error), 0);
    struct exec_birth birth = {.id = id,
                               .name = r.run.steps[0].name,
                               .step = &r.run.steps[0],
                               .limits = &sb->limits,
                               .flags = r.rows > 0     ? EXEC_PTY
                                        : r.stdin_open ? EXEC_STDIN_OPEN
                                                       : 0u,
                               .rows = r.rows,
                               .cols = r.cols};
    struct exec *x = exec_new(sb->part, &birth, &err);
    assert_non_null(x);
    x->token = accounts_token_ref(sb->token);
    execs_insert(sb->part, x);
    if (exec_send(x, &r, NULL, &err) < 0) {
        assert_true(sb->refuse);
        execs_forget(x, true);
        x = NULL;
    }
    exec_request_done(&r);
    return x;
}

static inline void say(struct sandbox *sb, int stream, const char *text) {
    assert_int_equal(write(sb->out[stream], text, strlen(text)), (ssize_t)strlen(text));
}

static inline void finish_now(struct sandbox *sb) {
    struct wire_end end;
    struct sandbox_task *t = sb->task;
    memset(&end, 0, sizeof(end));
    end.cause = CAUSE_EXIT;
    end.usage.wall_ns = 5000000;
    end.usage.cpu_user_ns = 700000000;
    fd_close(&sb->out[0]);
    fd_close(&sb->out[1]);
    fd_close(&sb->in);
    t->sandbox = NULL;
    t->ops->ended(t, &end);
}

static inline void finish(struct sandbox *sb) {
    finish_now(sb);
    turn(sb);
}

static inline void expect_output(struct exec *x, int stream, const char *text) {
    char data[256] = {0};
    struct err err = {0};
    struct spool *s = &x->out[stream].spool;
    assert_int_equal(s->total, strlen(text));
    exec_pin(x);
    unit_works(spool_read(s, 0, data, strlen(text), &err), err);
    exec_unpin(x);
    assert_string_equal(data, text);
}

/* The lines of events after `after`. */
static inline char *events(struct exec *x, uint64_t after, int *last) {
    struct exec_watcher w = {.follows = true};
    struct buf out;
    struct err err = {0};
    buf_init(&out, 1 << 20);
    exec_watch(x, &w);
    w.changed = NULL;
    exec_events_seek(x, &w, after);
    *last = exec_events(x, &w, 1 << 20, &out, &err);
    if (*last < 0)
        fail_msg("%s", err.text);
    exec_unwatch(&w);
    return buf_take(&out);
}

static inline void expect_events(struct exec *x, uint64_t after, const char *const *parts,
                                 int last) {
    int got = 0;
    char *text = events(x, after, &got), *line = text;
    for (size_t i = 0; parts[i] != NULL; i++) {
        char *end = line != NULL ? strchr(line, '\n') : NULL;
        if (end == NULL || strncmp(line, parts[i], strlen(parts[i])) != 0)
            fail_msg("event %zu: %s", i, line != NULL ? line : "none");
        line = end + 1;
    }
    if (line != NULL && *line != '\0')
        fail_msg("more events: %s", line);
    assert_int_equal(got, last);
    free(text);
}

/* As if the process were killed: what it had in memory is forgotten, its descriptors are closed. */
static inline void killed(struct sandbox *sb) {
    detach(sb);
    attach(sb);
}

static inline void adopt(struct sandbox *sb, uint32_t number) {
    struct wire_kept_exec kept = {.head.exec = number};
    int fds[1][LINK_KEEP_FDS];
    for (int i = 0; i < LINK_KEEP_FDS; i++)
        fds[0][i] = sb->kept[i] >= 0 ? fcntl(sb->kept[i], F_DUPFD_CLOEXEC, 0) : -1;
    execs_part_ops.adopted(sb->part, &kept, fds, 1);
    for (int i = 0; i < LINK_KEEP_FDS; i++)
        assert_int_equal(fds[0][i], -1);
    turn(sb);
}

#define ID(letter) "ex_aaaaaaaaaaaaaaaaaaaa" letter
#define JSON "{\"argv\":[\"make\",\"all\"]}"
