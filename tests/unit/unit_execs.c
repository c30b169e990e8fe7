#include "execs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fake_execs.h"

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

static struct exec *numbered(const struct sandbox *sb, uint32_t number) {
    struct exec *x = sb->part->newest;
    while (x != NULL && x->number != number)
        x = x->older;
    assert_non_null(x);
    return x;
}

/* The journal of a server that knew nothing of traces is read by one that does. */
static void test_a_start_with_and_without_its_trace(void **state) {
    struct sandbox *sb = *state;
    struct trace trace = {.id = {1}, .span = {2}, .parent = {3}, .from = "run_x"};
    struct exec *x = start(sb, ID("t"), JSON);
    struct spool_log *log = &sb->part->log;
    struct err err = {0};
    char payload[4096];
    size_t len = x->start_place.len, old = len - sizeof(trace) - ACCOUNTS_TOKEN_ID_SIZE;
    uint32_t number = x->number;
    assert_int_equal(pread(log->fd, payload, len, (off_t)x->start_place.at), (ssize_t)len);
    struct iovec parts[] = {{.iov_base = payload, .iov_len = old},
                            {.iov_base = &trace, .iov_len = sizeof(trace)}};
    unit_works(spool_log_append(log, SPOOL_LOG_START, number + 1, parts, 1, NULL, &err), err);
    unit_works(spool_log_append(log, SPOOL_LOG_START, number + 2, parts, 2, NULL, &err), err);
    parts[1].iov_len--;
    unit_works(spool_log_append(log, SPOOL_LOG_START, number + 3, parts, 2, NULL, &err), err);
    killed(sb);
    assert_false(trace_is_set(&numbered(sb, number + 1)->trace));
    assert_string_equal(numbered(sb, number + 1)->command, "make all");
    assert_memory_equal(&numbered(sb, number + 2)->trace, &trace, sizeof(trace));
    for (x = sb->part->newest; x != NULL; x = x->older)
        assert_int_not_equal(x->number, number + 3); /* it is of neither length */
}

