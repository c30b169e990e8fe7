#include "hostmem.h"

#include <pthread.h>

#include "clock.h"
#include "unit.h"

#define MIB ((uint64_t)1 << 20)

static struct hostmem_seen fake; /* what the machine has, says the test */

static void look(struct hostmem_seen *seen) {
    *seen = fake;
}

struct side {
    struct hostmem m;
    struct loop *loop;
    unsigned rooms;
};

static void room(void *arg) {
    struct side *t = arg;
    t->rooms++;
}

static void begin(struct side *t, uint64_t budget, unsigned overcommit) {
    struct err err = {0};
    *t = (struct side){.m = {.look = look, .room = room, .arg = t}};
    fake = (struct hostmem_seen){.total = 8000 * MIB, .available = 8000 * MIB};
    t->loop = loop_new(&err);
    assert_non_null(t->loop);
    hostmem_init(&t->m, t->loop, budget, overcommit);
}

static void end(struct side *t) {
    hostmem_stop(&t->m);
    loop_free(t->loop);
}

/* Until it has looked again. */
static void wait_for_a_look(struct side *t) {
    uint64_t seen = t->m.seen_ns;
    while (t->m.seen_ns == seen)
        assert_int_equal(loop_once(t->loop, CLOCK_NS_PER_S, NULL), 0);
}

static void a_given_budget_bounds_the_sum_of_limits(void **state) {
    (void)state;
    struct side t;
    struct hostmem_hold a = {0}, b = {0};
    begin(&t, 1000 * MIB, 0);
    assert_false(hostmem_never(&t.m, 1000 * MIB));
    assert_true(hostmem_never(&t.m, 1000 * MIB + 1));
    assert_true(hostmem_fits(&t.m, 1000 * MIB));
    hostmem_take(&t.m, &a, 600 * MIB, false);
    assert_false(hostmem_fits(&t.m, 401 * MIB));
    assert_true(hostmem_fits_later(&t.m, 401 * MIB));
    assert_true(hostmem_fits(&t.m, 400 * MIB));
    hostmem_take(&t.m, &b, 400 * MIB, true);
    assert_false(hostmem_fits_later(&t.m, 601 * MIB)); /* a sandbox does not go away */
    hostmem_give(&t.m, &a);
    hostmem_give(&t.m, &a);
    assert_int_equal(t.rooms, 1);
    assert_int_equal(t.m.committed, 400 * MIB);
    assert_false(hostmem_fits_later(&t.m, 600 * MIB)); /* no run is there to wait for */
    hostmem_give(&t.m, &b);
    assert_int_equal(t.m.committed + t.m.young + t.m.boxes, 0);
    assert_null(t.m.oldest);
    assert_null(t.m.newest);
    end(&t);
}

static void without_one_limits_may_add_up_to_more(void **state) {
    (void)state;
    struct side t;
    begin(&t, 0, 0);
    assert_int_equal(t.m.budget, 7000 * MIB);
    assert_false(hostmem_never(&t.m, 50000 * MIB));
    assert_true(hostmem_never(&t.m, 57000 * MIB));
    end(&t);
    begin(&t, 0, 200);
    assert_false(hostmem_never(&t.m, 14000 * MIB));
    assert_true(hostmem_never(&t.m, 14001 * MIB));
    end(&t);
}

static void the_memory_that_is_there_counts(void **state) {
    (void)state;
    struct side t;
    struct hostmem_hold a = {0};
    begin(&t, 0, 100);
    fake.available = 500 * MIB;
    hostmem_take(&t.m, &a, 300 * MIB, false);
    wait_for_a_look(&t);
    /* It has not touched its own yet. */
    assert_true(hostmem_fits(&t.m, 200 * MIB));
    assert_false(hostmem_fits(&t.m, 201 * MIB));
    fake.available = 700 * MIB;
    wait_for_a_look(&t);
    assert_int_equal(t.rooms, 1);
    assert_true(hostmem_fits(&t.m, 400 * MIB));
    /* Later what it uses is in what the system says. */
    a.since_ns -= HOSTMEM_YOUNG_MS * CLOCK_NS_PER_MS;
    wait_for_a_look(&t);
    assert_int_equal(t.m.young, 0);
    assert_true(hostmem_fits(&t.m, 700 * MIB));
    hostmem_give(&t.m, &a);
    end(&t);
}

