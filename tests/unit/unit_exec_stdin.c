/* Stdin of executions that comes in parts. */
#include "execution.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "execs.h"
#include "fake_execs.h"

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

/* What was taken comes, and then its end, though the pipe was full when the server was killed. */
static void test_stdin_that_was_taken_outlives_a_kill(void **state) {
    struct sandbox *sb = *state;
    const size_t len = 100000;
    char *data = calloc(1, len), *got = malloc(len);
    struct exec *x = start(sb, ID("k"), "{\"argv\":[\"cat\"],\"stdin_open\":true}");
    struct feed part = {.feed = {.data = data, .len = len, .close = true, .over = fed}};
    assert_int_equal(exec_stdin_feed(x, &part.feed), 1);
    assert_int_equal(part.over, 0);
    assert_false(x->input.open);
    killed(sb);
    x = execs_find(sb->part, ID("k"));
    adopt(sb, x->number);
    assert_int_equal(x->input.bytes, len);
    assert_int_equal(x->input.queued, len);
    assert_false(x->input.open);
    assert_int_equal(exec_stdin_feed(x, &part.feed), -1);
    size_t seen = 0;
    for (ssize_t n; (n = read(sb->in, got, len)) > 0; turn(sb))
        seen += (size_t)n;
    assert_int_equal(seen, len);
    finish(sb);
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
    adopt(sb, x->number);
    assert_int_equal(x->input.bytes, 60000);
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
        cmocka_unit_test_setup_teardown(test_stdin_waits_for_the_command_and_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stdin_that_was_taken_outlives_a_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_much_stdin_in_small_parts_keeps_the_journal_small,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_stdin_that_nobody_takes_is_told, setup, teardown),
    };
    return cmocka_run_group_tests_name("exec_stdin", tests, NULL, NULL);
}
