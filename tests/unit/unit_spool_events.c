#include "spool_events.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "unit.h"

#define RECORD sizeof(struct spool_event)

struct place {
    char path[64];
    int dir;
};

static int setup(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->path, sizeof(p->path), "/tmp/unit-spool-events-XXXXXX");
    if (mkdtemp(p->path) == NULL)
        return -1;
    p->dir = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return 0;
}

static int teardown(void **state) {
    struct place *p = *state;
    unlinkat(p->dir, "ev", 0);
    close(p->dir);
    int rc = rmdir(p->path);
    free(p);
    return rc;
}

static void add(struct spool_events *e, enum spool_stream stream, uint32_t len) {
    struct err err = {0};
    unit_works(spool_events_add(e, stream, len, "ev", &err), err);
}

static struct spool_event get(struct spool_events *e, uint64_t index) {
    struct spool_event r = {0};
    struct err err = {0};
    unit_works(spool_events_get(e, index, &r, &err), err);
    return r;
}

static void test_grows_until_seen(void **state) {
    struct place *p = *state;
    struct spool_events e;
    struct err err = {0};
    spool_events_init(&e, &p->dir);
    assert_int_equal(spool_events_find(&e, 0), UINT64_MAX);
    assert_int_equal(spool_events_room(&e, SPOOL_STDOUT), 0);
    add(&e, SPOOL_STDOUT, 10);
    add(&e, SPOOL_STDOUT, 5);
    assert_int_equal(e.count, 1);
    add(&e, SPOOL_STDERR, 7);
    add(&e, SPOOL_STDOUT, 1);
    assert_int_equal(e.count, 3);
    assert_int_equal(get(&e, 0).len, 15);
    assert_int_equal(get(&e, 1).end[SPOOL_STDOUT], 15);
    assert_int_equal(get(&e, 1).end[SPOOL_STDERR], 7);
    assert_false(spool_has_file(&e.file)); /* nobody was told: no file */
    unit_works(spool_events_seal(&e, "ev", &err), err);
    assert_true(spool_has_file(&e.file));
    assert_int_equal(spool_events_room(&e, SPOOL_STDOUT), 0);
    add(&e, SPOOL_STDOUT, 2);
    assert_int_equal(e.count, 4);
    assert_int_equal(get(&e, 2).len, 1);
    assert_int_equal(get(&e, 3).len, 2);
    unit_works(spool_events_finish(&e, &err), err);
    assert_int_equal(get(&e, 3).end[SPOOL_STDOUT], 18);
    unit_fails(spool_events_get(&e, 4, &(struct spool_event){0}, &err), err, ERR_STATE);
    spool_events_done(&e);
}

static void test_an_event_has_at_most_a_chunk(void **state) {
    struct place *p = *state;
    struct spool_events e;
    spool_events_init(&e, &p->dir);
    add(&e, SPOOL_STDOUT, 65000);
    assert_int_equal(spool_events_room(&e, SPOOL_STDOUT), SPOOL_EVENTS_CHUNK - 65000);
    add(&e, SPOOL_STDOUT, 600);
    assert_int_equal(e.count, 2);
    spool_events_done(&e);
}

/* 40 told records about 400 bytes; then the process is killed with the file cut anywhere. */
static void test_recovers_from_every_length(void **state) {
    struct place *p = *state;
    struct err err = {0};
    const uint64_t total[SPOOL_STREAMS] = {200, 200};
    for (size_t len = 0; len <= 40 * RECORD; len++) {
        struct spool_events e, again;
        spool_events_init(&e, &p->dir);
        for (int i = 0; i < 40; i++)
            add(&e, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, 10);
        unit_works(spool_events_seal(&e, "ev", &err), err);
        assert_int_equal(ftruncate(e.file.fd, (off_t)len), 0);
        spool_events_done(&e);
        spool_events_init(&again, &p->dir);
        unit_works(spool_events_load(&again, "ev", total, &err), err);
        assert_int_equal(again.count, len / RECORD);
        assert_int_equal(again.end[0] + again.end[1], 10 * (len / RECORD));
        /* What comes now has the next number, and does not change what was told. */
        add(&again, SPOOL_STDERR, 3);
        assert_int_equal(again.count, len / RECORD + 1);
        unit_works(spool_events_seal(&again, "ev", &err), err);
        assert_int_equal(get(&again, len / RECORD).len, 3);
        if (len >= RECORD)
            assert_int_equal(get(&again, len / RECORD - 1).len, 10);
        spool_events_done(&again);
    }
}

