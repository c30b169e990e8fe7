/* Executions against a sandbox that is made of a few functions: the test holds the command's ends
 * of the pipes and says when it is over. A server that is killed is one whose memory is never
 * looked at again. */
#include "execs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "exec_request.h"
#include "fd.h"
#include "unit.h"

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
    uint32_t next;
    struct sandbox_task *task; /* the last one that was sent */
    int in, out[2];            /* the command's ends; -1 = none */
    int kept[3];               /* the runner's duplicates of the server's ends */
    int signal;
    enum cause kill;
    bool refuse;
};

/* The fake sandbox. */

uint32_t sandbox_number(struct sandbox *sb) {
    return sb->next++;
}

static void take_fds(struct sandbox *sb, const struct link_exec *x) {
    static const uint32_t bits[] = {WIRE_FD_STDIN,       WIRE_FD_STDOUT,     WIRE_FD_STDERR,
                                    WIRE_FD_SPEC,        WIRE_FD_BUNDLE,     WIRE_FD_KEEP_STDIN,
                                    WIRE_FD_KEEP_STDOUT, WIRE_FD_KEEP_STDERR};
    int *const to[] = {&sb->in, &sb->out[0],  &sb->out[1],  NULL,
                       NULL,    &sb->kept[0], &sb->kept[1], &sb->kept[2]};
    size_t n = 0;
    for (size_t i = 0; i < UNIT_COUNT(bits); i++) {
        if ((x->exec->fds & bits[i]) == 0)
            continue;
        if (to[i] != NULL) {
            fd_close(to[i]);
            *to[i] = fcntl(x->fds[n], F_DUPFD_CLOEXEC, 0);
        }
        n++;
    }
    assert_int_equal(n, x->fd_count);
}

int sandbox_exec(struct sandbox *sb, struct sandbox_task *t, const struct link_exec *x,
                 struct err *err) {
    if (sb->refuse)
        return err_set(err, ERR_LIMIT, 0, "too many");
    take_fds(sb, x);
    assert_true(t->number != 0);
    t->sandbox = sb;
    sb->task = t;
    return 0;
}

void sandbox_task_adopt(struct sandbox *sb, struct sandbox_task *t, uint32_t number) {
    assert_int_equal(t->number, number);
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
    assert_int_equal(which, SANDBOX_EXECS);
    return sb->part;
}

void sandbox_part_set(struct sandbox *sb, enum sandbox_part which,
                      const struct sandbox_part_ops *ops, void *part) {
    assert_int_equal(which, SANDBOX_EXECS);
    assert_ptr_equal(ops, &execs_part_ops);
    sb->part = part;
}

/* Set-up. */

static struct execs *attach(struct sandbox *sb) {
    struct err err = {0};
    struct exec_hub *hub = execs_hub_new(sb->loop, &sb->log, &sb->metrics, &err);
    assert_non_null(hub);
    struct execs *set = execs_new(hub, sb, &err);
    if (set == NULL)
        fail_msg("%s", err.text);
    return set;
}

static void detach(struct sandbox *sb) {
    struct exec_hub *hub = sb->part->hub;
    execs_part_ops.free(sb->part);
    sb->part = NULL;
    execs_hub_free(hub);
}