static void test_who_asked_is_charged_after_a_kill_too(void **state) {
    struct sandbox *sb = *state;
    struct err err = {0};
    struct accounts_user user = {.name = "ann"};
    struct accounts_token row = {.id = "tok_a",
                                 .expires_ms = ACCOUNTS_NEVER,
                                 .until_ms = ACCOUNTS_NEVER,
                                 .cpu_budget_ms = 5000,
                                 .runs_budget = UINT64_MAX};
    struct accounts *accounts = accounts_new(&err);
    assert_non_null(accounts);
    assert_non_null(accounts_put_user(accounts, &user, &err));
    struct accounts_token *token = accounts_put_token(accounts, &row, "ann", NULL, &err);
    assert_non_null(token);
    sb->accounts = accounts;
    sb->token = token;
    sb->limits.values.v[LIMIT_CPU_MS] = 2000;
    start(sb, ID("w"), JSON);
    killed(sb);
    struct exec *x = execs_find(sb->part, ID("w"));
    assert_non_null(x);
    assert_ptr_equal(x->token, token);
    assert_ptr_equal(x->task.token, token);
    assert_int_equal(token->cpu_held_ms, 2000);
    adopt(sb, x->number);
    finish(sb);
    assert_int_equal(token->cpu_held_ms, 0);
    assert_int_equal(token->cpu_spent_ms, 700);
    execs_forget(x, true);
    sb->part->hub->accounts = sb->accounts = NULL;
    accounts_free(accounts);
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
        finish_now(sb);
        turns(sb, 4, CLOCK_NS_PER_MS / 50); /* there are many: no longer than they need */
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

/* Room that was made by evicting is not filled again by what was evicted. */
static void test_what_was_evicted_stays_away(void **state) {
    struct sandbox *sb = *state;
    char id[40];
    for (unsigned i = 0; i < EXECS_KEEP + 5; i++) {
        snprintf(id, sizeof(id), "ex_%020u", i);
        (void)start(sb, id, JSON);
        finish(sb);
    }
    turn(sb);
    assert_int_equal(sb->part->count, EXECS_KEEP);
    for (int i = 0; i < 10; i++)
        execs_forget(sb->part->newest, true);
    killed(sb);
    assert_int_equal(sb->part->count, EXECS_KEEP - 10);
    assert_string_equal(sb->part->oldest->id, "ex_00000000000000000005");
}

/* Whoever waits for the last one is answered first, and whoever looks sees no more than are kept.
 */
static void test_the_oldest_leaves_after_the_answer(void **state) {
    struct sandbox *sb = *state;
    char id[40];
    for (unsigned i = 0; i < EXECS_KEEP; i++) {
        snprintf(id, sizeof(id), "ex_%020u", i);
        (void)start(sb, id, JSON);
        finish(sb);
    }
    turn(sb);
    for (unsigned i = EXECS_KEEP; i < EXECS_KEEP + 3; i++) {
        snprintf(id, sizeof(id), "ex_%020u", i);
        (void)start(sb, id, JSON);
        finish_now(sb);
        assert_int_equal(sb->part->count, EXECS_KEEP + 1);
        execs_settle(sb->part);
        assert_int_equal(sb->part->count, EXECS_KEEP);
        execs_settle(sb->part);
        turn(sb);
        assert_int_equal(sb->part->count, EXECS_KEEP);
    }
    assert_string_equal(sb->part->oldest->id, "ex_00000000000000000003");
}

static void test_one_whose_files_are_missing_is_not_taken_up(void **state) {
    struct sandbox *sb = *state;
    char name[SPOOL_NAME_SIZE], *large = calloc(1, 30000);
    const char *const ids[] = {ID("k"), ID("l")};
    for (int i = 0; i < 2; i++) {
        struct exec *x = start(sb, ids[i], JSON);
        assert_int_equal(write(sb->out[i], large, 30000), 30000);
        finish(sb);
        exec_io_name(x, i == 0 ? EXEC_IO_OUT : EXEC_IO_ERR, name);
    }
    free(large);
    killed(sb);
    assert_int_equal(sb->part->count, 2);
    assert_int_equal(unlinkat(sb->dir, name, 0), 0);
    killed(sb);
    assert_int_equal(sb->part->count, 1);
    assert_int_equal(sb->part->done, 1);
    assert_non_null(execs_find(sb->part, ids[0]));
}

/* A disk without an inode left takes no file; what comes last is small enough for the journal, but
 * is not all that there was. */
static void test_output_that_a_full_disk_did_not_take_is_counted(void **state) {
    struct sandbox *sb = *state;
    struct err err = {0};
    struct exec *x = start(sb, ID("p"), JSON);
    for (int i = 0; i < 2; i++) {
        say(sb, i, "these are lost ");
        assert_int_equal(spool_discard(&x->out[i].spool, x->out[i].fd, 4096, &err), 15);
    }
    say(sb, 1, "end");
    finish(sb);
    for (int i = 0; i < 2; i++) {
        assert_non_null(x);
        assert_int_equal(x->state, EXEC_DONE);
        assert_true(x->ok);
        assert_int_equal(x->out[SPOOL_STDOUT].spool.total, 15);
        assert_int_equal(spool_bytes(&x->out[SPOOL_STDOUT].spool), 0);
        assert_int_equal(x->out[SPOOL_STDERR].spool.total, 18);
        assert_int_equal(spool_bytes(&x->out[SPOOL_STDERR].spool), 3);
        assert_true(spool_has(&x->out[SPOOL_STDERR].spool, 15, 3));
        assert_false(spool_has(&x->out[SPOOL_STDERR].spool, 14, 1));
        assert_in_range(sb->part->bytes, 1, 10000);
        killed(sb);
        x = execs_find(sb->part, ID("p"));
    }
    (void)start(sb, ID("q"), JSON);
    finish(sb);
    execs_settle(sb->part);
    assert_non_null(execs_find(sb->part, ID("p")));
}

/* A kill leaves the window of the file behind, with nothing in it. */
static void test_a_killed_terminal_has_only_its_output(void **state) {
    struct sandbox *sb = *state;
    int ends[2];
    char name[SPOOL_NAME_SIZE], path[128];
    sb->limits.values.v[LIMIT_OUTPUT_BYTES] = 8192;
    struct exec *x = start(sb, ID("m"), "{\"argv\":[\"sh\"],\"pty\":{\"rows\":24,\"cols\":80}}");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    x->task.ops->started(&x->task, ends[0]);
    assert_int_equal(write(ends[1], "prompt$ ", 8), 8);
    turn(sb);
    exec_io_name(x, EXEC_IO_OUT, name);
    snprintf(path, sizeof(path), "%s/%s", sb->path, name);
    detach(sb);
    assert_int_equal(truncate(path, (off_t)SPOOL_WINDOW), 0);
    attach(sb);
    x = execs_find(sb->part, ID("m"));
    assert_int_equal(x->state, EXEC_RUNNING);
    expect_output(x, 0, "prompt$ ");
    assert_int_equal(x->events.end[SPOOL_STDOUT], 8);
    close(ends[1]);
}

static void rests(struct sandbox *sb) {
    uint64_t deadline = clock_mono_ns() + 20 * EXECS_REST_MS * CLOCK_NS_PER_MS;
    while (sb->part->log.fd >= 0 && clock_mono_ns() < deadline)
        turn(sb);
    assert_int_equal(sb->part->log.fd, -1);
}

static void test_the_journal_rests_whoever_has_opened_it(void **state) {
    struct sandbox *sb = *state;
    for (int i = 0; i < 2; i++) {
        (void)start(sb, i == 0 ? ID("n") : ID("o"), JSON);
        finish(sb);
    }
    rests(sb);
    struct exec *x = sb->part->newest;
    exec_pin(x);
    assert_true(sb->part->log.fd >= 0);
    uint64_t over = clock_mono_ns() + 2 * EXECS_REST_MS * CLOCK_NS_PER_MS;
    while (clock_mono_ns() < over) {
        turn(sb);
        assert_true(sb->part->log.fd >= 0); /* it is being read */
    }
    exec_unpin(x);
    rests(sb);
    execs_forget(x, true);
    assert_true(sb->part->log.fd >= 0);
    rests(sb);
    killed(sb);
    assert_true(sb->part->log.fd >= 0);
    rests(sb);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_short_one_lies_in_the_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_start_with_and_without_its_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_asked_is_charged_after_a_kill_too, setup,
                                        teardown),
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
        cmocka_unit_test_setup_teardown(test_what_was_evicted_stays_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_oldest_leaves_after_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_whose_files_are_missing_is_not_taken_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_output_that_a_full_disk_did_not_take_is_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_killed_terminal_has_only_its_output, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_journal_rests_whoever_has_opened_it, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("execs", tests, NULL, NULL);
}
