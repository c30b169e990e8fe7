#include "fileop_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "fake_operation.h"
#include "unit.h"

static void test_records_come_in_order_and_the_end_is_told_once(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    assert_non_null(start(sb, "list", false, &plain_ops, &t));
    assert_string_equal(sb->tasks[0].op, "list");
    say_record(sb, 0, directory, "a");
    say_record(sb, 0, directory, "a/b");
    turn(sb);
    assert_string_equal(t.text.data, "<a><a/b>");
    say_record(sb, 0, (struct fileop_record){.type = FILEOP_END, .flags = FILEOP_MORE}, "");
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_OK);
    assert_true(t.result.more);
    over(sb, 0, CAUSE_EXIT);
    turn(sb);
    assert_int_equal(t.done, 1);
    buf_done(&t.text);
    box_free(sb);
}

static void test_a_failure_is_one_sentence_that_names_the_path(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "stat", false, &plain_ops, &t);
    say_record(sb, 0, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_NOT_FOUND}, "");
    over(sb, 0, CAUSE_EXIT);
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_NOT_FOUND);
    assert_string_equal(t.result.message, "There is nothing at /workspace/a.");
    buf_done(&t.text);
    box_free(sb);
}

static void cut(enum cause cause, enum fileop_code want) {
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "read", false, &plain_ops, &t);
    say_record(sb, 0, entry, "");
    say_record(sb, 0, data_of(100), "");
    say(sb, 0, "half", 4);
    turn(sb);
    over(sb, 0, cause);
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, want);
    assert_false(t.result.gone);
    buf_done(&t.text);
    box_free(sb);
}

static void test_a_stream_that_is_cut_short_is_a_failure(void **state) {
    (void)state;
    cut(CAUSE_EXIT, FILEOP_IO);
    cut(CAUSE_MEMORY, FILEOP_NO_SPACE);
    cut(CAUSE_CANCELLED, FILEOP_BUSY);
}

static void test_noise_ends_the_operation(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "list", false, &plain_ops, &t);
    t.run = NULL;
    sb->tasks[0].task->sandbox = sb;
    char noise[200];
    memset(noise, 0x5a, sizeof(noise));
    say(sb, 0, noise, sizeof(noise));
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_IO);
    assert_true(sb->tasks[0].killed);
    over(sb, 0, CAUSE_CANCELLED);
    buf_done(&t.text);
    box_free(sb);
}

static void test_contents_can_be_taken_by_hand(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    char data[64], all[32] = "";
    size_t len = 0;
    ssize_t n = 0;
    start(sb, "read", false, &hand_ops, &t);
    say_record(sb, 0, entry, "");
    say_record(sb, 0, data_of(10), "");
    say(sb, 0, "01234", 5);
    turn(sb);
    assert_string_equal(t.text.data, "<>");
    assert_int_equal(t.readable, 1);
    for (int i = 0; i < 3 && (n = fileop_run_read(t.run, data, 3)) > 0; i++) {
        memcpy(all + len, data, (size_t)n);
        len += (size_t)n;
    }
    assert_int_equal(n, 0);
    say(sb, 0, "56789", 5);
    /* The head of the next record in two pieces. */
    struct fileop_record next = data_of(3);
    next.magic = FILEOP_MAGIC;
    say(sb, 0, &next, 11);
    turn(sb);
    assert_int_equal(t.readable, 2);
    while ((n = fileop_run_read(t.run, data, sizeof(data))) > 0) {
        memcpy(all + len, data, (size_t)n);
        len += (size_t)n;
    }
    assert_int_equal(n, 0);
    say(sb, 0, (char *)&next + 11, sizeof(next) - 11);
    say(sb, 0, "abc", 3);
    say_record(sb, 0, data_of(0), "");
    turn(sb);
    while ((n = fileop_run_read(t.run, data, sizeof(data))) > 0) {
        memcpy(all + len, data, (size_t)n);
        len += (size_t)n;
    }
    assert_int_equal(n, -1);
    assert_string_equal(all, "0123456789abc");
    assert_int_equal(t.done, 0);
    say_record(sb, 0, the_end, "");
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_OK);
    over(sb, 0, CAUSE_EXIT);
    buf_done(&t.text);
    box_free(sb);
}

