/* What a runner is told of how its processors are divided: who has how many jails in which
 * something runs, and what is seen of them. */
#include "processors.h"

#include "fake_shard.h"

#define JAILS 6

static void on_ready(void *arg, struct link *l) {
    (void)arg;
    (void)l;
}

static void on_down(void *arg, struct link *l, const struct err *why) {
    (void)arg;
    (void)l;
    fail_msg("the connection ended: %s", why->text);
}

static void on_ended(void *owner, const struct wire_end *end) {
    (void)owner;
    (void)end;
}

static void on_failed(void *owner, const struct wire_failed *failed) {
    (void)owner;
    (void)failed;
}

static void on_lost(void *owner) {
    (void)owner;
}

static const struct link_jail_ops ops = {.ended = on_ended, .failed = on_failed, .lost = on_lost};
static const struct link_watch watch = {.ready = on_ready, .down = on_down, .slot_free = on_ready};

struct side {
    struct fake_shard fake;
    struct log log;
    struct link link;
    struct links links;
    struct processors processors;
    struct link_jail *jail[JAILS];
    struct processors_jail of[JAILS];
    uint64_t id[JAILS];
    uint32_t shares[JAILS]; /* as the runner was told */
    unsigned looks, told;
};

static int setup(void **state) {
    struct side *t = calloc(1, sizeof(*t));
    struct err err = {0};
    assert_non_null(t);
    fake_start(&t->fake);
    log_init(&t->log, -1, LOG_ERROR, "unit");
    link_init(&t->link, FAKE_SOCKET, t->fake.loop, &t->log, &watch);
    unit_works(link_connect(&t->link, &err), err);
    fake_greet(&t->fake, JAILS);
    t->links.items[t->links.count++] = &t->link;
    processors_init(&t->processors, t->fake.loop, &t->links);
    t->processors.cpus = 2;
    *state = t;
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    processors_stop(&t->processors);
    link_done(&t->link);
    fake_stop(&t->fake);
    free(t);
    return 0;
}

static void opens(struct side *t, unsigned i) {
    struct err err = {0};
    struct wire_open open;
    memset(&open, 0, sizeof(open));
    snprintf(open.policy, sizeof(open.policy), "default");
    snprintf(open.image, sizeof(open.image), "host");
    for (int n = 0; n < LIMIT_COUNT; n++)
        open.limits.v[n] = limit_info((enum limit_id)n)->min;
    t->jail[i] = link_open_jail(&t->link, &ops, t);
    assert_non_null(t->jail[i]);
    unit_works(link_open(t->jail[i], &open, &err), err);
    t->id[i] = fake_expect(&t->fake, WIRE_OPEN)->jail;
    t->shares[i] = WIRE_SHARES;
}

/* In jails that are open all: while one is opened, others may be told. */
static void begins(struct side *t, unsigned i, const char *user, uint32_t weight) {
    for (unsigned n = 0; n < JAILS; n++)
        if (t->jail[n] == NULL)
            opens(t, n);
    processors_busy(&t->processors, &t->of[i], user, weight, &t->jail[i]);
}

static void answers(struct side *t, const uint64_t *cpu_ns) {
    struct wire_looked looked;
    struct wire_seen seen;
    memset(&seen, 0, sizeof(seen));
    memset(&looked, 0, sizeof(looked));
    for (unsigned i = 0; i < JAILS && cpu_ns != NULL; i++) {
        if (t->id[i] == 0)
            continue;
        seen.cpu_ns = cpu_ns[i];
        seen.running = 1;
        fake_send(&t->fake, &seen, sizeof(seen), WIRE_SEEN, t->id[i], 0);
    }
    fake_send(&t->fake, &looked, sizeof(looked), WIRE_LOOKED, 0, 0);
}

