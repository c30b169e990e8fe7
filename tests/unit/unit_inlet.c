#include "inlet.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "unit.h"

#define KILLS 150
#define MIB (1u << 20)

/* The byte at an offset of the stream. */
static char byte_at(uint64_t offset) {
    return (char)(offset % 251);
}

/* An inlet, where it leads, and what came out there. */
struct way {
    struct inlet in;
    bool terminal;
    int to, from;
    uint64_t seen;
    char data[MIB];
};

static void way_raw(int fd) {
    struct termios t;
    assert_int_equal(tcgetattr(fd, &t), 0);
    cfmakeraw(&t);
    assert_int_equal(tcsetattr(fd, TCSANOW, &t), 0);
}

static struct way *way_new(bool terminal) {
    struct way *w = calloc(1, sizeof(*w));
    struct err err = {0};
    int ends[2];
    inlet_init(&w->in);
    unit_works(inlet_open(&w->in, &err), err);
    w->terminal = terminal;
    if (terminal) {
        w->to = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        assert_true(w->to >= 0 && grantpt(w->to) == 0 && unlockpt(w->to) == 0);
        w->from = open(ptsname(w->to), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        way_raw(w->from);
    } else {
        assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
        w->from = ends[0];
        w->to = ends[1];
    }
    assert_true(w->from >= 0);
    return w;
}

static void way_free(struct way *w) {
    inlet_done(&w->in);
    fd_close(&w->from);
    fd_close(&w->to);
    free(w);
}

/* As much of the stream as there is room for, at most `len` bytes. */
static size_t way_take(struct way *w, size_t len) {
    struct err err = {0};
    for (size_t i = 0; i < len; i++)
        w->data[i] = byte_at(w->in.taken + i);
    ssize_t n = inlet_take(&w->in, w->data, len, &err);
    unit_works(n < 0 ? -1 : 0, err);
    return (size_t)n;
}

static void way_read(struct way *w) {
    ssize_t n;
    while ((n = read(w->from, w->data, sizeof(w->data))) > 0)
        for (ssize_t i = 0; i < n; i++, w->seen++)
            if (w->data[i] != byte_at(w->seen))
                fail_msg("wrong byte at %llu", (unsigned long long)w->seen);
}

static void way_finish(struct way *w) {
    while (inlet_send(&w->in, w->to, w->terminal) == 0)
        way_read(w);
    way_read(w);
    assert_int_equal(w->seen, w->in.taken);
}

static uint64_t way_memory(const struct way *w) {
    struct stat st;
    assert_int_equal(fstat(w->in.fd, &st), 0);
    assert_int_equal((uint64_t)st.st_size, w->in.taken);
    return (uint64_t)st.st_blocks * 512;
}

static void test_bytes_come_out_as_they_came(void **state) {
    (void)state;
    for (int terminal = 0; terminal < 2; terminal++) {
        struct way *w = way_new(terminal != 0);
        for (size_t len = 1; w->in.taken < MIB; len = len * 7 % 70001) {
            (void)way_take(w, len);
            if (inlet_send(&w->in, w->to, w->terminal) == 0)
                way_read(w);
        }
        way_finish(w);
        way_free(w);
    }
}

/* However many parts there are, and though a pipe refers to each for itself. */
static void test_small_parts_are_taken_though_nobody_reads(void **state) {
    (void)state;
    struct way *w = way_new(false);
    for (int i = 0; i < 60000; i++) {
        assert_int_equal(way_take(w, 1), 1);
        (void)inlet_send(&w->in, w->to, false);
    }
    assert_int_equal(way_take(w, MIB), INLET_MAX - 60000);
    assert_int_equal(way_take(w, 1), 0);
    way_finish(w);
    assert_int_equal(way_take(w, MIB), INLET_MAX);
    way_free(w);
}

/* What is in the pipe stays what it is when its memory is given back here. */
static void test_it_holds_little_and_gives_it_back_in_whole(void **state) {
    (void)state;
    struct way *w = way_new(false);
    assert_int_equal(fcntl(w->to, F_SETPIPE_SZ, MIB), MIB);
    assert_int_equal(way_take(w, 33), 33);
    while (inlet_send(&w->in, w->to, false) == 1) {
        assert_true(way_take(w, 40001) > 0);
        assert_true(way_memory(w) <= 2 * INLET_MAX);
    }
    assert_true(w->in.taken > MIB / 2);
    way_finish(w);
    for (int i = 0; i < 200; i++) {
        (void)way_take(w, INLET_MAX);
        way_finish(w);
        assert_true(way_memory(w) <= 2 * INLET_MAX);
    }
    way_free(w);
}

static void test_a_reader_who_left_is_told_of(void **state) {
    (void)state;
    struct way *w = way_new(false);
    (void)signal(SIGPIPE, SIG_IGN);
    fd_close(&w->from);
    assert_int_equal(way_take(w, 10), 10);
    assert_int_equal(inlet_send(&w->in, w->to, false), -1);
    assert_int_equal(w->in.sent, 0);
    w->from = -1;
    way_free(w);
}

/* Feeds for ever what the descriptor says is next. */
static void feeder(struct way *w, int fd, unsigned seed) {
    struct err err = {0};
    w->in.fd = -1;
    if (inlet_adopt(&w->in, fd, &err) < 0)
        _exit(1);
    for (;;) {
        seed = seed * 1103515245u + 12345u;
        (void)way_take(w, seed % 9000);
        (void)inlet_send(&w->in, w->to, w->terminal);
    }
}

/* One process after the other feeds it, and each is killed wherever it is. */
static void killed_again_and_again(bool terminal) {
    struct way *w = way_new(terminal);
    struct err err = {0};
    int fd = fcntl(w->in.fd, F_DUPFD_CLOEXEC, 0);
    for (unsigned i = 0; i < KILLS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            feeder(w, fd, i);
        uint64_t end = clock_mono_ns() + (1 + i * 37 % 1500) * 1000;
        do
            way_read(w);
        while (clock_mono_ns() < end);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    inlet_done(&w->in);
    unit_works(inlet_adopt(&w->in, fd, &err), err);
    assert_true(w->in.taken > 100000);
    way_finish(w);
    way_free(w);
}

static void test_no_kill_loses_or_doubles_a_byte_of_a_pipe(void **state) {
    (void)state;
    killed_again_and_again(false);
}

static void test_no_kill_loses_or_doubles_a_byte_of_a_terminal(void **state) {
    (void)state;
    killed_again_and_again(true);
}

static void test_what_is_not_one_is_refused(void **state) {
    (void)state;
    struct inlet in;
    struct err err = {0};
    int ends[2];
    inlet_init(&in);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(inlet_adopt(&in, ends[0], &err), -1);
    assert_int_equal(in.fd, -1);
    fd_close(&ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_out_as_they_came),
        cmocka_unit_test(test_small_parts_are_taken_though_nobody_reads),
        cmocka_unit_test(test_it_holds_little_and_gives_it_back_in_whole),
        cmocka_unit_test(test_a_reader_who_left_is_told_of),
        cmocka_unit_test(test_no_kill_loses_or_doubles_a_byte_of_a_pipe),
        cmocka_unit_test(test_no_kill_loses_or_doubles_a_byte_of_a_terminal),
        cmocka_unit_test(test_what_is_not_one_is_refused),
    };
    return cmocka_run_group_tests_name("inlet", tests, NULL, NULL);
}
