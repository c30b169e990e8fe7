/* Who gets which of the jails that are ready, when somebody has had many: the pool is the real one,
 * with its kinds, backoff and refills; jails and timers are played by this file. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "unit.h"

#define WARM 8u
#define LEFT 4u /* at most: of those for who gets what others leave */
#define JAILS 64

static struct {
    struct jail *made[JAILS]; /* and not ready yet */
    unsigned count, kills, rooms;
    int lefts;            /* jails for who gets what others leave */
    enum err_kind broken; /* no jail can be made; ERR_NONE = it can */
    struct loop_timer *timer;
    void (*tick)(void *arg);
    void *arg;
} w;

/* Jails. */

struct jail *jail_new(struct jail_host *host, const struct jail_plan *plan,
                      const struct jail_events *events, void *arg, struct err *err) {
    if (w.broken != ERR_NONE) {
        (void)err_set(err, w.broken, ENOSPC, "there is no room");
        return NULL;
    }
    struct jail *jail = calloc(1, sizeof *jail);
    assert_non_null(jail);
    jail->host = host;
    jail->events = events;
    jail->arg = arg;
    jail->slot = plan->slot;
    jail->left = plan->left;
    w.lefts += jail->left;
    jail->state = JAIL_BUILDING;
    assert_true(w.count < JAILS);
    w.made[w.count++] = jail;
    return jail;
}

void jail_free(struct jail *jail) {
    w.lefts -= jail->left;
    free(jail);
}

void jail_kill(struct jail *jail) {
    for (unsigned i = 0; i < w.count; i++) {
        if (w.made[i] == jail) {
            w.made[i] = w.made[--w.count];
        }
    }
    w.kills++;
    w.lefts -= jail->left;
    free(jail);
}

bool jail_is_ready(const struct jail *jail) {
    return jail->state == JAIL_READY;
}

uint32_t jail_ids_base(const struct jail_ids *ids, uint32_t n) {
    return ids->first + n;
}

/* Time: the timer is due when a test says so. */

int loop_timer_at(struct loop *loop, struct loop_timer *timer, uint64_t due_ns,
                  void (*fn)(void *arg), void *arg, struct err *err) {
    (void)loop, (void)err;
    timer->slot = 1;
    timer->due_ns = due_ns;
    w.timer = timer;
    w.tick = fn;
    w.arg = arg;
    return 0;
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer) {
    (void)loop;
    timer->slot = 0;
}

static bool tick(bool now_only) {
    if (w.timer == NULL || w.timer->slot == 0 || (now_only && w.timer->due_ns > clock_mono_ns())) {
        return false;
    }
    w.timer->slot = 0;
    w.tick(w.arg);
    return true;
}

static void all_get_ready(void) {
    while (w.count > 0) {
        struct jail *jail = w.made[--w.count];
        jail->state = JAIL_READY;
        jail->events->ready(jail->arg, jail);
    }
}

/* The side of those who take jails. */

static void on_room(void *arg) {
    (void)arg;
    w.rooms++;
}

static void on_ready(void *arg, struct jail *jail) {
    pool_settled(arg, jail);
}

static const struct jail_events events = {.ready = on_ready};

static int image(void *arg, const char *name, char ref[JAIL_IMAGE_MAX], uint8_t sha256[32],
                 struct err *err) {
    (void)arg, (void)name, (void)err;
    memcpy(ref, "image", sizeof "image");
    memset(sha256, 0, 32);
    return 0;
}

static const struct jail_maker maker = {.contained = true, .image = image};

struct side {
    struct jail_host host;
    struct cgroup_host cgroups;
    struct policy policy;
    struct policy_set policies;
    struct pool *pool;
    struct jail *taken[JAILS];
    unsigned count;
};

/* 0, 1 or -1, as pool_take(). */
static int take_as(struct side *t, bool modest, bool left) {
    const uint8_t zeros[32] = {0};
    const struct pool_wish wish = {.policy = &t->policy,
                                   .image = "image",
                                   .image_sha256 = zeros,
                                   .modest = modest,
                                   .left = left};
    struct err err = {0};
    int rc = pool_take(t->pool, &wish, &events, t->pool, &t->taken[t->count], &err);
    t->count += rc == 0;
    return rc;
}

static int take(struct side *t, bool modest) {
    return take_as(t, modest, false);
}

static unsigned ready(const struct side *t) {
    struct pool_stats stats;
    pool_stats(t->pool, &stats);
    return stats.warm;
}

/* WARM jails are ready. */
static int setup(void **state) {
    struct side *t = calloc(1, sizeof *t);
    struct err err = {0};
    assert_non_null(t);
    memset(&w, 0, sizeof w);
    t->host.maker = &maker;
    t->host.cgroups = &t->cgroups;
    memcpy(t->policy.name, "default", sizeof "default");
    t->policy.any_image = true;
    const struct pool_config cfg = {.host = &t->host,
                                    .policies = &t->policies,
                                    .images_dirfd = -1,
                                    .slots = 32,
                                    .warm = 4 * LEFT,
                                    .warm_more = WARM,
                                    .room = on_room};
    t->pool = pool_new(&cfg, &err);
    assert_non_null(t->pool);
    assert_int_equal(take(t, false), 0);
    for (unsigned i = 0; i < 100 && ready(t) < WARM; i++) {
        all_get_ready();
        (void)tick(false);
    }
    assert_int_equal(ready(t), WARM);
    *state = t;
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    while (t->count > 0) {
        pool_release(t->pool, t->taken[--t->count]);
    }
    pool_free(t->pool);
    free(t);
    return 0;
}

static void test_who_has_had_many_leaves_the_last_half_to_others(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, true), 0);
    }
    assert_int_equal(take(t, true), 1);
    assert_int_equal(ready(t), WARM / 2);
    assert_int_equal(w.count, 0); /* none is made for him alone */
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, false), 0);
    }
    assert_int_equal(ready(t), 0);
}

