#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

struct place {
    char path[64];
    int dir;
};

static int setup(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->path, sizeof(p->path), "/tmp/unit-spool-XXXXXX");
    if (p == NULL || mkdtemp(p->path) == NULL)
        return -1;
    p->dir = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return 0;
}

static int teardown(void **state) {
    struct place *p = *state;
    unlinkat(p->dir, "s", 0);
    close(p->dir);
    int rc = rmdir(p->path);
    free(p);
    return rc;
}

/* The byte at an offset of the stream. */
static char byte_at(uint64_t offset) {
    return (char)(offset % 251);
}

static void put(struct spool *s, size_t len) {
    struct err err = {0};
    char *data = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(s->total + i);
    unit_works(spool_put(s, data, len, &err), err);
    free(data);
}

static void expect(struct spool *s, uint64_t offset, size_t len) {
    struct err err = {0};
    char *data = malloc(len + 1);
    assert_true(spool_has(s, offset, len));
    unit_works(spool_read(s, offset, data, len, &err), err);
    for (size_t i = 0; i < len; i++)
        if (data[i] != byte_at(offset + i))
            fail_msg("wrong byte at %llu", (unsigned long long)(offset + i));
    free(data);
}

static uint64_t on_disk(const struct spool *s) {
    struct stat st;
    assert_int_equal(fstat(s->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_keeps_everything_up_to_the_cap(void **state) {
    struct place *p = *state;
    struct spool s;
    struct err err = {0};
    uint64_t head, tail;
    spool_init(&s, &p->dir, 10001);
    assert_false(spool_has_file(&s));
    assert_true(spool_has(&s, 0, 0));
    assert_false(spool_has(&s, 0, 1));
    unit_works(spool_create(&s, "s", &err), err);
    put(&s, 10001);
    spool_finish(&s);
    spool_kept(&s, &head, &tail);
    assert_int_equal(head + tail, 10001);
    assert_int_equal(head, 5000);
    expect(&s, 0, 10001);
    assert_false(spool_has(&s, 1, 10001));
    assert_false(spool_has(&s, UINT64_MAX, 2));
    spool_rest(&s);
    expect(&s, 4990, 20);
    spool_remove(&s);
    assert_int_equal(faccessat(p->dir, "s", F_OK, 0), -1);
    spool_done(&s);
}

static void test_much_output_keeps_head_and_tail_in_bounded_space(void **state) {
    struct place *p = *state;
    static const uint64_t caps[] = {1, 2, 100, 8191, 65536, 1 << 20, 3 << 20};
    for (size_t i = 0; i < UNIT_COUNT(caps); i++) {
        struct spool s;
        struct err err = {0};
        uint64_t head, tail, cap = caps[i];
        uint64_t slack = cap / 2 > SPOOL_TAIL_MIN ? cap / 2 : SPOOL_TAIL_MIN;
        spool_init(&s, &p->dir, cap);
        unit_works(spool_create(&s, "s", &err), err);
        for (int k = 0; k < 300; k++) {
            put(&s, 65521);
            assert_true(on_disk(&s) <= cap / 2 + 2 * slack + 5 * 65536);
            assert_true(spool_has(&s, s.total - 60000, 60000)); /* room to lag */
        }
        spool_finish(&s);
        spool_kept(&s, &head, &tail);
        assert_int_equal(head + tail, cap);
        assert_true(on_disk(&s) <= cap + 5 * 4096);
        assert_true(spool_bytes(&s) <= cap + 3 * 4096);
        expect(&s, 0, (size_t)head);
        expect(&s, s.total - tail, (size_t)tail);
        assert_false(spool_has(&s, head, 8192));
        /* The same from what is on disk. */
        struct spool again;
        spool_init(&again, &p->dir, cap);
        unit_works(spool_load(&again, "s", &err), err);
        assert_int_equal(again.total, s.total);
        assert_int_equal(again.gone, s.gone);
        expect(&again, again.total - tail, (size_t)tail);
        spool_done(&again);
        spool_remove(&s);
        spool_done(&s);
    }
}

static void test_takes_from_a_pipe_and_tells_its_end(void **state) {
    struct place *p = *state;
    struct spool s;
    struct err err = {0};
    int ends[2];
    char data[5000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = byte_at(i);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    spool_init(&s, &p->dir, 1 << 20);
    unit_works(spool_create(&s, "s", &err), err);
    assert_int_equal(spool_take(&s, ends[0], 1 << 20, &err), -1);
    assert_int_equal(err.code, EAGAIN);
    assert_int_equal(write(ends[1], data, sizeof(data)), sizeof(data));
    assert_int_equal(spool_take(&s, ends[0], 1000, &err), 1000);
    assert_int_equal(spool_take(&s, ends[0], 1 << 20, &err), 4000);
    expect(&s, 0, 5000);
    close(ends[1]);
    assert_int_equal(spool_take(&s, ends[0], 1 << 20, &err), 0);
    close(ends[0]);
    spool_remove(&s);
    spool_done(&s);
}

static void test_a_terminal_is_read_without_a_copy(void **state) {
    struct place *p = *state;
    struct spool s, again;
    struct err err = {0};
    struct stat st;
    int ends[2];
    char data[1000];
    memset(data, 'x', sizeof(data));
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    spool_init(&s, &p->dir, 1 << 20);
    unit_works(spool_create(&s, "s", &err), err);
    assert_int_equal(spool_take_terminal(&s, ends[0], &err), -1);
    assert_int_equal(err.code, EAGAIN);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(write(ends[1], data, sizeof(data)), sizeof(data));
        for (uint64_t want = s.total + sizeof(data); s.total < want;)
            assert_true(spool_take_terminal(&s, ends[0], &err) > 0);
        assert_int_equal(spool_read(&s, s.total - 5, data, 5, &err), 0);
        assert_memory_equal(data, "xxxxx", 5);
        spool_init(&again, &p->dir, 1 << 20);
        unit_works(spool_load(&again, "s", &err), err);
        assert_true(again.total >= s.total && again.total <= s.total + SPOOL_WINDOW);
        spool_done(&again);
    }
    spool_finish(&s);
    assert_int_equal(fstat(s.fd, &st), 0);
    assert_int_equal(st.st_size, 200000);
    close(ends[1]);
    assert_int_equal(spool_take_terminal(&s, ends[0], &err), 0);
    spool_rest(&s);
    unit_works(spool_load(&again, "s", &err), err);
    assert_int_equal(again.total, 200000);
    unit_works(spool_cut_terminal(&again, 0, &err), err);
    assert_int_equal(again.total, 200000);
    spool_done(&again);
    close(ends[0]);
}

/* What a process that is killed leaves of a terminal's output is longer by zeros and holes, which
 * are neither output nor what was given back of it. */
static void test_a_killed_terminal_ends_where_its_bytes_end(void **state) {
    struct place *p = *state;
    struct err err = {0};
    static const uint64_t lengths[] = {2, 100, 3999, 4000, 4096, 5000, 70000, 3000000};
    for (size_t i = 0; i < 2 * UNIT_COUNT(lengths); i++) {
        struct spool s, again;
        uint64_t len = lengths[i / 2], told = i % 2 ? len + 3 : 0;
        spool_init(&s, &p->dir, 8000);
        unit_works(spool_create(&s, "s", &err), err);
        while (s.total < len)
            put(&s, len - s.total < 50000 ? (size_t)(len - s.total) : 50000);
        assert_true(byte_at(len - 1) != 0);
        if (told > 0)
            unit_works(spool_put(&s, "\0\0", 3, &err), err);
        assert_int_equal(ftruncate(s.fd, (off_t)(s.total / 4096 * 4096 + SPOOL_WINDOW)), 0);
        spool_init(&again, &p->dir, 8000);
        unit_works(spool_load(&again, "s", &err), err);
        unit_works(spool_cut_terminal(&again, told, &err), err);
        assert_int_equal(again.total, s.total);
        assert_int_equal(again.gone, s.gone);
        if (s.gone == 0)
            expect(&again, 0, (size_t)len);
        else
            expect(&again, s.gone, (size_t)(len - s.gone));
        spool_done(&again);
        spool_done(&s);
    }
}

/* A process that is killed leaves a file of any length: all of it is the stream. */
static void test_every_length_is_taken_up(void **state) {
    struct place *p = *state;
    struct err err = {0};
    for (uint64_t len = 0; len < 600; len += 7) {
        struct spool s, again;
        spool_init(&s, &p->dir, 400);
        unit_works(spool_create(&s, "s", &err), err);
        put(&s, (size_t)len);
        spool_done(&s);
        spool_init(&again, &p->dir, 400);
        unit_works(spool_load(&again, "s", &err), err);
        assert_int_equal(again.total, len);
        assert_int_equal(again.gone, 0);
        put(&again, 50);
        expect(&again, 0, (size_t)len + 50);
        spool_done(&again);
    }
    struct spool none;
    spool_init(&none, &p->dir, 400);
    unit_fails(spool_load(&none, "none", &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, ENOENT);
    assert_false(spool_has_file(&none));
}

static void test_a_link_is_not_followed(void **state) {
    struct place *p = *state;
    struct spool s;
    struct err err = {0};
    assert_int_equal(symlinkat("/etc/passwd", p->dir, "s"), 0);
    spool_init(&s, &p->dir, 400);
    unit_fails(spool_create(&s, "s", &err), err, ERR_SYSTEM);
    unit_fails(spool_load(&s, "s", &err), err, ERR_SYSTEM);
}

static void test_a_part_of_another_file_is_read(void **state) {
    struct place *p = *state;
    struct spool s, part;
    struct err err = {0};
    char data[4];
    spool_init(&s, &p->dir, 1000);
    unit_works(spool_create(&s, "s", &err), err);
    put(&s, 100);
    spool_init(&part, &p->dir, 1000);
    part.host = &s.fd;
    part.host_at = 10;
    part.total = 20;
    unit_works(spool_read(&part, 16, data, 4, &err), err);
    assert_int_equal(data[0], byte_at(26));
    unit_fails(spool_read(&part, 17, data, 4, &err), err, ERR_STATE);
    spool_done(&part);
    spool_done(&s);
}

static void test_what_is_lent_is_open_and_opens_nothing(void **state) {
    struct place *p = *state;
    struct spool s, lent, none;
    struct err err = {0};
    int dir = p->dir;
    spool_init(&none, &dir, 400);
    unit_works(spool_lend(&none, &lent, &err), err);
    assert_int_equal(lent.fd, -1);
    spool_init(&s, &dir, 400);
    unit_works(spool_create(&s, "s", &err), err);
    put(&s, 100);
    spool_rest(&s);
    unit_works(spool_lend(&s, &lent, &err), err);
    assert_true(lent.fd >= 0 && lent.fd != s.fd);
    spool_rest(&s);
    dir = -1;
    expect(&lent, 0, 100);
    spool_rest(&lent);
    dir = p->dir;
    unit_fails(spool_read(&lent, 0, (char[1]){0}, 1, &err), err, ERR_SYSTEM);
    dir = -1;
    unit_fails(spool_lend(&s, &lent, &err), err, ERR_SYSTEM);
    spool_remove(&s);
    assert_int_equal(faccessat(p->dir, "s", F_OK, 0), 0);
}

/* A disk that is full behind `bytes` of a file. */
static void room(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_what_does_not_fit_is_taken_back(void **state) {
    struct place *p = *state;
    struct spool s;
    struct err err = {0};
    struct stat st;
    char data[300] = {0};
    spool_init(&s, &p->dir, 4000);
    unit_works(spool_create(&s, "s", &err), err);
    put(&s, 100);
    room(250);
    int rc = spool_put(&s, data, sizeof(data), &err);
    room(RLIM_INFINITY);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, EFBIG);
    assert_int_equal(s.total, 100);
    assert_int_equal(fstat(s.fd, &st), 0);
    assert_int_equal(st.st_size, 100);
    put(&s, 300);
    expect(&s, 0, 400);
    spool_done(&s);
}

static void test_the_probe_finds_a_file_system_that_can(void **state) {
    struct place *p = *state;
    struct err err = {0};
    unit_works(spool_probe(p->dir, &err), err);
    unit_fails(spool_probe(-1, &err), err, ERR_SYSTEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keeps_everything_up_to_the_cap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_much_output_keeps_head_and_tail_in_bounded_space,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_takes_from_a_pipe_and_tells_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_terminal_is_read_without_a_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_killed_terminal_ends_where_its_bytes_end, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_every_length_is_taken_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_link_is_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_part_of_another_file_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_lent_is_open_and_opens_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_does_not_fit_is_taken_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_probe_finds_a_file_system_that_can, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("spool", tests, NULL, NULL);
}