/* Counts the files of the sandbox's directory, or removes them. */
static size_t files(const struct sandbox *sb, bool remove_them) {
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

static int setup(void **state) {
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
    sb->kept[0] = sb->kept[1] = sb->kept[2] = -1;
    *state = sb;
    return attach(sb) == NULL;
}

static int teardown(void **state) {
    struct sandbox *sb = *state;
    detach(sb);
    fd_close(&sb->in);
    for (int i = 0; i < 2; i++)
        fd_close(&sb->out[i]);
    for (int i = 0; i < 3; i++)
        fd_close(&sb->kept[i]);
    loop_free(sb->loop);
    fd_close(&sb->dir);
    files(sb, true);
    int rc = rmdir(sb->path);
    free(sb);
    return rc;
}

static void turn(struct sandbox *sb) {
    struct err err = {0};
    for (int i = 0; i < 8; i++)
        unit_works(loop_once(sb->loop, CLOCK_NS_PER_MS / 2, &err), err);
}

static struct exec *start(struct sandbox *sb, const char *id, const char *json) {
    struct exec_request r;
    struct api_error error = {0};
    struct err err = {0};
    assert_int_equal(exec_request_decode(json, strlen(json), &r, &error), 0);
    struct exec_birth birth = {.id = id,
                               .name = r.run.steps[0].name,
                               .step = &r.run.steps[0],
                               .limits = &sb->limits,
                               .flags = r.stdin_open ? EXEC_STDIN_OPEN : 0u,
                               .rows = r.rows,
                               .cols = r.cols};
    struct exec *x = exec_new(sb->part, &birth, &err);
    assert_non_null(x);
    execs_insert(sb->part, x);
    if (exec_send(x, &r, &err) < 0) {
        assert_true(sb->refuse);
        execs_forget(x, true);
        x = NULL;
    }
    exec_request_done(&r);
    return x;
}

static void say(struct sandbox *sb, int stream, const char *text) {
    assert_int_equal(write(sb->out[stream], text, strlen(text)), (ssize_t)strlen(text));
}

static void finish(struct sandbox *sb) {
    struct wire_end end;
    struct sandbox_task *t = sb->task;
    memset(&end, 0, sizeof(end));
    end.cause = CAUSE_EXIT;
    end.usage.wall_ns = 5000000;
    fd_close(&sb->out[0]);
    fd_close(&sb->out[1]);
    fd_close(&sb->in);
    t->sandbox = NULL;
    t->ops->ended(t, &end);
    turn(sb);
}

static void expect_output(struct exec *x, int stream, const char *text) {
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
static char *events(struct exec *x, uint64_t after, int *last) {
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

static void expect_events(struct exec *x, uint64_t after, const char *const *parts, int last) {
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
static void killed(struct sandbox *sb) {
    detach(sb);
    attach(sb);
}

static void adopt(struct sandbox *sb, uint32_t number) {
    struct wire_kept_exec kept = {.head.exec = number};
    int fds[1][3];
    for (int i = 0; i < 3; i++)
        fds[0][i] = sb->kept[i] >= 0 ? fcntl(sb->kept[i], F_DUPFD_CLOEXEC, 0) : -1;
    execs_part_ops.adopted(sb->part, &kept, fds, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fds[0][i], -1);
    turn(sb);
}

/* The tests. */

#define ID(letter) "ex_aaaaaaaaaaaaaaaaaaaa" letter
#define JSON "{\"argv\":[\"make\",\"all\"]}"

static void test_a_short_one_lies_in_the_journal(void **state) {
    struct sandbox *sb = *state;
    static const char *const want[] = {
        "{\"seq\":1,\"type\":\"started\",\"name\":\"main\"}",
        "{\"seq\":2,\"type\":\"stdout\",\"data\":\"out\",\"encoding\":\"utf-8\"}",
        "{\"seq\":3,\"type\":\"stderr\",\"data\":\"err\"",
        "{\"seq\":4,\"type\":\"end\",\"ok\":true",
        "{\"seq\":5,\"type\":\"done\",\"ok\":true}",
        NULL};
    struct exec *x = start(sb, ID("a"), JSON);
    say(sb, 0, "out");
    say(sb, 1, "err");
    finish(sb);
    assert_int_equal(x->state, EXEC_DONE);
    assert_int_equal(files(sb, false), 1);
    expect_output(x, 0, "out");
    expect_output(x, 1, "err");
    expect_events(x, 0, want, 1);
    expect_events(x, 3, want + 3, 1);
    killed(sb);
    x = execs_find(sb->part, ID("a"));
    assert_non_null(x);
    assert_int_equal(x->state, EXEC_DONE);
    assert_true(x->ok);
    assert_string_equal(x->command, "make all");
    assert_int_equal(x->usage.wall_ns, 5000000);
    expect_output(x, 1, "err");
    expect_events(x, 0, want, 1);
    execs_forget(x, true);
    assert_null(execs_find(sb->part, ID("a")));
    killed(sb);
    assert_null(execs_find(sb->part, ID("a")));
}

static void test_a_long_one_goes_on_over_a_kill(void **state) {
    struct sandbox *sb = *state;
    static const char *const first[] = {"{\"seq\":1,\"type\":\"started\"",
                                        "{\"seq\":2,\"type\":\"stdout\",\"data\":\"one\\n\"", NULL};
    static const char *const second[] = {
        /* Of the first line nobody had been told before. */
        "{\"seq\":3,\"type\":\"stdout\",\"data\":\"two\\nthree\\n\"",
        "{\"seq\":4,\"type\":\"stderr\",\"data\":\"last\"", "{\"seq\":5,\"type\":\"end\"",
        "{\"seq\":6,\"type\":\"done\"", NULL};
    struct exec *x = start(sb, ID("b"), JSON);
    uint32_t number = x->number;
    for (int i = 0; i < 10; i++)
        turn(sb); /* until its pipes are watched */
    say(sb, 0, "one\n");
    turn(sb);
    expect_events(x, 0, first, 0);
    say(sb, 0, "two\n"); /* read, and told to nobody */
    turn(sb);
    killed(sb);
    say(sb, 0, "three\n"); /* while there is no server */
    adopt(sb, number);
    x = execs_find(sb->part, ID("b"));
    assert_int_equal(x->state, EXEC_RUNNING);
    say(sb, 1, "last");
    finish(sb);
    expect_output(x, 0, "one\ntwo\nthree\n");
    expect_events(x, 2, second, 1);
    killed(sb);
    expect_events(execs_find(sb->part, ID("b")), 2, second, 1);
    execs_forget(execs_find(sb->part, ID("b")), true);
    assert_int_equal(files(sb, false), 1);
}

static void test_what_the_runner_does_not_know_was_interrupted(void **state) {
    struct sandbox *sb = *state;
    struct exec *x = start(sb, ID("c"), JSON);
    killed(sb);
    x = execs_find(sb->part, ID("c"));
    assert_int_equal(x->state, EXEC_RUNNING);
    adopt(sb, 4711);
    assert_int_equal(x->state, EXEC_DONE);
    assert_int_equal(x->end.cause, CAUSE_INTERRUPTED);
    killed(sb);
    assert_int_equal(execs_find(sb->part, ID("c"))->end.cause, CAUSE_INTERRUPTED);
}

static void test_a_sandbox_that_goes_ends_what_runs_and_can_be_read(void **state) {
    struct sandbox *sb = *state;
    struct exec *x = start(sb, ID("d"), JSON);
    for (int i = 0; i < 10; i++)
        turn(sb);
    say(sb, 0, "some");
    turn(sb);
    exec_pin(x);
    x->task.sandbox = NULL;
    x->task.ops->lost(&x->task, CAUSE_CANCELLED);
    assert_int_equal(x->end.cause, CAUSE_CANCELLED);
    execs_part_ops.gone(sb->part);
    expect_output(x, 0, "some");
    exec_unpin(x);
    turn(sb);
    assert_null(sb->part->newest);
}

/* The directory's number goes to the next sandbox, which has a file of the same name. */
static void test_a_forgotten_one_that_is_read_does_not_reach_into_another_sandbox(void **state) {
    struct sandbox *sb = *state;
    char other[] = "/tmp/unit-execs-XXXXXX", name[SPOOL_NAME_SIZE], byte = 0;
    char *large = calloc(1, 30000);
    struct err err = {0};
    struct exec *x = start(sb, ID("j"), JSON);
    assert_int_equal(write(sb->out[0], large, 30000), 30000);
    free(large);
    finish(sb);
    struct spool *s = &x->out[SPOOL_STDOUT].spool;
    assert_true(spool_has_file(s));
    exec_io_name(x, EXEC_IO_OUT, name);
    exec_pin(x);
    execs_forget(x, true);
    assert_int_equal(s->fd, -1);
    execs_part_ops.gone(sb->part);
    assert_non_null(mkdtemp(other));
    int dir = open(other, O_PATH | O_DIRECTORY | O_CLOEXEC), own = dup(sb->dir);
    assert_int_equal(dup2(dir, sb->dir), sb->dir);
    int file = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(file, 30000), 0);
    int rc = spool_read(s, 0, &byte, 1, &err);
    exec_unpin(x);
    turn(sb);
    bool kept = unlinkat(dir, name, 0) == 0;
    assert_int_equal(dup2(own, sb->dir), sb->dir);
    close(own);
    close(file);
    close(dir);
    assert_int_equal(rmdir(other), 0);
    assert_true(kept);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, EBADF);
}

static void test_a_command_that_was_not_sent_is_forgotten(void **state) {
    struct sandbox *sb = *state;
    sb->refuse = true;
    assert_null(start(sb, ID("e"), JSON));
    killed(sb);
    assert_null(execs_find(sb->part, ID("e")));
}

static void test_what_is_kept_is_bounded(void **state) {
    struct sandbox *sb = *state;
    char id[40];
    for (int i = 0; i < 4000; i++) {
        snprintf(id, sizeof(id), "ex_%020d", i);
        (void)start(sb, id, JSON);
        say(sb, 0, id);
        if (i % 500 == 0) { /* a file, now and then */
            char *large = calloc(1, 30000);
            assert_int_equal(write(sb->out[1], large, 30000), 30000);
            free(large);
        }
        finish(sb);
    }
    turn(sb);
    assert_true(sb->part->count <= EXECS_KEEP);
    assert_true(sb->part->log.size <= 2 * EXECS_LOG_MIN);
    assert_true(files(sb, false) <= 3);
    expect_output(sb->part->newest, 0, "ex_00000000000000003999");
    expect_output(sb->part->oldest, 0, sb->part->oldest->id);
    killed(sb);
    assert_true(sb->part->count <= EXECS_KEEP);
    expect_output(sb->part->newest, 0, "ex_00000000000000003999");
    expect_output(sb->part->oldest, 0, sb->part->oldest->id);
}

struct feed {
    struct exec_feed feed;
    int over; /* 1 = taken, -1 = not */
};

static void fed(struct exec_feed *f, bool taken) {
    ((struct feed *)(void *)f)->over = taken ? 1 : -1;
}

static void test_stdin_waits_for_the_command_and_ends(void **state) {
    struct sandbox *sb = *state;
    const size_t len = 200000;
    char *data = calloc(1, len), *got = malloc(len);
    struct exec *x =
        start(sb, ID("f"), "{\"argv\":[\"cat\"],\"stdin\":\"ab\",\"stdin_open\":true}");
    struct feed large = {.feed = {.data = data, .len = len, .over = fed}};
    struct feed last = {.feed = {.data = "end", .len = 3, .close = true, .over = fed}};
    struct feed late = {.feed = {.data = "x", .len = 1, .over = fed}};
    assert_int_equal(x->input.bytes, 2);
    assert_int_equal(exec_stdin_feed(x, &large.feed), 0);
    assert_int_equal(exec_stdin_feed(x, &last.feed), 0);
    assert_int_equal(exec_stdin_feed(x, &late.feed), -1);
    size_t seen = 0;
    assert_int_equal(fcntl(sb->in, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < 2000 && last.over == 0; i++) {
        ssize_t n = read(sb->in, got, len);
        seen += n > 0 ? (size_t)n : 0;
        turn(sb);
    }
    assert_int_equal(large.over, 1);
    assert_int_equal(last.over, 1);
    for (ssize_t n; (n = read(sb->in, got, len)) > 0;)
        seen += (size_t)n;
    assert_int_equal(seen, len + 5);
    assert_int_equal(read(sb->in, got, 1), 0); /* its end, since the runner let go as well */
    assert_int_equal(sb->signal, 0);
    finish(sb);
    killed(sb);
    assert_int_equal(execs_find(sb->part, ID("f"))->input.bytes, len + 5);
    free(data);
    free(got);
}

static void test_much_stdin_in_small_parts_keeps_the_journal_small(void **state) {
    struct sandbox *sb = *state;
    char text[8];
    struct exec *x = start(sb, ID("i"), "{\"argv\":[\"cat\"],\"stdin_open\":true}");
    for (int i = 0; i < 60000; i++) {
        struct feed one = {.feed = {.data = "x", .len = 1, .over = fed}};
        assert_int_equal(exec_stdin_feed(x, &one.feed), 1);
        assert_int_equal(read(sb->in, text, sizeof(text)), 1);
        if (i % 1000 == 0)
            turn(sb);
    }
    assert_true(sb->part->log.size < EXECS_LOG_MIN + 200000);
    killed(sb);
    x = execs_find(sb->part, ID("i"));
    assert_int_equal(x->input.bytes, 60000);
    adopt(sb, x->number);
    assert_true(x->input.open);
    finish(sb);
}

static void test_stdin_that_nobody_takes_is_told(void **state) {
    struct sandbox *sb = *state;
    char *data = calloc(1, 200000);
    struct exec *x = start(sb, ID("g"), "{\"argv\":[\"true\"],\"stdin_open\":true}");
    struct feed large = {.feed = {.data = data, .len = 200000, .over = fed}};
    assert_int_equal(exec_stdin_feed(x, &large.feed), 0);
    finish(sb);
    assert_int_equal(large.over, -1);
    x = start(sb, ID("h"), JSON);
    assert_int_equal(exec_stdin_feed(x, &large.feed), -1);
    finish(sb);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_short_one_lies_in_the_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_long_one_goes_on_over_a_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_the_runner_does_not_know_was_interrupted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_sandbox_that_goes_ends_what_runs_and_can_be_read,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_forgotten_one_that_is_read_does_not_reach_into_another_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_command_that_was_not_sent_is_forgotten, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_is_kept_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stdin_waits_for_the_command_and_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_much_stdin_in_small_parts_keeps_the_journal_small,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_stdin_that_nobody_takes_is_told, setup, teardown),
    };
    return cmocka_run_group_tests_name("execs", tests, NULL, NULL);
}
