#include "fileop_run.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_operation.h"
#include "unit.h"

/* Reads all that is in a socket. */
static size_t drain(int socket, char *all, size_t len) {
    ssize_t n;
    while ((n = recv(socket, all + len, 1000000 - len, MSG_DONTWAIT)) > 0)
        len += (size_t)n;
    return len;
}

static void test_contents_go_into_a_socket_as_far_as_it_takes_them(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    static char piece[60000], all[1000000];
    size_t len = 0, want = 0;
    ssize_t n = 0;
    int ends[2];
    bool full = false;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    start(sb, "read", false, &hand_ops, &t);
    say_record(sb, 0, entry, "");
    say_record(sb, 0, data_of(5), "");
    say(sb, 0, "01234", 5);
    turn(sb);
    /* Of what was read already, a part. */
    assert_int_equal(fileop_run_read_to(t.run, ends[0], 2), 2);
    assert_int_equal(fileop_run_read_to(t.run, ends[0], 100), 3);
    assert_int_equal(fileop_run_read_to(t.run, ends[0], 100), 0);
    for (int i = 0; i < 12; i++) {
        memset(piece, 'a' + i, sizeof(piece));
        say_record(sb, 0, data_of(sizeof(piece)), "");
        say(sb, 0, piece, sizeof(piece));
        turn(sb);
        while (want < sizeof(piece) * (size_t)(i + 1)) {
            n = fileop_run_read_to(t.run, ends[0], sizeof(all));
            if (n == FILEOP_RUN_FULL) {
                full = true;
                len = drain(ends[1], all, len);
                continue;
            }
            assert_true(n > 0);
            want += (size_t)n;
        }
    }
    assert_true(full);
    say_record(sb, 0, data_of(0), "");
    turn(sb);
    assert_int_equal(fileop_run_read_to(t.run, ends[0], 100), -1);
    len = drain(ends[1], all, len);
    assert_int_equal(len, 5 + 12 * sizeof(piece));
    assert_memory_equal(all, "01234", 5);
    for (size_t i = 0; i < 12 * sizeof(piece); i++)
        assert_int_equal(all[5 + i], (int)('a' + i / sizeof(piece)));
    close(ends[0]);
    close(ends[1]);
    say_record(sb, 0, the_end, "");
    turn(sb);
    assert_int_equal(t.result.code, FILEOP_OK);
    over(sb, 0, CAUSE_EXIT);
    buf_done(&t.text);
    box_free(sb);
}

static void test_a_socket_that_is_closed_ends_the_contents(void **state) {
    (void)state;
    struct sandbox *sb = box_new();
    struct told t;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    signal(SIGPIPE, SIG_IGN);
    start(sb, "read", false, &hand_ops, &t);
    say_record(sb, 0, entry, "");
    say_record(sb, 0, data_of(10), "");
    turn(sb);
    say(sb, 0, "01234", 5);
    close(ends[1]);
    assert_int_equal(fileop_run_read_to(t.run, ends[0], 100), -2);
    fileop_run_cancel(t.run);
    over(sb, 0, CAUSE_CANCELLED);
    turn(sb);
    assert_int_equal(t.done, 1);
    close(ends[0]);
    buf_done(&t.text);
    box_free(sb);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents_go_into_a_socket_as_far_as_it_takes_them),
        cmocka_unit_test(test_a_socket_that_is_closed_ends_the_contents),
    };
    return cmocka_run_group_tests_name("fileop_run_read", tests, NULL, NULL);
}
