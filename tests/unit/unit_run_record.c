#include "run_record.h"

#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "clock.h"
#include "results.h"
#include "runs.h"
#include "str.h"
#include "unit.h"

struct place {
    struct loop *loop;
    struct runs runs;
};

static int setup(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    static const struct runs_options options = {.queue_count = 1, .keep_count = 1};
    static struct log log = {.fd = -1};
    if (p == NULL)
        return -1;
    p->loop = loop_new(NULL);
    runs_init(&p->runs, p->loop, &log, NULL, NULL, &options);
    *state = p;
    return 0;
}

static int teardown(void **state) {
    struct place *p = *state;
    runs_done(&p->runs);
    loop_free(p->loop);
    free(p);
    return 0;
}

/* A run with three steps: one with cut output, one that was killed, one that was skipped. */
static struct run *make(struct place *p, bool over) {
    struct run *run = run_blank(&p->runs);
    assert_non_null(run);
    assert_int_equal(run_init_steps(run, 3), 0);
    str_copy(run->id, sizeof(run->id), "run_0123456789abcdefghijklmn");
    str_copy(run->owner, sizeof(run->owner), "anna");
    str_copy(run->image, sizeof(run->image), "host");
    memset(run->image_sha256, 0x5a, sizeof(run->image_sha256));
    run->backend = BACKEND_DOCKER;
    str_copy(run->policy.name, sizeof(run->policy.name), "default");
    memset(run->policy.sha256, 7, sizeof(run->policy.sha256));
    str_copy(run->label, sizeof(run->label), "make test");
    memset(run->trace.id, 9, sizeof(run->trace.id));
    run->created_ms = 1700000000000;
    run->created_ns = 5000;
    run->dispatched_ns = 6000;
    run->begun_ns = 7000;
    run->ended_ns = 9999999;
    run->setup_ns = 1234;
    run->end_on = 3;
    run->phase = over ? RUN_SEAL : RUN_STEP;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        run->limits.values.v[i] = (uint64_t)i * 1000000007;
        run->limits.from[i] = (uint8_t)(i % 3);
        run->open.v[i] = (uint64_t)i;
    }
    for (size_t i = 0; i < 3; i++) {
        struct run_step *step = &run->steps[i];
        step->name = strdup(i == 0 ? "one" : i == 1 ? "two" : "three");
        step->limits = run->limits;
        step->state = i < 2 ? RUN_STEP_DONE : over ? RUN_STEP_SKIPPED : RUN_STEP_QUEUED;
        capture_init(&step->out.capture, 1000);
        capture_init(&step->err.capture, 1000);
    }
    struct run_step *first = &run->steps[0], *second = &run->steps[1];
    first->limits.values.v[LIMIT_WALL_MS] = 77;
    first->end.cause = CAUSE_EXIT;
    first->end.exit_code = 0;
    first->ok = true;
    first->usage.wall_ns = UINT64_MAX / 3;
    char block[300];
    for (int i = 0; i < 20; i++) {
        memset(block, 'a' + i, sizeof(block));
        assert_int_equal(capture_append(&first->out.capture, block, sizeof(block), NULL), 0);
    }
    assert_int_equal(capture_append(&first->err.capture, "e\0f", 3, NULL), 0);
    capture_finish(&first->out.capture);
    capture_finish(&first->err.capture);
    second->end.cause = CAUSE_MEMORY;
    second->end.exit_code = -1;
    second->end.signal = 9;
    second->end.oom_kills = 2;
    str_copy(second->end.path, sizeof(second->end.path), "/x");
    assert_int_equal(events_add(&run->events, EVENTS_STARTED, 0, NULL), 0);
    assert_int_equal(events_output(&run->events, EVENTS_STDOUT, 0, 0, 6000, NULL), 0);
    assert_int_equal(events_add(&run->events, EVENTS_END, 0, NULL), 0);
    run->current = 1;
    return run;
}

static void write_run(struct run *run, struct buf *out) {
    struct err err = {0};
    buf_init(out, 1000000);
    unit_works(run_record_write(run, out, &err), err);
}

/* There is no room for what it has written: that is counted, and everything else is there. */
static void test_bare(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct buf out;
    struct run *run = make(p, true);
    buf_init(&out, 1000000);
    unit_works(run_record_write_bare(run, &out, &err), err);
    struct run *back = run_record_read(&p->runs, out.data, out.len, &err);
    assert_non_null(back);
    assert_int_equal(back->phase, RUN_DONE);
    assert_int_equal(back->steps[1].end.cause, CAUSE_MEMORY);
    struct capture_text was, is;
    capture_text(&run->steps[0].out.capture, &was);
    capture_text(&back->steps[0].out.capture, &is);
    assert_int_equal(is.head + is.tail, 0);
    assert_int_equal(is.omitted, was.head + was.tail + was.omitted);
    assert_int_equal(events_after(&back->events, 1)->len, 6000);
    buf_done(&out);
    run_free(back);
    run_free(run);
}

