#include "outq.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "unit.h"

/* A byte that depends on its position, so that order and loss show. */
static char byte_at(size_t i) {
    return (char)(i * 2654435761u >> 13);
}

static void put_range(struct outq *q, size_t from, size_t len, struct err *err) {
    char *data = malloc(len);

    assert_non_null(data);
    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(from + i);
    unit_works(outq_put(q, data, len, err), *err);
    free(data);
}

static size_t take(int fd, size_t from, size_t most) {
    char data[65536];
    ssize_t got = read(fd, data, most < sizeof(data) ? most : sizeof(data));

    assert_true(got > 0);
    for (ssize_t i = 0; i < got; i++)
        assert_int_equal(data[i], byte_at(from + (size_t)i));
    return (size_t)got;
}

/* A reader that is far behind: nothing blocks, nothing is lost. */
static void test_slow_reader(void **state) {
    (void)state;
    struct err err = {0};
    struct outq q;
    int ends[2];
    size_t total = (size_t)24 << 20, put = 0, got = 0;

    assert_int_equal(pipe(ends), 0);
    outq_init(&q, ends[1], -1);
    assert_true(outq_is_empty(&q));
    while (put < total) {
        put_range(&q, put, 100001, &err);
        put += 100001;
        got += take(ends[0], got, 50000);
    }
    assert_false(outq_is_empty(&q));
    while (got < put) {
        unit_works(outq_push(&q, &err), err);
        got += take(ends[0], got, 65536);
    }
    assert_true(outq_is_empty(&q));
    assert_int_equal(got, put);
    outq_done(&q);
    close(ends[0]);
    close(ends[1]);
}

static void test_full_spool(void **state) {
    (void)state;
    struct err err = {0};
    struct outq q;
    int ends[2], wake = eventfd(1, EFD_CLOEXEC);
    char block[8192] = {0};
    int rc;

    assert_int_equal(pipe(ends), 0);
    outq_init(&q, ends[1], wake);
    q.max = 100000;
    /* Nobody reads, the spool fills, then waiting ends because of the wake. */
    do
        rc = outq_put(&q, block, sizeof(block), &err);
    while (rc == 0);
    assert_int_equal(err.kind, ERR_STATE);
    assert_int_equal(err.code, EINTR);
    assert_true(q.tail - q.head >= q.max && q.tail - q.head < q.max + sizeof(block));
    outq_done(&q);
    close(ends[0]);
    close(ends[1]);
    close(wake);
}

static void test_gone(void **state) {
    (void)state;
    struct err err = {0};
    struct outq q;
    int ends[2];

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    outq_init(&q, ends[1], -1);
    close(ends[0]);
    unit_fails(outq_put(&q, "x", 1, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, EPIPE);
    outq_done(&q);
    close(ends[1]);
}

static void test_disk_full(void **state) {
    (void)state;
    struct err err = {0};
    struct outq q;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    assert_true(full >= 0);
    outq_init(&q, full, -1);
    unit_fails(outq_put(&q, "x", 1, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, ENOSPC);
    outq_done(&q);
    close(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_reader), cmocka_unit_test(test_full_spool),
        cmocka_unit_test(test_gone), cmocka_unit_test(test_disk_full)};
    return cmocka_run_group_tests_name("outq", tests, NULL, NULL);
}
