#include "loop.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "unit.h"

/* What the callbacks of a test do and note. */
struct actor {
    struct loop *loop;
    int fd;
    int calls;
    uint32_t events;
    int *order;   /* shared counter */
    int position; /* its value at the last call */
    struct loop_source source;
    struct loop_timer timer;
    struct loop_defer defer;
    struct actor *victim;
    bool again;
};

static struct loop *make_loop(void) {
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    assert_non_null(loop);
    return loop;
}

static void once(struct loop *loop, uint64_t wait_ns) {
    struct err err = {0};
    unit_works(loop_once(loop, wait_ns, &err), err);
}

static void note(struct actor *a) {
    a->calls++;
    if (a->order)
        a->position = ++*a->order;
}

static void on_event(void *arg, uint32_t events) {
    struct actor *a = arg;
    note(a);
    a->events = events;
    if (a->victim)
        loop_del(a->loop, &a->victim->source);
}

static void on_timer(void *arg) {
    struct actor *a = arg;
    note(a);
    if (a->victim)
        loop_timer_stop(a->loop, &a->victim->timer);
    if (a->again)
        assert_int_equal(loop_timer_at(a->loop, &a->timer, 1, on_timer, a, NULL), 0);
}

static void on_defer(void *arg) {
    struct actor *a = arg;
    note(a);
    if (a->victim)
        loop_defer_stop(a->loop, &a->victim->defer);
    if (a->again)
        loop_defer(a->loop, &a->defer, on_defer, a);
}

/* An eventfd that is readable. */
static void watch(struct actor *a, struct loop *loop) {
    struct err err = {0};
    a->loop = loop;
    a->fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(a->fd >= 0);
    unit_works(loop_add(loop, &a->source, a->fd, EPOLLIN, on_event, a, &err), err);
}

static void test_free_accepts_null(void **state) {
    (void)state;
    loop_free(NULL);
    loop_free(make_loop());
}

static void test_events(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = make_loop();
    struct actor a = {0};
    watch(&a, loop);
    once(loop, 0);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.events, EPOLLIN);
    unit_works(loop_mod(loop, &a.source, EPOLLOUT, &err), err);
    once(loop, 0);
    assert_int_equal(a.events, EPOLLOUT);
    unit_works(loop_mod(loop, &a.source, 0, &err), err);
    once(loop, 0);
    assert_int_equal(a.calls, 2);
    loop_del(loop, &a.source);
    assert_int_equal(a.source.fd, -1);
    loop_del(loop, &a.source);
    unit_fails(loop_mod(loop, &a.source, EPOLLIN, &err), err, ERR_SYSTEM);
    once(loop, 0);
    assert_int_equal(a.calls, 2);
    close(a.fd);
    loop_free(loop);
}

static void test_add_fails_on_what_cannot_be_watched(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = make_loop();
    struct actor a = {.source = {.fd = -1}};
    unit_fails(loop_add(loop, &a.source, 9999, EPOLLIN, on_event, &a, &err), err, ERR_SYSTEM);
    assert_int_equal(a.source.fd, -1);
    watch(&a, loop);
    struct loop_source second = {.fd = -1};
    unit_fails(loop_add(loop, &second, a.fd, EPOLLIN, on_event, &a, &err), err, ERR_SYSTEM);
    close(a.fd);
    loop_free(loop);
}

static void test_a_zeroed_source_is_not_in_the_loop(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    struct actor a = {0};
    struct loop_source zero = {0};
    /* Watch descriptor 0, which a zeroed struct names. */
    int saved = dup(0);
    watch(&a, loop);
    loop_del(loop, &a.source);
    assert_int_equal(dup2(a.fd, 0), 0);
    assert_int_equal(loop_add(loop, &a.source, 0, EPOLLIN, on_event, &a, NULL), 0);
    loop_del(loop, &zero);
    once(loop, 0);
    assert_int_equal(a.calls, 1);
    loop_del(loop, &a.source);
    if (saved >= 0)
        dup2(saved, 0);
    else
        close(0);
    close(saved);
    close(a.fd);
    loop_free(loop);
}

/* Its descriptor was closed first, and another has the number by now. */
static void test_late_removal_leaves_others_alone(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = make_loop();
    struct actor late = {.loop = loop, .fd = eventfd(0, EFD_CLOEXEC)};
    unit_works(loop_add(loop, &late.source, late.fd, EPOLLIN, on_event, &late, &err), err);
    (void)close(late.fd);
    struct actor other = {.loop = loop, .fd = eventfd(1, EFD_CLOEXEC)};
    assert_int_equal(other.fd, late.fd);
    unit_works(loop_add(loop, &other.source, other.fd, EPOLLIN, on_event, &other, &err), err);
    unit_fails(loop_mod(loop, &late.source, 0, &err), err, ERR_SYSTEM);
    loop_del(loop, &late.source);
    once(loop, 0);
    assert_int_equal(other.calls, 1);
    assert_int_equal(late.calls, 0);
    loop_del(loop, &other.source);
    (void)close(other.fd);
    loop_free(loop);
}