static void test_what_is_read_is_what_was_written(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct buf first, second;
    struct run *run = make(p, true);
    write_run(run, &first);
    struct run *back = run_record_read(&p->runs, first.data, first.len, &err);
    assert_non_null(back);
    assert_int_equal(back->phase, RUN_DONE);
    assert_string_equal(back->id, run->id);
    assert_string_equal(back->label, "make test");
    assert_memory_equal(&back->trace, &run->trace, sizeof(run->trace));
    assert_memory_equal(&back->limits, &run->limits, sizeof(run->limits));
    assert_int_equal(back->steps[0].limits.values.v[LIMIT_WALL_MS], 77);
    assert_int_equal(back->steps[0].usage.wall_ns, UINT64_MAX / 3);
    assert_int_equal(back->steps[1].end.cause, CAUSE_MEMORY);
    assert_int_equal(back->steps[1].end.exit_code, -1);
    assert_string_equal(back->steps[1].end.path, "/x");
    assert_int_equal(back->steps[2].state, RUN_STEP_SKIPPED);
    struct capture_text was, is;
    capture_text(&run->steps[0].out.capture, &was);
    capture_text(&back->steps[0].out.capture, &is);
    assert_memory_equal(&was, &is, sizeof(was));
    assert_int_equal(is.omitted, 5000);
    assert_memory_equal(back->steps[0].err.capture.head, "e\0f", 3);
    assert_int_equal(back->ended_ns - back->created_ns, run->ended_ns - run->created_ns);
    assert_int_equal(events_after(&back->events, 1)->len, 6000);
    /* And written again it is the same, byte for byte. */
    write_run(back, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    buf_done(&first);
    buf_done(&second);
    run_free(run);
    run_free(back);
}

static void test_an_unfinished_one_can_be_told_from_a_finished_one(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct buf b;
    struct run *run = make(p, false);
    write_run(run, &b);
    struct run *back = run_record_read(&p->runs, b.data, b.len, &err);
    assert_non_null(back);
    assert_int_equal(back->phase, RUN_QUEUED);
    assert_int_equal(back->current, 1);
    assert_int_equal(back->steps[2].state, RUN_STEP_QUEUED);
    buf_done(&b);
    run_free(run);
    run_free(back);
}

/* All that can be asked of a run that was read; a reader of its events comes to an end. */
static void ask(struct run *run) {
    struct run_watcher w = {.after = 0};
    struct buf out;
    buf_init(&out, 64000000);
    assert_int_equal(answer_encode(run, 0, &out, NULL), 0);
    for (int n = 0; n < 10000; n++) {
        buf_clear(&out);
        uint64_t before = w.after;
        if (answer_events(run, &w, 4096, &out, NULL) != 0)
            break;
        if (w.after == before)
            break;
        assert_true(w.after > before);
        assert_int_not_equal(n, 9999);
    }
    buf_done(&out);
}

/* The memory is exactly as long as what is read, so that the sanitizer sees a byte too many. */
static void try(struct place *p, const char *data, size_t len, bool may_be_good) {
    struct err err = {0};
    char *copy = malloc(len == 0 ? 1 : len);
    if (len > 0)
        memcpy(copy, data, len);
    struct run *run = run_record_read(&p->runs, copy, len, &err);
    free(copy);
    if (run == NULL)
        assert_int_equal(err.kind, ERR_INVALID);
    else if (!may_be_good)
        fail_msg("a record that was cut to %zu bytes was taken", len);
    else
        ask(run);
    run_free(run);
}

static void test_damaged_records_are_refused_or_read_but_never_trusted(void **state) {
    struct place *p = *state;
    struct buf b;
    struct run *run = make(p, true);
    write_run(run, &b);
    /* What is cut off behind the steps (events, receipt) is not missed; before, it is. */
    for (size_t len = 0; len < 1300; len++)
        try(p, b.data, len, false);
    for (size_t i = 0; i < b.len; i++) {
        static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
        for (size_t k = 0; k < UNIT_COUNT(values); k++) {
            char was = b.data[i];
            b.data[i] = (char)values[k];
            try(p, b.data, b.len, true);
            b.data[i] = was;
        }
        if (i > 400 && i + 400 < b.len)
            i += 7; /* the inside of the output */
    }
    buf_done(&b);
    run_free(run);
}

static void test_events_out_of_order_are_refused(void **state) {
    struct place *p = *state;
    struct err err = {0};
    for (int way = 0; way < 4; way++) {
        struct run *run = make(p, true);
        struct buf b;
        /* More than the first and the last hold: the middle has some, too. */
        for (uint64_t i = 0; i < 3 * EVENTS_KEEP; i++)
            assert_int_equal(events_output(&run->events, EVENTS_STDOUT, 0, 90000 + 2 * i, 1, NULL),
                             0);
        struct events *e = &run->events;
        assert_true(e->mid_count > 0 && e->last_count > 2);
        if (way == 1) /* one that would be given out again and again */
            e->last[(e->last_start + 2) % e->last_alloc].seq = 1;
        else if (way == 2)
            e->mid[0].seq = 1;
        else if (way == 3)
            e->first[1].seq = UINT64_MAX;
        write_run(run, &b);
        struct run *back = run_record_read(&p->runs, b.data, b.len, &err);
        assert_int_equal(back != NULL, way == 0);
        if (back != NULL)
            ask(back);
        buf_done(&b);
        run_free(run);
        run_free(back);
    }
}

static void test_sections_of_a_newer_writer_are_skipped(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct buf b;
    struct run *run = make(p, true);
    write_run(run, &b);
    static const char more[] = {99, 3, 0, 0, 0, 0, 0, 0, 0, 'x', 'y', 'z'};
    unit_works(buf_append(&b, more, sizeof(more), &err), err);
    struct run *back = run_record_read(&p->runs, b.data, b.len, &err);
    assert_non_null(back);
    buf_done(&b);
    run_free(run);
    run_free(back);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_read_is_what_was_written),
        TEST(test_bare),
        TEST(test_an_unfinished_one_can_be_told_from_a_finished_one),
        TEST(test_damaged_records_are_refused_or_read_but_never_trusted),
        TEST(test_events_out_of_order_are_refused),
        TEST(test_sections_of_a_newer_writer_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
