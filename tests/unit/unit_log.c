#include "log.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "unit.h"

struct fixture {
    int pipe[2];
    struct log log;
    char text[8192];
};

static void setup_pipe(struct fixture *f, enum log_level min) {
    assert_int_equal(pipe2(f->pipe, O_NONBLOCK | O_CLOEXEC), 0);
    log_init(&f->log, f->pipe[1], min, "tester");
}

static const char *read_all(struct fixture *f) {
    ssize_t n = read(f->pipe[0], f->text, sizeof(f->text) - 1);
    f->text[n > 0 ? n : 0] = '\0';
    return f->text;
}

static void teardown_pipe(struct fixture *f) {
    close(f->pipe[0]);
    close(f->pipe[1]);
}

static void test_one_line(void **state) {
    (void)state;
    struct fixture f;
    setup_pipe(&f, LOG_DEBUG);
    struct log_line l;
    log_begin(&l, &f.log, LOG_WARN, "thing");
    log_str(&l, "who", "me");
    log_u64(&l, "n", UINT64_MAX);
    log_i64(&l, "i", -5);
    log_end(&l);
    const char *text = read_all(&f);
    assert_memory_equal(text, "ts=20", 5);
    assert_non_null(strstr(text, "Z level=warn program=tester event=thing who=\"me\" "
                                 "n=18446744073709551615 i=-5\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    teardown_pipe(&f);
}

static void test_below_the_minimum_and_silent(void **state) {
    (void)state;
    struct fixture f;
    setup_pipe(&f, LOG_WARN);
    struct err err = {0};
    err_set(&err, ERR_STATE, 5, "broken");
    log_err(&f.log, LOG_INFO, "no", &err);
    assert_string_equal(read_all(&f), "");
    log_err(&f.log, LOG_ERROR, "yes", &err);
    assert_non_null(strstr(read_all(&f), "event=yes error=\"broken\" errno=5\n"));
    teardown_pipe(&f);
    log_init(&f.log, -1, LOG_DEBUG, "tester");
    log_err(&f.log, LOG_ERROR, "nowhere", &err);
    assert_int_equal(f.log.lost, 0);
}

static void test_hostile_values_cannot_forge(void **state) {
    (void)state;
    struct fixture f;
    setup_pipe(&f, LOG_DEBUG);
    struct log_line l;
    log_begin(&l, &f.log, LOG_INFO, "thing");
    log_str(&l, "v", "x\" level=error\nts=1 \x1b[2J\xc3\xa9");
    log_end(&l);
    const char *text = read_all(&f);
    assert_non_null(strstr(text, "v=\"x\\x22 level=error\\x0ats=1 \\x1b[2J\\xc3\\xa9\"\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    teardown_pipe(&f);
}

static void test_long_lines_are_cut_and_end(void **state) {
    (void)state;
    struct fixture f;
    setup_pipe(&f, LOG_DEBUG);
    char value[3000];
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    struct log_line l;
    log_begin(&l, &f.log, LOG_INFO, "thing");
    log_str(&l, "a", value);
    for (int i = 0; i < 100; i++) {
        log_str(&l, "b", value);
        log_u64(&l, "c", UINT64_MAX);
    }
    log_end(&l);
    const char *text = read_all(&f);
    assert_in_range(strlen(text), 1000, 1024);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_non_null(strstr(text, "...\""));
    teardown_pipe(&f);
}

static void test_every_length_fits(void **state) {
    (void)state;
    struct fixture f;
    char value[1100];
    for (size_t n = 0; n < sizeof(value); n += 7) {
        setup_pipe(&f, LOG_DEBUG);
        memset(value, 1, sizeof(value));
        value[n] = '\0';
        struct log_line l;
        log_begin(&l, &f.log, LOG_INFO, "thing");
        log_str(&l, "a", value);
        log_str(&l, "b", value);
        log_u64(&l, "c", n);
        log_end(&l);
        const char *text = read_all(&f);
        assert_in_range(strlen(text), 60, 1024);
        assert_int_equal(text[strlen(text) - 1], '\n');
        teardown_pipe(&f);
    }
}

/* A descriptor that blocks, as stderr does: a full pipe must not stop the program. */
static void test_a_full_pipe_does_not_stop_us(void **state) {
    (void)state;
    struct fixture f;
    setup_pipe(&f, LOG_DEBUG);
    struct err err = {0};
    err_set(&err, ERR_STATE, 0, "x");
    char fill[4096] = {0};
    while (write(f.pipe[1], fill, sizeof(fill)) > 0)
        continue;
    assert_int_equal(fcntl(f.pipe[1], F_SETFL, 0), 0);
    alarm(10);
    log_err(&f.log, LOG_ERROR, "a", &err);
    alarm(0);
    assert_int_equal(f.log.lost, 1);
    while (read(f.pipe[0], fill, sizeof(fill)) > 0)
        continue;
    log_err(&f.log, LOG_ERROR, "b", &err);
    assert_non_null(strstr(read_all(&f), "event=b lost=1 error="));
    assert_int_equal(f.log.lost_ever, 1);
    teardown_pipe(&f);
}

/* A disk that is full in the middle of a line: the next one begins a line of its own. */
static void test_a_torn_line_is_ended(void **state) {
    (void)state;
    struct log log;
    struct rlimit rl, small;
    struct err err = {0};
    char text[4096];
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &rl), 0);
    signal(SIGXFSZ, SIG_IGN);
    log_init(&log, fileno(file), LOG_DEBUG, "tester");
    err_set(&err, ERR_STATE, 0, "x");
    small = rl;
    small.rlim_cur = 20; /* writes beyond it fail as on a full disk */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    log_err(&log, LOG_ERROR, "a", &err);
    log_err(&log, LOG_ERROR, "b", &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
    log_err(&log, LOG_ERROR, "c", &err);
    log_err(&log, LOG_ERROR, "d", &err);
    ssize_t n = pread(fileno(file), text, sizeof(text) - 1, 0);
    assert_in_range(n, 20, sizeof(text));
    text[n] = '\0';
    assert_memory_equal(text + 20, "\nts=", 4);
    assert_non_null(strstr(text, "event=c lost=2"));
    assert_null(strstr(text, "\n\n"));
    assert_int_equal(log.lost, 0);
    fclose(file);
}

static void test_lost_lines_are_counted(void **state) {
    (void)state;
    struct fixture f;
    setup_pipe(&f, LOG_DEBUG);
    struct err err = {0};
    err_set(&err, ERR_STATE, 0, "x");
    char fill[4096] = {0};
    while (write(f.pipe[1], fill, sizeof(fill)) > 0)
        continue;
    log_err(&f.log, LOG_ERROR, "a", &err);
    log_err(&f.log, LOG_ERROR, "b", &err);
    assert_int_equal(f.log.lost, 2);
    while (read(f.pipe[0], fill, sizeof(fill)) > 0)
        continue;
    log_err(&f.log, LOG_ERROR, "c", &err);
    assert_non_null(strstr(read_all(&f), "event=c lost=2 error="));
    assert_int_equal(f.log.lost, 0);
    teardown_pipe(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_below_the_minimum_and_silent),
        cmocka_unit_test(test_hostile_values_cannot_forge),
        cmocka_unit_test(test_long_lines_are_cut_and_end),
        cmocka_unit_test(test_every_length_fits),
        cmocka_unit_test(test_lost_lines_are_counted),
        cmocka_unit_test(test_a_full_pipe_does_not_stop_us),
        cmocka_unit_test(test_a_torn_line_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