/* Takes what comes; a look is answered with the CPU time that each jail has had. */
static void hears(struct side *t, const uint64_t *cpu_ns) {
    if (fake_quiet(&t->fake))
        return;
    const struct wire_head *head = (const struct wire_head *)(const void *)t->fake.packet;
    if (head->type == WIRE_LOOK) {
        assert_int_equal(((const struct wire_look *)(const void *)head)->what, WIRE_LOOK_BUSY);
        t->looks++;
        answers(t, cpu_ns);
        return;
    }
    assert_int_equal(head->type, WIRE_WEIGH);
    for (unsigned i = 0; i < JAILS; i++)
        if (t->id[i] == head->jail)
            t->shares[i] = ((const struct wire_weigh *)(const void *)head)->shares;
    t->told++;
}

static bool are(const struct side *t, const uint32_t *shares, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (t->shares[i] != shares[i])
            return false;
    return true;
}

/* Until the shares are these, for a few seconds at most. */
#define AWAIT(t, cpu_ns, ...)                                                                      \
    awaits(t, cpu_ns, (const uint32_t[]){__VA_ARGS__},                                             \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void awaits(struct side *t, const uint64_t *cpu_ns, const uint32_t *want, size_t count) {
    uint64_t end = clock_mono_ns() + 5 * CLOCK_NS_PER_S;
    while (!are(t, want, (unsigned)count) && clock_mono_ns() < end)
        hears(t, cpu_ns);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(t->shares[i], want[i]);
}

static void rests(struct side *t, unsigned i) {
    processors_rest(&t->processors, &t->of[i], PROCESSORS_UNKNOWN_NS);
}

static void passes(struct side *t, uint64_t ms) {
    uint64_t end = clock_mono_ns() + ms * CLOCK_NS_PER_MS;
    while (clock_mono_ns() < end)
        hears(t, NULL);
}

static void test_alone_nothing_is_said(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < 4; i++)
        begins(t, i, "a", 0);
    passes(t, 20);
    for (unsigned i = 0; i < 4; i++)
        rests(t, i);
    passes(t, 20);
    assert_int_equal(t->told, 0);
    assert_int_equal(t->looks, 0);
}

static void test_jails_of_one_user_divide(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < 3; i++)
        begins(t, i, "a", 0);
    begins(t, 3, "b", 0);
    AWAIT(t, NULL, 256, 256, 256, 1024);
    begins(t, 4, "a", 0);
    begins(t, 5, "a", 0);
    AWAIT(t, NULL, 128, 128, 128, 1024, 128, 128);
    assert_int_equal(t->told, 8); /* nothing twice */
    /* Down with the next look, and all alike when he is alone again. */
    rests(t, 0);
    rests(t, 1);
    rests(t, 2);
    AWAIT(t, NULL, 128, 128, 128, 1024, 512, 512);
    rests(t, 3);
    AWAIT(t, NULL, 128, 128, 128, 1024, 1024, 1024);
    assert_false(t->processors.shared);
    unsigned looks = t->looks;
    passes(t, 600);
    assert_int_equal(t->looks, looks);
}

static void test_by_weight(void **state) {
    struct side *t = *state;
    begins(t, 0, "a", 200);
    begins(t, 1, "b", 50);
    begins(t, 2, "b", 50);
    begins(t, 3, "c", QUEUE_WEIGHT_MAX);
    AWAIT(t, NULL, 2048, 256, 256, WIRE_SHARES_MAX);
}