static void test_an_error_within_contents_is_what_done_tells(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    char data[64];
    start(sb, "read", false, &hand_ops, &t);
    say_record(sb, 0, entry, "");
    say_record(sb, 0, data_of(3), "");
    say(sb, 0, "abc", 3);
    say_record(sb, 0, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_CHANGED}, "");
    over(sb, 0, CAUSE_EXIT);
    turn(sb);
    assert_int_equal(fileop_run_read(t.run, data, sizeof(data)), 3);
    assert_int_equal(fileop_run_read(t.run, data, sizeof(data)), -2);
    assert_int_equal(t.done, 0);
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_CHANGED);
    buf_done(&t.text);
    box_free(sb);
}

static void test_nothing_comes_while_paused(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "pack", false, &plain_ops, &t);
    t.pause = true;
    for (int i = 0; i < 3; i++)
        say_record(sb, 0, directory, "d");
    say_record(sb, 0, the_end, "");
    over(sb, 0, CAUSE_EXIT);
    for (size_t i = 1; i <= 3; i++) {
        turn(sb);
        turn(sb);
        assert_int_equal(t.text.len, 3 * i);
        assert_int_equal(t.done, 0);
        fileop_run_resume(t.run);
    }
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_OK);
    buf_done(&t.text);
    box_free(sb);
}

static void test_an_upload_waits_for_room_and_loses_nothing(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    static char piece[100000], got[200000];
    struct buf all;
    size_t sent = 0;
    buf_init(&all, 64u << 20);
    start(sb, "write", true, &plain_ops, &t);
    turn(sb);
    assert_int_equal(t.writable, 1);
    memset(piece, 'p', sizeof(piece));
    struct fileop_record rec = data_of(sizeof(piece));
    fcntl(sb->tasks[0].in, F_SETFL, O_NONBLOCK);
    for (int round = 0; round < 40; round++) {
        int seen = t.writable;
        int rc = fileop_run_put(t.run, &rec, NULL, NULL, piece);
        assert_true(rc >= 0);
        sent += sizeof(rec) + sizeof(piece);
        for (int i = 0; rc == 0 && t.writable == seen && i < 100; i++) {
            ssize_t n = read(sb->tasks[0].in, got, sizeof(got));
            if (n > 0)
                buf_append(&all, got, (size_t)n, NULL);
            turn(sb);
        }
        assert_true(rc == 1 || t.writable > seen);
    }
    fileop_run_finish(t.run);
    sent += sizeof(rec);
    for (int i = 0; i < 1000 && sb->tasks[0].in >= 0; i++) {
        ssize_t n = read(sb->tasks[0].in, got, sizeof(got));
        if (n > 0)
            buf_append(&all, got, (size_t)n, NULL);
        else if (n == 0)
            fd_close(&sb->tasks[0].in);
        else
            turn(sb);
    }
    assert_int_equal(all.len, sent);
    assert_int_equal(fileop_run_put(t.run, &rec, NULL, NULL, piece), -1);
    say_record(sb, 0, the_end, "");
    turn(sb);
    assert_int_equal(t.done, 1);
    over(sb, 0, CAUSE_EXIT);
    buf_done(&all);
    buf_done(&t.text);
    box_free(sb);
}

static void test_a_reader_that_went_away_is_no_failure_of_its_own(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    struct fileop_record rec = data_of(5);
    start(sb, "write", true, &plain_ops, &t);
    turn(sb);
    fd_close(&sb->tasks[0].in);
    assert_int_equal(fileop_run_put(t.run, &rec, NULL, NULL, "12345"), -1);
    turn(sb);
    assert_int_equal(t.done, 0);
    say_record(sb, 0, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_NO_SPACE}, "");
    over(sb, 0, CAUSE_EXIT);
    turn(sb);
    assert_int_equal(t.result.code, FILEOP_NO_SPACE);
    buf_done(&t.text);
    box_free(sb);
}

static void test_cancelling_kills_and_is_told_later(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "read", false, &plain_ops, &t);
    sb->tasks[0].task->sandbox = sb;
    fileop_run_cancel(t.run);
    assert_int_equal(t.done, 0);
    assert_true(sb->tasks[0].killed);
    turn(sb);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.result.code, FILEOP_IO);
    over(sb, 0, CAUSE_CANCELLED);
    turn(sb);
    buf_done(&t.text);
    box_free(sb);
}