static void test_removal_within_a_callback(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    struct actor a = {0}, b = {0};
    watch(&a, loop);
    watch(&b, loop);
    a.victim = &b;
    b.victim = &a;
    /* Both are ready; whichever comes first removes the other. */
    once(loop, 0);
    assert_int_equal(a.calls + b.calls, 1);
    once(loop, 0);
    assert_int_equal(a.calls + b.calls, 2);
    assert_true(a.calls == 0 || b.calls == 0);
    close(a.fd);
    close(b.fd);
    loop_free(loop);
}

static void test_removal_of_itself(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    struct actor a = {0};
    watch(&a, loop);
    a.victim = &a;
    once(loop, 0);
    once(loop, 0);
    assert_int_equal(a.calls, 1);
    close(a.fd);
    loop_free(loop);
}

struct freer {
    struct loop *loop;
    struct actor *victims[4];
    int freed;
};

static void on_event_free_all(void *arg, uint32_t events) {
    struct freer *f = arg;
    (void)events;
    for (size_t i = 0; i < UNIT_COUNT(f->victims); i++) {
        if (!f->victims[i])
            continue;
        loop_del(f->loop, &f->victims[i]->source);
        close(f->victims[i]->fd);
        free(f->victims[i]);
        f->victims[i] = NULL;
        f->freed++;
    }
}

static void test_owners_may_be_freed_within_a_callback(void **state) {
    (void)state;
    struct err err = {0};
    struct freer f = {.loop = make_loop()};
    for (size_t i = 0; i < UNIT_COUNT(f.victims); i++) {
        f.victims[i] = calloc(1, sizeof(struct actor));
        assert_non_null(f.victims[i]);
        watch(f.victims[i], f.loop);
        /* Each would free all, itself included: the sanitizer sees a use after it. */
        unit_works(loop_mod(f.loop, &f.victims[i]->source, EPOLLIN, &err), err);
        f.victims[i]->source.fn = on_event_free_all;
        f.victims[i]->source.arg = &f;
    }
    once(f.loop, 0);
    assert_int_equal(f.freed, 4);
    once(f.loop, 0);
    loop_free(f.loop);
}

struct looker {
    struct loop *loop;
    uint64_t rounds, within;
};

static void on_timer_look(void *arg) {
    struct looker *l = arg;
    l->within = l->rounds;
}

static void test_rounds_are_odd_while_there_is_work(void **state) {
    (void)state;
    struct looker l = {.loop = make_loop()};
    struct loop_timer timer = {0};
    loop_rounds(l.loop, &l.rounds);
    assert_int_equal(loop_timer_at(l.loop, &timer, 1, on_timer_look, &l, NULL), 0);
    once(l.loop, 0);
    assert_int_equal(l.within, 1);
    assert_int_equal(l.rounds, 2);
    loop_free(l.loop);
}

static void test_more_events_than_one_round_takes(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    enum { MANY = 300 };
    struct actor *all = calloc(MANY, sizeof(*all));
    assert_non_null(all);
    for (int i = 0; i < MANY; i++)
        watch(&all[i], loop);
    for (int i = 0; i < 10; i++)
        once(loop, 0);
    for (int i = 0; i < MANY; i++) {
        assert_true(all[i].calls > 0);
        loop_del(loop, &all[i].source);
        close(all[i].fd);
    }
    free(all);
    loop_free(loop);
}

static void test_timers_run_in_order(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    enum { MANY = 500 };
    struct actor *all = calloc(MANY, sizeof(*all));
    assert_non_null(all);
    int order = 0;
    unsigned seed = 1;
    for (int i = 0; i < MANY; i++) {
        seed = seed * 1103515245u + 12345u;
        all[i] = (struct actor){.loop = loop, .order = &order};
        assert_int_equal(
            loop_timer_at(loop, &all[i].timer, seed % 1000u + 1, on_timer, &all[i], NULL), 0);
    }
    /* Stop a third, move a third. */
    for (int i = 0; i < MANY; i += 3)
        loop_timer_stop(loop, &all[i].timer);
    for (int i = 1; i < MANY; i += 3)
        assert_int_equal(loop_timer_at(loop, &all[i].timer, all[i].timer.due_ns * 7 % 1000 + 1,
                                       on_timer, &all[i], NULL),
                         0);
    uint64_t *due = calloc(MANY + 1, sizeof(*due));
    assert_non_null(due);
    for (int i = 0; i < MANY; i++)
        due[i] = all[i].timer.due_ns;
    once(loop, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(all[i].calls, i % 3 != 0);
        assert_int_equal(all[i].timer.slot, 0);
        for (int j = 0; j < MANY; j++) {
            if (all[i].calls && all[j].calls && due[i] < due[j])
                assert_true(all[i].position < all[j].position);
        }
    }
    free(due);
    free(all);
    loop_free(loop);
}

