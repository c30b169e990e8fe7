/* How often a stream is read: at once what comes now and then, or in large parts; crumbs that
 * follow each other, a moment later. The loop and the clock are the real ones. */
#include "trickle.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "unit.h"

struct side {
    struct loop *loop;
    struct loop_source source;
    struct trickle trickle;
    int ends[2];
    unsigned reads, again;
    size_t got;
};

static void on_readable(void *arg, uint32_t events);

static void watch(struct side *s) {
    assert_int_equal(loop_add(s->loop, &s->source, s->ends[0], EPOLLIN, on_readable, s, NULL), 0);
}

static void on_again(void *arg) {
    struct side *s = arg;
    s->again++;
    watch(s);
    loop_stop(s->loop);
}

/* It takes nothing out: there is always something to read. */
static void on_readable(void *arg, uint32_t events) {
    struct side *s = arg;
    (void)events;
    s->reads++;
    (void)trickle_pauses(&s->trickle, s->loop, &s->source, s->got < TRICKLE_LITTLE, on_again, s);
    if (s->reads == 50)
        loop_stop(s->loop);
}

static int setup(void **state) {
    static struct side s;
    memset(&s, 0, sizeof(s));
    s.loop = loop_new(NULL);
    assert_non_null(s.loop);
    s.source.fd = -1;
    assert_int_equal(pipe(s.ends), 0);
    assert_int_equal(write(s.ends[1], "x", 1), 1);
    watch(&s);
    *state = &s;
    return 0;
}

static int teardown(void **state) {
    struct side *s = *state;
    trickle_stop(&s->trickle, s->loop);
    loop_del(s->loop, &s->source);
    loop_free(s->loop);
    (void)close(s->ends[0]);
    (void)close(s->ends[1]);
    return 0;
}

static void run(struct side *s) {
    struct err err = {0};
    unit_works(loop_run(s->loop, &err), err);
}

static void test_crumbs_that_follow_each_other_are_read_together(void **state) {
    struct side *s = *state;
    s->got = 1;
    uint64_t began = clock_mono_ns();
    run(s);
    assert_int_equal(s->again, 1);
    assert_int_equal(s->reads, 2); /* the first is read at once, and so is the next */
    assert_true(clock_mono_ns() - began >= TRICKLE_PAUSE_NS);
}

static void test_what_comes_in_large_parts_is_never_held_up(void **state) {
    struct side *s = *state;
    s->got = TRICKLE_LITTLE;
    run(s);
    assert_int_equal(s->reads, 50);
    assert_int_equal(s->again, 0);
}

static void test_what_comes_now_and_then_is_read_at_once(void **state) {
    struct side *s = *state;
    s->trickle.read_ns = clock_mono_ns() - TRICKLE_SOON_NS;
    assert_false(trickle_pauses(&s->trickle, s->loop, &s->source, true, on_again, s));
    assert_true(s->source.fd >= 0);
    assert_true(trickle_pauses(&s->trickle, s->loop, &s->source, true, on_again, s));
    assert_true(s->source.fd < 0);
}

static void test_a_stream_that_is_closed_is_not_read_again(void **state) {
    struct side *s = *state;
    s->trickle.read_ns = clock_mono_ns();
    assert_true(trickle_pauses(&s->trickle, s->loop, &s->source, true, on_again, s));
    trickle_stop(&s->trickle, s->loop);
    assert_int_equal(s->trickle.timer.slot, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_crumbs_that_follow_each_other_are_read_together, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_comes_in_large_parts_is_never_held_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_comes_now_and_then_is_read_at_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_stream_that_is_closed_is_not_read_again, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