static void test_an_owner_who_gives_up_hears_no_more(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "list", false, &plain_ops, &t);
    sb->tasks[0].task->sandbox = sb;
    t.give_up_after = 2;
    for (int i = 0; i < 5; i++)
        say_record(sb, 0, directory, "d");
    turn(sb);
    assert_string_equal(t.text.data, "<d><d>");
    assert_int_equal(t.done, 1);
    assert_true(sb->tasks[0].killed);
    over(sb, 0, CAUSE_CANCELLED);
    buf_done(&t.text);
    box_free(sb);
}

static void test_32_work_at_once_and_the_others_wait(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    static struct told t[FILEOP_RUN_SLOTS + 3];
    for (size_t i = 0; i < UNIT_COUNT(t); i++)
        assert_non_null(start(sb, "stat", false, &plain_ops, &t[i]));
    assert_int_equal(sb->count, FILEOP_RUN_SLOTS);
    over(sb, 5, CAUSE_EXIT);
    assert_int_equal(sb->count, FILEOP_RUN_SLOTS + 1);
    /* One that waits is cancelled: nothing was sent for it. */
    fileop_run_cancel(t[FILEOP_RUN_SLOTS + 1].run);
    turn(sb);
    assert_int_equal(t[FILEOP_RUN_SLOTS + 1].done, 1);
    over(sb, 6, CAUSE_EXIT);
    over(sb, 7, CAUSE_EXIT);
    turn(sb);
    assert_int_equal(sb->count, FILEOP_RUN_SLOTS + 2);
    for (size_t i = 0; i < sb->count; i++)
        if (sb->tasks[i].task != NULL)
            over(sb, i, CAUSE_EXIT);
    turn(sb);
    for (size_t i = 0; i < UNIT_COUNT(t); i++) {
        assert_int_equal(t[i].done, 1);
        buf_done(&t[i].text);
    }
    box_free(sb);
}

static void test_one_that_waits_takes_its_stdin_along(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    static struct told t[FILEOP_RUN_SLOTS + 1];
    char got[8] = "";
    for (size_t i = 0; i < FILEOP_RUN_SLOTS; i++)
        assert_non_null(start(sb, "stat", false, &plain_ops, &t[i]));
    struct told *last = &t[FILEOP_RUN_SLOTS];
    assert_non_null(start(sb, "unpack", true, &plain_ops, last));
    int fd = fileop_run_take_stdin(last->run);
    assert_int_equal(write(fd, "early", 5), 5);
    close(fd);
    over(sb, 0, CAUSE_EXIT);
    assert_int_equal(sb->count, FILEOP_RUN_SLOTS + 1);
    assert_int_equal(read(sb->tasks[FILEOP_RUN_SLOTS].in, got, sizeof(got)), 5);
    assert_int_equal(read(sb->tasks[FILEOP_RUN_SLOTS].in, got, sizeof(got)), 0);
    box_free(sb);
    for (size_t i = 0; i < UNIT_COUNT(t); i++)
        buf_done(&t[i].text);
}

static void test_contents_are_announced_and_follow_in_pieces(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    struct fileop_record rec = data_of(8), got;
    char text[9] = "";
    start(sb, "write", true, &plain_ops, &t);
    assert_int_equal(fileop_run_put(t.run, &rec, NULL, NULL, NULL), 1);
    assert_int_equal(fileop_run_put_bytes(t.run, "hell", 4), 4);
    assert_int_equal(fileop_run_put_bytes(t.run, "o you", 4), 4);
    assert_int_equal(read(sb->tasks[0].in, &got, sizeof(got)), sizeof(got));
    assert_int_equal(got.data_len, 8);
    assert_int_equal(read(sb->tasks[0].in, text, 8), 8);
    assert_string_equal(text, "hello yo");
    fd_close(&sb->tasks[0].in);
    assert_int_equal(fileop_run_put_bytes(t.run, "x", 1), -1);
    box_free(sb);
    buf_done(&t.text);
}