static void test_timers_are_not_early_and_not_very_late(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    struct actor a = {.loop = loop};
    uint64_t due = clock_mono_ns() + 3 * CLOCK_NS_PER_MS + 300000;
    assert_int_equal(loop_timer_at(loop, &a.timer, due, on_timer, &a, NULL), 0);
    once(loop, 0);
    assert_int_equal(a.calls, 0);
    int rounds = 0;
    while (!a.calls && rounds < 100) {
        once(loop, UINT64_MAX);
        rounds++;
    }
    assert_true(clock_mono_ns() >= due);
    /* It slept until then rather than spinning. */
    assert_in_range(rounds, 1, 5);
    loop_free(loop);
}

/* From here on this process has no epoll_pwait2. */
static int forget_pwait2(int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = UNIT_COUNT(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int wait_without_pwait2(int error) {
    struct loop *loop = loop_new(NULL);
    struct actor a = {.loop = loop};
    uint64_t due = clock_mono_ns() + 3 * CLOCK_NS_PER_MS + 300000;
    if (!loop || forget_pwait2(error) < 0 ||
        loop_timer_at(loop, &a.timer, due, on_timer, &a, NULL) < 0)
        return 2;
    int rounds = 0;
    for (; !a.calls && rounds < 100; rounds++) {
        if (loop_once(loop, UINT64_MAX, NULL) < 0)
            return 3;
    }
    loop_free(loop);
    return rounds <= 5 && clock_mono_ns() >= due ? 0 : 4;
}

static void test_kernels_without_epoll_pwait2(void **state) {
    (void)state;
    static const int errors[] = {ENOSYS, EPERM};
    for (size_t i = 0; i < UNIT_COUNT(errors); i++) {
        int status = 0;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(wait_without_pwait2(errors[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void test_max_wait_bounds_a_round(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    struct actor a = {.loop = loop};
    uint64_t begun = clock_mono_ns();
    assert_int_equal(
        loop_timer_at(loop, &a.timer, begun + 3600 * CLOCK_NS_PER_S, on_timer, &a, NULL), 0);
    once(loop, 2 * CLOCK_NS_PER_MS);
    assert_true(clock_mono_ns() - begun >= 2 * CLOCK_NS_PER_MS);
    assert_true(clock_mono_ns() - begun < 60 * CLOCK_NS_PER_S);
    assert_int_equal(a.calls, 0);
    loop_timer_stop(loop, &a.timer);
    loop_timer_stop(loop, &a.timer);
    loop_free(loop);
}

static void test_a_timer_may_stop_another_and_rearm_itself(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    struct actor a = {.loop = loop}, b = {.loop = loop};
    a.victim = &b;
    a.again = true;
    assert_int_equal(loop_timer_at(loop, &a.timer, 1, on_timer, &a, NULL), 0);
    assert_int_equal(loop_timer_at(loop, &b.timer, 2, on_timer, &b, NULL), 0);
    /* Armed in the past by its own callback: at most as often as timers were armed, then others. */
    once(loop, 0);
    assert_int_equal(b.calls, 0);
    assert_in_range(a.calls, 1, 2);
    int before = a.calls;
    once(loop, UINT64_MAX);
    assert_int_equal(a.calls, before + 1);
    a.again = false;
    once(loop, UINT64_MAX);
    assert_int_equal(a.calls, before + 2);
    assert_int_equal(a.timer.slot, 0);
    loop_free(loop);
}

static void test_deferred_work(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    int order = 0;
    struct actor a = {.loop = loop, .order = &order}, b = a, c = a, event = a;
    watch(&event, loop);
    loop_defer(loop, &a.defer, on_defer, &a);
    loop_defer(loop, &b.defer, on_defer, &b);
    loop_defer(loop, &a.defer, on_defer, &a);
    loop_defer(loop, &c.defer, on_defer, &c);
    b.victim = &c;
    a.again = true;
    once(loop, UINT64_MAX);
    /* Once each, in order, after the events; c was taken back by b, a's own comes next round. */
    assert_int_equal(event.position, 1);
    assert_int_equal(a.position, 2);
    assert_int_equal(b.position, 3);
    assert_int_equal(c.calls, 0);
    loop_del(loop, &event.source);
    a.again = false;
    once(loop, UINT64_MAX);
    assert_int_equal(a.calls, 2);
    loop_defer(loop, &a.defer, on_defer, &a);
    loop_defer_stop(loop, &a.defer);
    loop_defer_stop(loop, &a.defer);
    once(loop, 0);
    assert_int_equal(a.calls, 2);
    close(event.fd);
    loop_free(loop);
}

static void on_first(void *arg) {
    struct actor *a = arg;
    note(a);
    if (a->victim)
        loop_defer(a->loop, &a->victim->defer, on_defer, a->victim);
}

static void test_what_comes_first_comes_in_front_of_deferred_work(void **state) {
    (void)state;
    struct loop *loop = make_loop();
    int order = 0;
    struct actor a = {.loop = loop, .order = &order}, b = a, c = a, event = a;
    watch(&event, loop);
    loop_defer(loop, &a.defer, on_defer, &a);
    loop_defer_first(loop, &b.defer, on_first, &b);
    loop_defer_first(loop, &b.defer, on_first, &b);
    b.victim = &c; /* what it defers is done in the same round */
    once(loop, UINT64_MAX);
    assert_int_equal(event.position, 1);
    assert_int_equal(b.position, 2);
    assert_int_equal(a.position, 3);
    assert_int_equal(c.position, 4);
    loop_del(loop, &event.source);
    loop_defer_first(loop, &b.defer, on_first, &b);
    loop_defer_stop(loop, &b.defer);
    once(loop, 0);
    assert_int_equal(b.calls, 1);
    /* While something waits for its round, the loop does not sleep. */
    loop_defer_first(loop, &b.defer, on_first, &b);
    once(loop, UINT64_MAX);
    assert_int_equal(b.calls, 2);
    close(event.fd);
    loop_free(loop);
}

static void on_stop(void *arg) {
    loop_stop(arg);
}

static void test_run_and_stop(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = make_loop();
    struct loop_timer t = {0};
    unit_works(loop_timer_at(loop, &t, clock_mono_ns() + 1, on_stop, loop, &err), err);
    unit_works(loop_run(loop, &err), err);
    loop_stop(loop);
    unit_works(loop_run(loop, &err), err);
    loop_free(loop);
}

struct rounds {
    unsigned count;
    uint64_t shortest_ns, longest_ns;
};

static void count_round(void *arg, uint64_t ns) {
    struct rounds *r = arg;
    r->count++;
    r->longest_ns = ns > r->longest_ns ? ns : r->longest_ns;
    r->shortest_ns = r->count == 1 || ns < r->shortest_ns ? ns : r->shortest_ns;
}

static void work_long(void *arg) {
    uint64_t until = clock_mono_ns() + 5 * CLOCK_NS_PER_MS;
    (void)arg;
    while (clock_mono_ns() < until)
        ;
}

/* What is waited for does not count, what is done does. */
static void test_rounds_are_measured_without_the_wait(void **state) {
    (void)state;
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    struct rounds rounds = {0}, busy = {0};
    struct loop_defer d = {0};
    assert_non_null(loop);
    loop_watch(loop, count_round, &rounds);
    for (int i = 0; i < 5; i++)
        unit_works(loop_once(loop, 50 * CLOCK_NS_PER_MS, &err), err);
    assert_int_equal(rounds.count, 5);
    assert_true(rounds.shortest_ns < 50 * CLOCK_NS_PER_MS);
    loop_watch(loop, count_round, &busy);
    loop_defer(loop, &d, work_long, NULL);
    unit_works(loop_once(loop, UINT64_MAX, &err), err);
    assert_int_equal(busy.count, 1);
    assert_true(busy.longest_ns >= 5 * CLOCK_NS_PER_MS);
    loop_watch(loop, NULL, NULL);
    unit_works(loop_once(loop, 0, &err), err);
    assert_int_equal(busy.count, 1);
    loop_free(loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_accepts_null),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_add_fails_on_what_cannot_be_watched),
        cmocka_unit_test(test_a_zeroed_source_is_not_in_the_loop),
        cmocka_unit_test(test_late_removal_leaves_others_alone),
        cmocka_unit_test(test_removal_within_a_callback),
        cmocka_unit_test(test_removal_of_itself),
        cmocka_unit_test(test_owners_may_be_freed_within_a_callback),
        cmocka_unit_test(test_rounds_are_odd_while_there_is_work),
        cmocka_unit_test(test_more_events_than_one_round_takes),
        cmocka_unit_test(test_timers_run_in_order),
        cmocka_unit_test(test_timers_are_not_early_and_not_very_late),
        cmocka_unit_test(test_kernels_without_epoll_pwait2),
        cmocka_unit_test(test_max_wait_bounds_a_round),
        cmocka_unit_test(test_a_timer_may_stop_another_and_rearm_itself),
        cmocka_unit_test(test_deferred_work),
        cmocka_unit_test(test_what_comes_first_comes_in_front_of_deferred_work),
        cmocka_unit_test(test_run_and_stop),
        cmocka_unit_test(test_rounds_are_measured_without_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