/* Servers that wait for requests do not make what computes slower. */
static void test_who_waits_does_not_count(void **state) {
    struct side *t = *state;
    uint64_t cpu[JAILS] = {0};
    for (unsigned i = 0; i < 4; i++)
        begins(t, i, "a", 0);
    begins(t, 4, "b", 0);
    AWAIT(t, cpu, 256, 256, 256, 256, 1024);
    uint64_t end = clock_mono_ns() + 10 * CLOCK_NS_PER_S;
    while (t->shares[0] != 1024 && clock_mono_ns() < end) {
        cpu[0] += CLOCK_NS_PER_S; /* his others have nothing */
        cpu[4] += CLOCK_NS_PER_S;
        hears(t, cpu);
    }
    AWAIT(t, cpu, 1024, 1024, 1024, 1024, 1024);
    assert_true(t->looks >= 2);
    end = clock_mono_ns() + 10 * CLOCK_NS_PER_S;
    while (t->shares[0] != 512 && clock_mono_ns() < end) {
        cpu[0] += CLOCK_NS_PER_S;
        cpu[1] += CLOCK_NS_PER_S;
        cpu[4] += CLOCK_NS_PER_S;
        hears(t, cpu);
    }
    AWAIT(t, cpu, 512, 512, 512, 512, 1024);
}

/* Each look finds that the jails had these thousandths of a processor since the one before. */
static void has(struct side *t, uint64_t *cpu, const uint32_t *milli, const uint32_t *want) {
    uint64_t last = clock_mono_ns(), end = last + 10 * CLOCK_NS_PER_S;
    while (!are(t, want, JAILS) && clock_mono_ns() < end) {
        uint64_t now = clock_mono_ns();
        for (unsigned i = 0; i < JAILS; i++)
            cpu[i] += (now - last) / 1000 * milli[i];
        last = now;
        hears(t, cpu);
    }
    for (unsigned i = 0; i < JAILS; i++)
        assert_int_equal(t->shares[i], want[i]);
}

static void stays(struct side *t, uint64_t *cpu, const uint32_t *milli, const uint32_t *want) {
    unsigned looks = t->looks + 4;
    uint64_t last = clock_mono_ns();
    while (t->looks < looks) {
        uint64_t now = clock_mono_ns();
        for (unsigned i = 0; i < JAILS; i++)
            cpu[i] += (now - last) / 1000 * milli[i];
        last = now;
        hears(t, cpu);
        assert_true(are(t, want, JAILS));
    }
}

/* Who wants everything gives way to who wants little, and shares with who wants as much, even where
 * that one took all while he gave way. */
static void test_who_has_most_gives_way(void **state) {
    struct side *t = *state;
    uint64_t cpu[JAILS] = {0};
    for (unsigned i = 0; i < 4; i++)
        begins(t, i, "most", 0);
    begins(t, 4, "little", 0);
    const uint32_t left[JAILS] = {1, 1, 1, 1, 1024, 1024},
                   equal[JAILS] = {256, 256, 256, 256, 1024, 1024};
    has(t, cpu, (const uint32_t[]){450, 450, 450, 450, 200, 0}, left);
    stays(t, cpu, (const uint32_t[]){450, 450, 450, 450, 200, 0}, left);
    has(t, cpu, (const uint32_t[]){10, 10, 10, 10, 1900, 0}, equal);
    stays(t, cpu, (const uint32_t[]){240, 240, 240, 240, 1040, 0}, equal);
    stays(t, cpu, (const uint32_t[]){260, 260, 260, 260, 960, 0}, equal);
    has(t, cpu, (const uint32_t[]){450, 450, 450, 450, 200, 0}, left);
}

/* Between jails that give way the kernel knows no weight. */
static void test_two_who_have_much_share_by_weight(void **state) {
    struct side *t = *state;
    uint64_t cpu[JAILS] = {0};
    for (unsigned i = 0; i < 4; i++)
        begins(t, i, "one", 0);
    begins(t, 4, "other", 0);
    begins(t, 5, "little", 0);
    const uint32_t equal[JAILS] = {256, 256, 256, 256, 1024, 1024};
    has(t, cpu, (const uint32_t[]){220, 220, 220, 220, 900, 100}, equal);
    stays(t, cpu, (const uint32_t[]){220, 220, 220, 220, 900, 100}, equal);
}