static void test_watches_leave_the_slots_to_others(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    static struct told t[FILEOP_RUN_WATCHES + 1];
    for (size_t i = 0; i < FILEOP_RUN_WATCHES; i++)
        assert_non_null(start(sb, "watch", true, &plain_ops, &t[i]));
    assert_null(start(sb, "watch", true, &plain_ops, &t[FILEOP_RUN_WATCHES]));
    assert_int_equal(sb->count, FILEOP_RUN_WATCHES);
    assert_non_null(start(sb, "stat", false, &plain_ops, &t[FILEOP_RUN_WATCHES]));
    assert_int_equal(sb->count, FILEOP_RUN_WATCHES + 1);
    assert_string_equal(sb->tasks[FILEOP_RUN_WATCHES].op, "stat");
    box_free(sb);
    for (size_t i = 0; i < UNIT_COUNT(t); i++) {
        assert_int_equal(t[i].done, 1);
        assert_true(t[i].result.gone);
        buf_done(&t[i].text);
    }
}

static void test_one_that_finds_the_runner_full_tries_again(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    sb->execs_max = 1;
    sb->count = 1; /* a command */
    sb->tasks[0] =
        (struct fake_task){.task = (struct sandbox_task *)(void *)sb, .in = -1, .out = -1};
    assert_non_null(start(sb, "stat", false, &plain_ops, &t));
    assert_int_equal(sb->count, 1);
    sb->tasks[0].task = NULL;
    uint64_t due = clock_mono_ms() + 2000;
    while (sb->count == 1 && clock_mono_ms() < due)
        turn(sb);
    assert_int_equal(sb->count, 2);
    over(sb, 1, CAUSE_EXIT);
    turn(sb);
    buf_done(&t.text);
    box_free(sb);
}

static void test_the_end_of_the_sandbox_ends_all(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    start(sb, "read", false, &plain_ops, &t);
    struct sandbox_task *task = sb->tasks[0].task;
    sb->tasks[0].task = NULL;
    task->ops->lost(task, CAUSE_CANCELLED);
    assert_int_equal(t.done, 1);
    assert_true(t.result.gone);
    sb->state = SANDBOX_GONE;
    const char *argv[] = {"stat", "/a", "0"};
    struct err err = {0};
    assert_null(fileop_run_start(sb, argv, 3, false, &plain_ops, &t, &err));
    assert_int_equal(err.kind, ERR_STATE);
    buf_done(&t.text);
    box_free(sb);
}

static void test_stdin_can_be_handed_to_a_thread(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    char got[8] = "";
    start(sb, "unpack", true, &plain_ops, &t);
    int fd = fileop_run_take_stdin(t.run);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    assert_int_equal(read(sb->tasks[0].in, got, sizeof(got)), 5);
    assert_int_equal(read(sb->tasks[0].in, got, sizeof(got)), 0);
    say_record(sb, 0, the_end, "");
    over(sb, 0, CAUSE_EXIT);
    turn(sb);
    assert_int_equal(t.result.code, FILEOP_OK);
    buf_done(&t.text);
    box_free(sb);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_come_in_order_and_the_end_is_told_once),
        cmocka_unit_test(test_a_failure_is_one_sentence_that_names_the_path),
        cmocka_unit_test(test_a_stream_that_is_cut_short_is_a_failure),
        cmocka_unit_test(test_noise_ends_the_operation),
        cmocka_unit_test(test_contents_can_be_taken_by_hand),
        cmocka_unit_test(test_an_error_within_contents_is_what_done_tells),
        cmocka_unit_test(test_nothing_comes_while_paused),
        cmocka_unit_test(test_an_upload_waits_for_room_and_loses_nothing),
        cmocka_unit_test(test_a_reader_that_went_away_is_no_failure_of_its_own),
        cmocka_unit_test(test_cancelling_kills_and_is_told_later),
        cmocka_unit_test(test_an_owner_who_gives_up_hears_no_more),
        cmocka_unit_test(test_32_work_at_once_and_the_others_wait),
        cmocka_unit_test(test_one_that_waits_takes_its_stdin_along),
        cmocka_unit_test(test_contents_are_announced_and_follow_in_pieces),
        cmocka_unit_test(test_watches_leave_the_slots_to_others),
        cmocka_unit_test(test_one_that_finds_the_runner_full_tries_again),
        cmocka_unit_test(test_the_end_of_the_sandbox_ends_all),
        cmocka_unit_test(test_stdin_can_be_handed_to_a_thread),
    };
    return cmocka_run_group_tests_name("fileop_run", tests, NULL, NULL);
}
