#include "spool_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

#define MANY 12u

struct place {
    char path[64];
    int dir;
    struct spool_log_place places[MANY];
    size_t seen;
    uint32_t numbers[4 * MANY];
};

static int setup(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->path, sizeof(p->path), "/tmp/unit-spool-log-XXXXXX");
    if (mkdtemp(p->path) == NULL)
        return -1;
    p->dir = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return 0;
}

static int teardown(void **state) {
    struct place *p = *state;
    unlinkat(p->dir, "exec.log", 0);
    close(p->dir);
    int rc = rmdir(p->path);
    free(p);
    return rc;
}

/* Record number i has i * 3 bytes, each i. */
static void append(struct place *p, struct spool_log *l, uint32_t i) {
    char text[3 * MANY];
    struct err err = {0};
    memset(text, (int)i, sizeof(text));
    struct iovec parts[2] = {{.iov_base = text, .iov_len = i},
                             {.iov_base = text, .iov_len = (size_t)2 * i}};
    unit_works(spool_log_append(l, SPOOL_LOG_START, i, parts, 2, &p->places[i], &err), err);
}

static void seen(void *arg, const struct spool_log_record *r) {
    struct place *p = arg;
    assert_int_equal(r->type, SPOOL_LOG_START);
    assert_int_equal(r->place.len, r->number * 3);
    for (uint32_t i = 0; i < r->place.len; i++)
        assert_int_equal(r->payload[i], (int)r->number);
    p->numbers[p->seen++] = r->number;
}

static void load(struct place *p, struct spool_log *l) {
    struct err err = {0};
    p->seen = 0;
    spool_log_init(l, p->dir);
    unit_works(spool_log_load(l, seen, p, &err), err);
}

static void test_remembers_what_was_written(void **state) {
    struct place *p = *state;
    struct spool_log l;
    spool_log_init(&l, p->dir);
    assert_false(spool_log_exists(&l));
    for (uint32_t i = 0; i < MANY; i++)
        append(p, &l, i);
    spool_log_close(&l);
    assert_true(spool_log_exists(&l));
    load(p, &l);
    assert_int_equal(p->seen, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(p->numbers[i], i);
    append(p, &l, 3);
    spool_log_close(&l);
    load(p, &l);
    assert_int_equal(p->seen, MANY + 1);
    spool_log_close(&l);
}

/* A process that is killed in the middle of its last write. */
static void test_a_record_that_is_cut_is_as_if_never_written(void **state) {
    struct place *p = *state, other = {0};
    struct spool_log l;
    spool_log_init(&l, p->dir);
    for (uint32_t i = 0; i < MANY; i++)
        append(p, &l, i);
    uint64_t size = l.size;
    char *whole = malloc(size);
    assert_int_equal(pread(l.fd, whole, size, 0), (ssize_t)size);
    spool_log_close(&l);
    for (uint64_t len = 0; len <= size; len++) {
        int fd = openat(p->dir, "exec.log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, whole, len), (ssize_t)len);
        close(fd);
        uint32_t want = 0;
        while (want < MANY && p->places[want].at + (p->places[want].len + 7u) / 8 * 8 <= len)
            want++;
        load(p, &l);
        assert_int_equal(p->seen, want);
        append(&other, &l, 5);
        spool_log_close(&l);
        load(p, &l);
        assert_int_equal(p->seen, want + 1);
        assert_int_equal(p->numbers[want], 5);
        spool_log_close(&l);
    }
    free(whole);
}

static void test_garbage_ends_it(void **state) {
    struct place *p = *state;
    struct spool_log l;
    spool_log_init(&l, p->dir);
    for (uint32_t i = 0; i < MANY; i++)
        append(p, &l, i);
    assert_int_equal(pwrite(l.fd, "\xff\xff\xff\xff", 4, (off_t)p->places[7].at - 4), 4);
    spool_log_close(&l);
    load(p, &l);
    assert_int_equal(p->seen, 7);
    spool_log_close(&l);
}

static void test_is_written_anew_with_what_is_needed(void **state) {
    struct place *p = *state;
    struct spool_log l, next;
    struct err err = {0};
    spool_log_init(&l, p->dir);
    for (uint32_t i = 0; i < MANY; i++)
        append(p, &l, i);
    unit_works(spool_log_anew(&l, &next, &err), err);
    struct spool_log_place at = p->places[9];
    unit_works(spool_log_copy(&l, &next, SPOOL_LOG_START, 9, &at, &err), err);
    spool_log_drop(&next);
    unit_works(spool_log_anew(&l, &next, &err), err);
    for (uint32_t i = 4; i < MANY; i += 4)
        unit_works(spool_log_copy(&l, &next, SPOOL_LOG_START, i, &p->places[i], &err), err);
    unit_works(spool_log_commit(&l, &next, &err), err);
    append(p, &l, 1);
    spool_log_close(&l);
    load(p, &l);
    assert_int_equal(p->seen, 3);
    assert_int_equal(p->numbers[0], 4);
    assert_int_equal(p->numbers[1], 8);
    assert_int_equal(p->numbers[2], 1);
    spool_log_close(&l);
}

static void test_refuses_what_is_too_large(void **state) {
    struct place *p = *state;
    struct spool_log l;
    struct err err = {0};
    char *data = calloc(1, SPOOL_LOG_RECORD_MAX + 1);
    struct iovec part = {.iov_base = data, .iov_len = SPOOL_LOG_RECORD_MAX + 1};
    spool_log_init(&l, p->dir);
    unit_fails(spool_log_append(&l, SPOOL_LOG_END, 1, &part, 1, NULL, &err), err, ERR_LIMIT);
    assert_int_equal(l.size, 0);
    spool_log_close(&l);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_remembers_what_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_record_that_is_cut_is_as_if_never_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_garbage_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_is_written_anew_with_what_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_what_is_too_large, setup, teardown),
    };
    return cmocka_run_group_tests_name("spool_log", tests, NULL, NULL);
}
