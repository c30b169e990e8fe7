#include "events.h"

#include <string.h>

#include "unit.h"

static void test_numbers(void **state) {
    (void)state;
    struct events e;
    struct err err = {0};
    events_init(&e);
    assert_null(events_after(&e, 0));
    unit_works(events_add(&e, EVENTS_STARTED, 0, &err), err);
    unit_works(events_output(&e, EVENTS_STDOUT, 0, 0, 5, &err), err);
    unit_works(events_output(&e, EVENTS_STDERR, 0, 0, 1, &err), err);
    unit_works(events_add(&e, EVENTS_END, 0, &err), err);
    uint64_t seq = 0;
    struct events_record *r;
    while ((r = events_after(&e, seq)) != NULL)
        assert_int_equal(r->seq, ++seq);
    assert_int_equal(seq, 4);
    assert_null(events_after(&e, 4));
    assert_null(events_after(&e, UINT64_MAX));
    events_done(&e);
}

static void test_extends_until_seen(void **state) {
    (void)state;
    struct events e;
    struct err err = {0};
    events_init(&e);
    unit_works(events_output(&e, EVENTS_STDOUT, 0, 0, 5, &err), err);
    assert_int_equal(events_extensible(&e, EVENTS_STDOUT, 0, 5), EVENTS_CHUNK_MAX - 5);
    assert_int_equal(events_extensible(&e, EVENTS_STDOUT, 0, 6), 0);
    assert_int_equal(events_extensible(&e, EVENTS_STDERR, 0, 5), 0);
    assert_int_equal(events_extensible(&e, EVENTS_STDOUT, 1, 5), 0);
    unit_works(events_output(&e, EVENTS_STDOUT, 0, 5, 2, &err), err);
    struct events_record *r = events_after(&e, 0);
    assert_int_equal(r->len, 7);
    r->sealed = true;
    unit_works(events_output(&e, EVENTS_STDOUT, 0, 7, 2, &err), err);
    assert_int_equal(events_after(&e, 0)->len, 7);
    assert_int_equal(events_after(&e, 1)->offset, 7);
    events_done(&e);
}

/* 50,000 records: the ends are there, the middle is summed up, nothing is counted twice. */
static void test_bounded(void **state) {
    (void)state;
    struct events e;
    struct err err = {0};
    uint64_t given[2] = {0, 0}, found[2] = {0, 0}, lost[2] = {0, 0};
    events_init(&e);
    for (uint64_t i = 0; i < 50000; i++) {
        int k = (int)(i % 2);
        enum events_type type = k == 0 ? EVENTS_STDOUT : EVENTS_STDERR;
        unit_works(events_output(&e, type, 0, given[k], 3, &err), err);
        given[k] += 3;
    }
    size_t count = 0;
    uint64_t seq = 0;
    const struct events_record *r;
    while ((r = events_after(&e, seq)) != NULL) {
        assert_true(r->seq > seq);
        seq = r->seq;
        count++;
        if (r->type == EVENTS_STDOUT || r->type == EVENTS_STDERR) {
            assert_int_equal(r->len, 3);
            found[r->type == EVENTS_STDERR] += r->len;
        } else {
            lost[r->type == EVENTS_GAP_STDERR] += r->len;
        }
    }
    assert_int_equal(seq, 50000);
    assert_int_equal(count, 2 * EVENTS_KEEP + 2);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(found[k] + lost[k], given[k]);
        assert_int_equal(lost[k], 3 * (50000 - 2 * EVENTS_KEEP) / 2);
    }
    assert_true(events_memory(&e) < 3 * EVENTS_KEEP * sizeof(*r));
    events_done(&e);
}

/* What is not output is never dropped. */
static void test_keeps_what_matters(void **state) {
    (void)state;
    struct events e;
    struct err err = {0};
    events_init(&e);
    for (uint16_t step = 0; step < 40; step++) {
        unit_works(events_add(&e, EVENTS_STARTED, step, &err), err);
        for (uint64_t i = 0; i < 1000; i++)
            unit_works(events_output(&e, i % 2 ? EVENTS_STDERR : EVENTS_STDOUT, step, i, 1, &err),
                       err);
        unit_works(events_add(&e, EVENTS_END, step, &err), err);
    }
    uint64_t seq = 0;
    int started = 0, ended = 0;
    const struct events_record *r;
    while ((r = events_after(&e, seq)) != NULL) {
        seq = r->seq;
        if (r->type == EVENTS_STARTED)
            assert_int_equal(r->step, started++);
        if (r->type == EVENTS_END)
            assert_int_equal(r->step, ended++);
    }
    assert_int_equal(started, 40);
    assert_int_equal(ended, 40);
    events_done(&e);
}

/* A gap that somebody has been told of does not grow: its bytes would be told twice. */
static void test_seen_gap(void **state) {
    (void)state;
    struct events e;
    struct err err = {0};
    uint64_t offset = 0, told = 0, seq;
    events_init(&e);
    for (size_t i = 0; i < 2 * EVENTS_KEEP + 10; i++, offset += 2) {
        unit_works(events_output(&e, EVENTS_STDOUT, 0, offset, 2, &err), err);
        events_after(&e, i)->sealed = true;
    }
    struct events_record *gap = events_after(&e, EVENTS_KEEP);
    assert_int_equal(gap->type, EVENTS_GAP_STDOUT);
    told = gap->len;
    seq = gap->seq;
    gap->sealed = true;
    for (size_t i = 0; i < 5; i++, offset += 2) {
        unit_works(events_output(&e, EVENTS_STDOUT, 0, offset, 2, &err), err);
        events_after(&e, e.next_seq - 2)->sealed = true;
    }
    const struct events_record *next = events_after(&e, seq);
    assert_int_equal(next->type, EVENTS_GAP_STDOUT);
    assert_int_equal(told + next->len, 2 * (10 + 5));
    events_done(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_extends_until_seen),
        cmocka_unit_test(test_bounded),  cmocka_unit_test(test_keeps_what_matters),
        cmocka_unit_test(test_seen_gap),
    };
    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