/* Short runs are over before anybody looks: what they used is known then. */
static void test_short_runs_count(void **state) {
    struct side *t = *state;
    const uint64_t ms = CLOCK_NS_PER_MS;
    uint64_t end = clock_mono_ns() + 10 * CLOCK_NS_PER_S;
    t->processors.cpus = 1;
    begins(t, 5, "little", 0);
    while (t->shares[4] != WIRE_SHARES_LEFT && clock_mono_ns() < end) {
        uint64_t began = clock_mono_ns();
        begins(t, 4, "most", 0);
        while (clock_mono_ns() < began + 20 * ms)
            hears(t, (const uint64_t[JAILS]){0});
        processors_rest(&t->processors, &t->of[4], 18 * ms);
        processors_rest(&t->processors, &t->of[5], ms / 2);
        begins(t, 5, "little", 0);
    }
    assert_int_equal(t->shares[4], WIRE_SHARES_LEFT);
    assert_int_equal(t->shares[5], WIRE_SHARES);
}

/* Nothing is said of a jail before its OPEN, and of one that is gone. */
static void test_not_before_it_is_open(void **state) {
    struct side *t = *state;
    for (unsigned i = 0; i < 2; i++)
        opens(t, i);
    processors_busy(&t->processors, &t->of[0], "a", 0, &t->jail[0]);
    processors_busy(&t->processors, &t->of[1], "b", 0, &t->jail[1]);
    t->jail[2] = link_open_jail(&t->link, &ops, t);
    assert_non_null(t->jail[2]);
    processors_busy(&t->processors, &t->of[2], "b", 0, &t->jail[2]);
    AWAIT(t, NULL, 1024, 512);
    passes(t, 20);
    assert_int_equal(t->told, 1);
    link_abandon(t->jail[2]);
    t->jail[2] = NULL;
    passes(t, 20);
    assert_int_equal(t->told, 1);
    rests(t, 2);
}

/* Of an earlier server's jail nobody knows what it has. */
static void test_of_an_earlier_server(void **state) {
    struct side *t = *state;
    opens(t, 0);
    t->shares[0] = 7;
    t->of[0].told = PROCESSORS_UNKNOWN;
    processors_busy(&t->processors, &t->of[0], "a", 0, &t->jail[0]);
    AWAIT(t, NULL, 1024);
    rests(t, 0);
    rests(t, 0); /* and again: nothing */
}

static void await_one(struct side *t, unsigned i, uint32_t want) {
    const uint64_t cpu_ns[JAILS] = {0};
    uint64_t end = clock_mono_ns() + 5 * CLOCK_NS_PER_S;
    while (t->shares[i] != want && clock_mono_ns() < end)
        hears(t, cpu_ns);
    assert_int_equal(t->shares[i], want);
}

/* Who is in the group of those that get what others leave, and does not compute, must not lend its
 * part to one who floods. */
static void test_who_was_opened_to_give_way_weighs_only_while_he_computes(void **state) {
    struct side *t = *state;
    begins(t, 0, "a", 0);
    begins(t, 1, "b", 0);
    t->of[1].left = true; /* as processors_opens_left() says */
    t->of[1].told = t->shares[1] = WIRE_SHARES_LEFT;
    await_one(t, 1, WIRE_SHARES);               /* it has just begun */
    await_one(t, 1, WIRE_SHARES_LEFT);          /* and is seen to do nothing */
    t->of[1].told = t->shares[1] = WIRE_SHARES; /* as if it had computed */
    rests(t, 1);
    await_one(t, 1, WIRE_SHARES_LEFT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_alone_nothing_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jails_of_one_user_divide, setup, teardown),
        cmocka_unit_test_setup_teardown(test_by_weight, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_waits_does_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_has_most_gives_way, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_who_was_opened_to_give_way_weighs_only_while_he_computes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_who_have_much_share_by_weight, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_runs_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_before_it_is_open, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_an_earlier_server, setup, teardown),
    };
    return cmocka_run_group_tests_name("processors", tests, NULL, NULL);
}
