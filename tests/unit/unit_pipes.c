#include "pipes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "unit.h"

static void check_pair(int ends[2]) {
    struct stat st;
    char c;
    assert_int_equal(read(ends[0], &c, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(ends[1], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fstat(ends[1], &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    fd_close(&ends[0]);
    fd_close(&ends[1]);
}

static void wait_until_ready(struct loop *loop, const struct pipes *p) {
    uint64_t deadline = clock_mono_ns() + 5 * CLOCK_NS_PER_S;
    while (p->count < PIPES_READY && clock_mono_ns() < deadline)
        assert_int_equal(loop_once(loop, CLOCK_NS_PER_MS, NULL), 0);
    assert_int_equal(p->count, PIPES_READY);
}

static void test_a_pipe_is_the_same_whether_it_was_ready_or_not(void **state) {
    (void)state;
    struct err err;
    struct loop *loop = loop_new(&err);
    struct pipes p;
    int ends[2];
    assert_non_null(loop);
    pipes_init(&p, loop);
    unit_works(pipes_take(&p, ends, &err), err); /* none is ready yet */
    check_pair(ends);
    wait_until_ready(loop, &p);
    for (size_t i = 0; i < PIPES_READY + 2; i++) {
        unit_works(pipes_take(&p, ends, &err), err);
        check_pair(ends);
    }
    wait_until_ready(loop, &p);
    pipes_done(&p);
    loop_free(loop);
}

/* As pipes_take(), by a process that may open nothing more. */
static int take_with_none_left(struct pipes *p, int ends[2], struct err *err) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = pipes_take(p, ends, err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    return rc;
}

static void test_without_descriptors_the_taker_is_told(void **state) {
    (void)state;
    struct err err;
    struct loop *loop = loop_new(&err);
    struct pipes p;
    int ends[2] = {-1, -1};
    pipes_init(&p, loop);
    unit_fails(take_with_none_left(&p, ends, &err), err, ERR_SYSTEM);
    assert_int_equal(ends[0], -1);
    pipes_done(&p);
    loop_free(loop);
}

static void test_what_is_over_is_closed_a_moment_later(void **state) {
    (void)state;
    struct err err;
    struct loop *loop = loop_new(&err);
    struct pipes p;
    int ends[PIPES_READY + 1][2];
    pipes_init(&p, loop);
    wait_until_ready(loop, &p);
    for (size_t i = 0; i <= PIPES_READY; i++) {
        unit_works(pipes_take(&p, ends[i], &err), err);
        int fd = ends[i][0];
        pipes_leave(&p, &ends[i][0]);
        assert_int_equal(ends[i][0], -1);
        /* One more than can be remembered is closed at once. */
        assert_int_equal(fcntl(fd, F_GETFD) < 0, i == PIPES_READY);
    }
    wait_until_ready(loop, &p);
    assert_int_equal(p.over_count, 0);
    for (size_t i = 0; i <= PIPES_READY; i++) {
        assert_int_equal(write(ends[i][1], "x", 1), -1); /* nobody can read it any more */
        assert_int_equal(errno, EPIPE);
        fd_close(&ends[i][1]);
    }
    int none = -1;
    pipes_leave(&p, &none);
    assert_int_equal(p.over_count, 0);
    pipes_done(&p);
    loop_free(loop);
}

static void test_nothing_is_left_open_at_the_end(void **state) {
    (void)state;
    struct err err;
    struct loop *loop = loop_new(&err);
    struct pipes p;
    int first[2], second[2];
    pipes_init(&p, loop);
    unit_works(pipes_take(&p, first, &err), err);
    unit_works(pipes_take(&p, second, &err), err);
    int fds[2] = {first[0], second[0]};
    pipes_leave(&p, &first[0]);
    pipes_done(&p);
    pipes_leave(&p, &second[0]); /* whoever comes late */
    for (int i = 0; i < 2; i++)
        assert_int_equal(fcntl(fds[i], F_GETFD), -1);
    fd_close(&first[1]);
    fd_close(&second[1]);
    loop_free(loop);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pipe_is_the_same_whether_it_was_ready_or_not),
        cmocka_unit_test(test_without_descriptors_the_taker_is_told),
        cmocka_unit_test(test_what_is_over_is_closed_a_moment_later),
        cmocka_unit_test(test_nothing_is_left_open_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