static void test_believes_only_what_agrees_with_the_bytes(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct spool_event good[4] = {{.end = {10, 0}, .len = 10},
                                  {.end = {10, 4}, .len = 4, .stream = SPOOL_STDERR},
                                  {.end = {15, 4}, .len = 5},
                                  {.end = {16, 4}, .len = 1}};
    const struct {
        struct spool_event bad;
        uint64_t out, err;
        uint64_t count;
    } rows[] = {
        {{.end = {15, 4}, .len = 5}, 16, 4, 4}, /* as it is */
        {{.end = {15, 4}, .len = 5}, 15, 4, 3}, /* one byte is missing */
        {{.end = {15, 4}, .len = 5}, 9, 4, 0},
        {{.end = {15, 4}, .len = 0}, 16, 4, 2},
        {{.end = {15, 4}, .len = 6}, 16, 4, 2},
        {{.end = {15, 5}, .len = 5}, 16, 5, 2},
        {{.end = {15, 4}, .len = 5, .stream = 2}, 16, 4, 2},
        {{.end = {0}}, 16, 4, 2}, /* a page that was never written */
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct spool_events e;
        const uint64_t total[SPOOL_STREAMS] = {rows[i].out, rows[i].err};
        int fd = openat(p->dir, "ev", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        struct spool_event all[4];
        memcpy(all, good, sizeof(all));
        all[2] = rows[i].bad;
        assert_int_equal(write(fd, all, sizeof(all)), sizeof(all));
        close(fd);
        spool_events_init(&e, &p->dir);
        unit_works(spool_events_load(&e, "ev", total, &err), err);
        if (e.count != rows[i].count)
            fail_msg("row %zu: %llu", i, (unsigned long long)e.count);
        assert_int_equal(e.file.total, e.count * RECORD);
        spool_events_done(&e);
    }
}

static void test_many_records_are_bounded_and_the_newest_stay(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct spool_events e, again;
    const uint64_t many = 400000;
    spool_events_init(&e, &p->dir);
    for (uint64_t i = 0; i < many; i++)
        add(&e, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, 1);
    unit_works(spool_events_seal(&e, "ev", &err), err);
    assert_true(spool_bytes(&e.file) <= 2 * SPOOL_EVENTS_CAP);
    assert_int_equal(spool_events_find(&e, 100), 100);
    uint64_t behind = spool_events_find(&e, many / 2);
    assert_true(behind > many / 2 && behind < many);
    assert_int_equal(get(&e, behind).end[0] + get(&e, behind).end[1], behind + 1);
    assert_int_equal(spool_events_find(&e, many - 1), many - 1);
    assert_int_equal(spool_events_find(&e, many), UINT64_MAX);
    spool_events_init(&again, &p->dir);
    const uint64_t total[SPOOL_STREAMS] = {many / 2, many / 2};
    unit_works(spool_events_load(&again, "ev", total, &err), err);
    assert_int_equal(again.count, many);
    assert_int_equal(spool_events_find(&again, many / 2), behind);
    spool_events_done(&again);
    spool_events_done(&e);
}

static void test_few_records_lie_in_another_file(void **state) {
    struct place *p = *state;
    struct spool_events e;
    const uint64_t total[SPOOL_STREAMS] = {10, 4};
    struct spool_event all[2] = {{.end = {10, 0}, .len = 10},
                                 {.end = {10, 4}, .len = 4, .stream = SPOOL_STDERR}};
    int fd = openat(p->dir, "ev", O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(pwrite(fd, all, sizeof(all), 40), sizeof(all));
    spool_events_init(&e, &p->dir);
    spool_events_load_part(&e, &fd, 40, 2, total);
    assert_int_equal(get(&e, 1).len, 4);
    assert_int_equal(spool_events_find(&e, 2), UINT64_MAX);
    spool_events_done(&e);
    close(fd);
}

/* A disk that is full behind `bytes` of a file. */
static void room(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_a_full_disk_leaves_whole_records(void **state) {
    struct place *p = *state;
    struct spool_events e;
    struct err err = {0};
    spool_events_init(&e, &p->dir);
    for (uint32_t i = 0; i < 10; i++)
        add(&e, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, i + 1);
    room(3 * RECORD + 7);
    int rc = spool_events_seal(&e, "ev", &err);
    room(RLIM_INFINITY);
    assert_int_equal(rc, -1);
    assert_int_equal(e.count, 10);
    unit_works(spool_events_finish(&e, &err), err);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(get(&e, i).len, i + 1);
        assert_int_equal(get(&e, i).stream, i % 2);
    }
    spool_events_done(&e);
}

static void test_a_damaged_record_is_not_given_out(void **state) {
    struct place *p = *state;
    struct spool_events e;
    struct err err = {0};
    const uint64_t total[SPOOL_STREAMS] = {10, 10};
    const struct spool_event bad[] = {{.end = {10, 0}, .len = 10, .stream = SPOOL_STREAMS},
                                      {.end = {10, 0}, .len = 10, .stream = UINT32_MAX},
                                      {.end = {10, 0}, .len = 11},
                                      {.end = {10, 0}, .len = 0},
                                      {.end = {10, 0}, .len = 1, .stream = SPOOL_STDERR}};
    int fd = openat(p->dir, "ev", O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(pwrite(fd, bad, sizeof(bad), 0), sizeof(bad));
    spool_events_init(&e, &p->dir);
    spool_events_load_part(&e, &fd, 0, UNIT_COUNT(bad), total);
    for (uint64_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct spool_event r = {.len = 4711};
        unit_fails(spool_events_get(&e, i, &r, &err), err, ERR_STATE);
        assert_int_equal(r.len, 4711);
    }
    spool_events_done(&e);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grows_until_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_event_has_at_most_a_chunk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recovers_from_every_length, setup, teardown),
        cmocka_unit_test_setup_teardown(test_believes_only_what_agrees_with_the_bytes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_many_records_are_bounded_and_the_newest_stay, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_few_records_lie_in_another_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_disk_leaves_whole_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_record_is_not_given_out, setup, teardown),
    };
    return cmocka_run_group_tests_name("spool_events", tests, NULL, NULL);
}