static void pressure_holds_new_ones_back_while_others_run(void **state) {
    (void)state;
    struct side t;
    struct hostmem_hold a = {0};
    begin(&t, 0, 0);
    fake.pressure = HOSTMEM_PRESSURE_MAX;
    hostmem_take(&t.m, &a, MIB, false);
    wait_for_a_look(&t);
    assert_false(hostmem_fits(&t.m, MIB));
    hostmem_give(&t.m, &a);
    assert_true(hostmem_fits(&t.m, MIB)); /* or nothing would ever run */
    end(&t);
}

static void nothing_is_read_while_nothing_happens(void **state) {
    (void)state;
    struct side t;
    struct hostmem_hold a = {0};
    begin(&t, 0, 0);
    assert_int_equal(t.m.timer.slot, 0);
    hostmem_take(&t.m, &a, MIB, false);
    hostmem_give(&t.m, &a);
    wait_for_a_look(&t);
    assert_int_equal(t.m.timer.slot, 0);
    end(&t);
    assert_true(hostmem_fits(NULL, UINT64_MAX));
    assert_false(hostmem_never(NULL, UINT64_MAX));
    hostmem_take(NULL, &a, 1, true);
    hostmem_give(NULL, &a);
}

static void this_machine_has_some(void **state) {
    (void)state;
    struct hostmem_seen seen = {0};
    hostmem_look(&seen);
    assert_in_range(seen.total, 64 * MIB, (uint64_t)1 << 50);
    assert_in_range(seen.available, 1 * MIB, seen.total);
    assert_in_range(seen.pressure, 0, 100);
}

static pthread_t looked_by;

static void look_and_say_who(struct hostmem_seen *seen) {
    looked_by = pthread_self();
    look(seen);
}

static void a_worker_looks_and_who_waits_is_told(void **state) {
    (void)state;
    struct side t;
    struct hostmem_hold a = {0};
    struct err err = {0};
    begin(&t, 0, 100);
    t.m.look = look_and_say_who;
    t.m.work = work_new(t.loop, 1, &err);
    assert_non_null(t.m.work);
    fake.available = 100 * MIB;
    hostmem_take(&t.m, &a, 50 * MIB, false);
    wait_for_a_look(&t);
    assert_false(pthread_equal(looked_by, pthread_self()));
    assert_false(hostmem_fits(&t.m, 200 * MIB));
    fake.available = 8000 * MIB;
    while (t.rooms == 0)
        assert_int_equal(loop_once(t.loop, CLOCK_NS_PER_S, NULL), 0);
    assert_true(hostmem_fits(&t.m, 200 * MIB));
    work_free(t.m.work);
    end(&t);
}

/* What is not needed any more when the worker comes back is dropped. */
static void one_that_stops_while_a_worker_looks(void **state) {
    (void)state;
    struct side t;
    struct hostmem_hold a = {0};
    struct err err = {0};
    begin(&t, 0, 0);
    struct work *work = t.m.work = work_new(t.loop, 1, &err);
    assert_non_null(work);
    hostmem_take(&t.m, &a, 50 * MIB, false);
    while (t.m.job == NULL)
        assert_int_equal(loop_once(t.loop, CLOCK_NS_PER_S, NULL), 0);
    hostmem_stop(&t.m);
    work_free(work);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_given_budget_bounds_the_sum_of_limits),
        cmocka_unit_test(without_one_limits_may_add_up_to_more),
        cmocka_unit_test(the_memory_that_is_there_counts),
        cmocka_unit_test(pressure_holds_new_ones_back_while_others_run),
        cmocka_unit_test(nothing_is_read_while_nothing_happens),
        cmocka_unit_test(this_machine_has_some),
        cmocka_unit_test(a_worker_looks_and_who_waits_is_told),
        cmocka_unit_test(one_that_stops_while_a_worker_looks),
    };
    return cmocka_run_group_tests_name("hostmem", tests, NULL, NULL);
}