static void test_who_waits_is_told_as_soon_as_there_is_one_for_him(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, true), 0);
    }
    assert_int_equal(take(t, false), 0);
    pool_began(t->pool); /* something runs: refills would stand back */
    assert_int_equal(take(t, true), 1);
    unsigned rooms = w.rooms;
    for (unsigned made = 0; made < 2; made++) {
        assert_true(tick(true)); /* at once */
        assert_int_equal(w.count, 1);
        assert_int_equal(take(t, true), 1);
        all_get_ready();
    }
    assert_true(w.rooms > rooms);
    assert_int_equal(take(t, true), 0);
    pool_ended(t->pool);
}

static void test_refills_stand_back_again_once_there_are_enough(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, true), 0);
    }
    pool_began(t->pool);
    assert_int_equal(take(t, true), 1);
    while (tick(true)) {
        all_get_ready();
    }
    assert_int_equal(ready(t), WARM - WARM / 4);
    pool_ended(t->pool);
}

static void test_nobody_waits_for_what_cannot_be_made(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, true), 0);
    }
    w.broken = ERR_SYSTEM;
    assert_int_equal(take(t, true), 1);
    unsigned rooms = w.rooms;
    assert_true(tick(true));
    assert_int_equal(w.rooms, rooms + 1);
    assert_int_equal(take(t, true), 0); /* so he gets what there is */
}

/* A slot comes free with a jail that is gone, and that is told then: to ask at once and again would
 * keep the shard from everything else. */
static void test_who_waits_for_a_slot_is_not_asked_round_and_round(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, true), 0);
    }
    w.broken = ERR_LIMIT;
    assert_int_equal(take(t, true), 1);
    unsigned rooms = w.rooms;
    assert_true(tick(true));
    assert_int_equal(w.rooms, rooms);
    assert_false(tick(true)); /* later */
    w.broken = ERR_NONE;
    pool_release(t->pool, t->taken[--t->count]);
    assert_true(w.rooms > rooms);
    assert_int_equal(take(t, true), 1);
    assert_true(tick(true));
    all_get_ready();
    assert_int_equal(take(t, true), 0);
}

static bool last_is_left(const struct side *t) {
    return t->taken[t->count - 1]->left;
}

static void test_who_gets_what_others_leave_has_jails_that_are_made_for_that(void **state) {
    struct side *t = *state;
    t->cgroups.left.can = true;
    for (unsigned i = 0; i < LEFT; i++) {
        assert_int_equal(take_as(t, false, true), 0);
        assert_false(last_is_left(t)); /* none is there yet: he does not wait for one */
    }
    for (unsigned i = 0; i < 100; i++) {
        all_get_ready();
        (void)tick(false);
    }
    assert_int_equal(ready(t), WARM); /* and for others there are as many as before */
    for (unsigned i = 0; i < LEFT; i++) {
        assert_int_equal(take_as(t, true, true), 0);
        assert_true(last_is_left(t));
    }
    assert_int_equal(ready(t), WARM);
    assert_int_equal(take_as(t, false, true), 0);
    assert_false(last_is_left(t)); /* all of his are gone */
    for (unsigned i = 0; i < WARM - 1; i++) {
        assert_int_equal(take(t, false), 0);
        assert_false(last_is_left(t));
    }
}

static void test_with_however_many_images_he_has_no_more_of_them(void **state) {
    struct side *t = *state;
    char names[4][8] = {"one", "two", "three", "four"};
    t->cgroups.left.can = true;
    for (unsigned i = 0; i < 40; i++) {
        const uint8_t zeros[32] = {0};
        const struct pool_wish wish = {
            .policy = &t->policy, .image = names[i % 4], .image_sha256 = zeros, .left = true};
        struct jail *jail = NULL;
        struct err err = {0};
        if (pool_take(t->pool, &wish, &events, t->pool, &jail, &err) == 0) {
            pool_release(t->pool, jail);
        }
        all_get_ready();
        (void)tick(false);
    }
    for (unsigned i = 0; i < 100; i++) {
        all_get_ready();
        (void)tick(false);
    }
    assert_in_range(w.lefts, 1, LEFT);
}

static void test_without_a_group_for_them_he_gets_what_all_get(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < 2 * WARM; i++) {
        assert_int_equal(take_as(t, false, true), 0);
        assert_false(last_is_left(t));
        all_get_ready();
        (void)tick(false);
    }
}

static void test_who_waits_comes_before_those_who_get_what_others_leave(void **state) {
    struct side *t = *state;
    t->cgroups.left.can = true;
    pool_began(t->pool);
    for (unsigned i = 0; i < WARM / 2; i++) {
        assert_int_equal(take(t, true), 0);
    }
    assert_int_equal(take(t, true), 1);
    assert_int_equal(take_as(t, false, true), 0); /* he lacks all of his from now on */
    assert_int_equal(take(t, true), 1);
    assert_true(tick(true));
    assert_int_equal(w.count, 1);
    assert_false(w.made[0]->left);
    pool_ended(t->pool);
    all_get_ready();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_who_gets_what_others_leave_has_jails_that_are_made_for_that, setup, teardown),
        cmocka_unit_test_setup_teardown(test_with_however_many_images_he_has_no_more_of_them, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_a_group_for_them_he_gets_what_all_get, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_waits_comes_before_those_who_get_what_others_leave,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_has_had_many_leaves_the_last_half_to_others, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_waits_is_told_as_soon_as_there_is_one_for_him,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_refills_stand_back_again_once_there_are_enough, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nobody_waits_for_what_cannot_be_made, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_waits_for_a_slot_is_not_asked_round_and_round,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
