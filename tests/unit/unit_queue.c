#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "unit.h"

struct item {
    struct queue_node node; /* first */
    char user[QUEUE_NAME_SIZE];
    size_t started; /* 1 = first of all */
};

static void push(struct queue *q, struct item *item, const char *user, enum queue_lane lane,
                 uint32_t weight) {
    struct queue_entry entry = {.user = user, .weight = weight, .lane = lane, .bytes = 10};
    snprintf(item->user, sizeof(item->user), "%s", user);
    assert_int_equal(queue_fits(q, user, 1, 10), QUEUE_ROOM);
    assert_int_equal(queue_push(q, &item->node, &entry, NULL), 0);
}

static struct item *start(struct queue *q) {
    struct item *item = (struct item *)(void *)queue_next(q);
    if (item != NULL)
        queue_take(q, &item->node);
    return item;
}

static void end(struct queue *q, struct item *item, uint64_t ms) {
    queue_ended(q, &item->node, ms);
}

/* Starts and ends everything; the users' letters in the order of their starts. */
static void drain(struct queue *q, char *order, size_t size) {
    size_t n = 0;
    for (struct item *item; (item = start(q)) != NULL;) {
        assert_true(n + 1 < size);
        order[n++] = item->user[0];
        end(q, item, 1);
    }
    order[n] = '\0';
}

static void first_come_first_served_within_a_user(void **state) {
    (void)state;
    struct queue q;
    struct item items[5] = {0};
    queue_init(&q, 100, 10000);
    for (size_t i = 0; i < 5; i++)
        push(&q, &items[i], "a", QUEUE_NORMAL, 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(queue_position(&q, &items[i].node), i);
    queue_remove(&q, &items[1].node);
    queue_remove(&q, &items[1].node); /* again: nothing */
    assert_int_equal(q.count, 4);
    assert_ptr_equal(start(&q), &items[0]);
    assert_ptr_equal(start(&q), &items[2]);
    assert_ptr_equal(start(&q), &items[3]);
    assert_int_equal(queue_position(&q, &items[4].node), 0);
    assert_ptr_equal(start(&q), &items[4]);
    assert_null(queue_next(&q));
    assert_int_equal(q.count, 0);
    assert_int_equal(q.bytes, 0);
    queue_done(&q);
}

static void a_thousand_waiting_delay_another_by_one(void **state) {
    (void)state;
    struct queue q;
    static struct item hog[1000], one;
    memset(hog, 0, sizeof(hog));
    memset(&one, 0, sizeof(one));
    queue_init(&q, 10000, 1 << 30);
    for (size_t i = 0; i < 1000; i++)
        push(&q, &hog[i], "hog", QUEUE_HIGH, 0);
    for (size_t i = 0; i < 100; i++) /* it has been at it for a while */
        end(&q, start(&q), 5);
    push(&q, &one, "one", QUEUE_LOW, 0);
    assert_in_range(queue_position(&q, &one.node), 0, 1);
    struct item *first = start(&q);
    if (first != &one)
        assert_ptr_equal(start(&q), &one);
    queue_done(&q);
}

static void who_comes_back_at_once_has_no_second_turn(void **state) {
    (void)state;
    struct queue q;
    static struct item hog[300], pair[2];
    size_t hogs = 0, pairs = 0;
    memset(hog, 0, sizeof(hog));
    queue_init(&q, 10000, 1 << 30);
    for (size_t i = 0; i < 300; i++)
        push(&q, &hog[i], "hog", QUEUE_NORMAL, 0);
    push(&q, &pair[0], "x", QUEUE_NORMAL, 0);
    push(&q, &pair[1], "y", QUEUE_NORMAL, 0);
    for (int i = 0; i < 300; i++) {
        struct item *item = start(&q);
        end(&q, item, 1);
        if (item->user[0] == 'h') {
            hogs++;
        } else {
            pairs++;
            push(&q, item, item == &pair[0] ? "x" : "y", QUEUE_NORMAL, 0);
        }
    }
    assert_int_equal(hogs, 100);
    assert_int_equal(pairs, 200);
    queue_done(&q);
}

/* Two hundred users with twenty waiting each, sixteen slots, runs that end in any order: at no
 * start is anybody more than one ahead of anybody. */
static void equal_users_are_never_two_starts_apart(void **state) {
    (void)state;
    enum { USERS = 200, EACH = 20, SLOTS = 16 };
    static struct item items[USERS * EACH];
    static char names[USERS][8];
    struct item *slot[SLOTS] = {0};
    unsigned started[USERS] = {0}, fewest = 0;
    size_t with[EACH + 1] = {USERS};
    struct queue q;
    memset(items, 0, sizeof(items));
    queue_init(&q, 10000, 1 << 30);
    for (size_t i = 0; i < USERS * EACH; i++) {
        snprintf(names[i / EACH], sizeof(names[0]), "u%zu", i / EACH);
        push(&q, &items[i], names[i / EACH], QUEUE_NORMAL, 0);
    }
    srand(7);
    for (size_t i = 0; i < USERS * EACH; i++) {
        struct item **free_slot = &slot[(unsigned)rand() % SLOTS];
        if (*free_slot != NULL)
            end(&q, *free_slot, (uint64_t)rand() % 900);
        *free_slot = start(&q);
        unsigned n = ++started[(*free_slot - items) / EACH];
        with[n - 1]--;
        with[n]++;
        while (with[fewest] == 0)
            fewest++;
        assert_in_range(n, fewest, fewest + 1);
    }
    queue_done(&q);
}

static void weights_share_and_lie_between(void **state) {
    (void)state;
    struct queue q;
    struct item items[24] = {0};
    char order[64];
    queue_init(&q, 1000, 1 << 20);
    for (size_t i = 0; i < 12; i++)
        push(&q, &items[i], "c", QUEUE_NORMAL, 300);
    for (size_t i = 12; i < 16; i++)
        push(&q, &items[i], "a", QUEUE_NORMAL, 100);
    for (size_t i = 16; i < 18; i++)
        push(&q, &items[i], "b", QUEUE_NORMAL, 50);
    drain(&q, order, sizeof(order));
    assert_int_equal(strlen(order), 18);
    /* In the first three rounds: nine of c, three of a, one of b, and never more than three of c in
     * a row. */
    size_t c = 0, a = 0, row = 0;
    for (const char *p = order; c < 9; p++) {
        row = *p == 'c' ? row + 1 : 0;
        assert_true(row <= 3);
        c += *p == 'c';
        a += *p == 'a';
    }
    assert_in_range(a, 2, 3);
    queue_done(&q);
}

static void lanes_are_the_users_own_and_none_starves(void **state) {
    (void)state;
    struct queue q;
    static struct item high[100], low, other[3];
    memset(high, 0, sizeof(high));
    memset(other, 0, sizeof(other));
    memset(&low, 0, sizeof(low));
    queue_init(&q, 1000, 1 << 20);
    push(&q, &low, "a", QUEUE_LOW, 0);
    for (size_t i = 0; i < 100; i++)
        push(&q, &high[i], "a", QUEUE_HIGH, 0);
    for (size_t i = 0; i < 3; i++)
        push(&q, &other[i], "b", QUEUE_LOW, 0);
    assert_ptr_equal(start(&q), &high[0]);
    assert_ptr_equal(start(&q), &other[0]); /* b's low lane has b's turn */
    assert_ptr_equal(start(&q), &high[1]);
    assert_ptr_equal(start(&q), &other[1]);
    size_t n = 2;
    for (struct item *item; (item = start(&q)) != &low;)
        n += item->user[0] == 'a';
    assert_int_equal(n, QUEUE_PASSED_MAX);
    queue_done(&q);
}

static void seconds_in_a_slot_are_paid_for(void **state) {
    (void)state;
    struct queue q;
    static struct item slow[50], quick[200];
    size_t slows = 0, quicks = 0;
    memset(slow, 0, sizeof(slow));
    memset(quick, 0, sizeof(quick));
    queue_init(&q, 1000, 1 << 20);
    for (size_t i = 0; i < 50; i++)
        push(&q, &slow[i], "s", QUEUE_NORMAL, 0);
    for (size_t i = 0; i < 200; i++)
        push(&q, &quick[i], "q", QUEUE_NORMAL, 0);
    for (int i = 0; i < 110; i++) {
        struct item *item = start(&q);
        bool s = item->user[0] == 's';
        end(&q, item, s ? 9000 : 90);
        slows += s;
        quicks += !s;
    }
    assert_int_equal(slows + quicks, 110);
    assert_in_range(slows, 10, 12); /* one for ten quick ones */
    /* A debt has an end, and only as long as others wait is anything owed. */
    for (struct item *item; (item = start(&q)) != NULL;)
        end(&q, item, 3600 * 1000);
    assert_int_equal(q.count, 0);
    assert_null(q.resting.first);
    queue_done(&q);
}

static void a_user_set_aside_lets_others_go(void **state) {
    (void)state;
    struct queue q;
    struct item a[2] = {0}, b[2] = {0};
    struct queue_share share;
    queue_init(&q, 100, 10000);
    push(&q, &a[0], "a", QUEUE_NORMAL, 0);
    push(&q, &a[1], "a", QUEUE_NORMAL, 0);
    push(&q, &b[0], "b", QUEUE_NORMAL, 0);
    assert_ptr_equal(queue_next(&q), &a[0]);
    queue_aside(&q, &a[0].node);
    push(&q, &b[1], "b", QUEUE_NORMAL, 0);
    queue_share(&q, "a", &share);
    assert_true(share.aside);
    assert_int_equal(share.waiting, 2);
    assert_int_equal(share.users, 2);
    assert_ptr_equal(start(&q), &b[0]);
    assert_ptr_equal(start(&q), &b[1]);
    assert_null(queue_next(&q));
    assert_ptr_equal(queue_any(&q), &a[0]);
    queue_go_on(&q, "b");
    assert_null(queue_next(&q));
    queue_go_on(&q, "a");
    assert_ptr_equal(start(&q), &a[0]);
    queue_aside(&q, &a[1].node);
    queue_go_on(&q, NULL);
    assert_ptr_equal(start(&q), &a[1]);
    queue_done(&q);
}

static void what_is_at_a_gate_lets_the_same_users_others_go(void **state) {
    (void)state;
    struct queue q;
    struct item t[4] = {0}, own = {0};
    struct queue_gate *gate = NULL;
    queue_init(&q, 100, 10000);
    for (size_t i = 0; i < 4; i++)
        push(&q, &t[i], "a", QUEUE_NORMAL, 0);
    push(&q, &own, "a", QUEUE_NORMAL, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(queue_next(&q), &t[i]);
        assert_int_equal(queue_hold(&q, &t[i].node, &gate, NULL), 0);
    }
    assert_non_null(gate);
    assert_int_equal(queue_position(&q, &t[2].node), 2);
    assert_ptr_equal(start(&q), &own);
    assert_null(queue_next(&q));
    assert_int_equal(q.count, 4);
    queue_open(&q, gate);
    assert_ptr_equal(queue_next(&q), &t[0]);
    queue_hold(&q, &t[0].node, &gate, NULL); /* not yet, after all: it stays the first */
    queue_open(&q, gate);
    assert_ptr_equal(start(&q), &t[0]);
    queue_remove(&q, &t[1].node); /* cancelled behind the gate */
    queue_open(&q, gate);
    assert_ptr_equal(start(&q), &t[2]);
    assert_ptr_equal(queue_any(&q), &t[3]);
    queue_open(&q, gate);
    assert_null(gate);
    queue_open(&q, gate);
    assert_ptr_equal(start(&q), &t[3]);
    assert_int_equal(q.count, 0);
    queue_done(&q);
}

static void bounds_hold(void **state) {
    (void)state;
    struct queue q;
    struct item n[4] = {0};
    struct queue_entry entry = {.user = "a", .bytes = 5000};
    queue_init(&q, 3, 100);
    assert_int_equal(queue_fits(&q, "a", 1, 5000), QUEUE_ROOM); /* or it could never run */
    queue_push(&q, &n[0].node, &entry, NULL);
    assert_int_equal(queue_fits(&q, "b", 1, 1), QUEUE_FULL);
    queue_remove(&q, &n[0].node);
    entry.bytes = 60;
    queue_push(&q, &n[0].node, &entry, NULL);
    assert_int_equal(queue_fits(&q, "b", 1, 40), QUEUE_ROOM);
    assert_int_equal(queue_fits(&q, "b", 1, 41), QUEUE_FULL);
    assert_int_equal(queue_fits(&q, "b", 1, SIZE_MAX), QUEUE_FULL);
    entry.bytes = 0;
    queue_push(&q, &n[1].node, &entry, NULL);
    assert_int_equal(queue_fits(&q, "b", 2, 0), QUEUE_FULL);
    queue_push(&q, &n[2].node, &entry, NULL);
    assert_int_equal(queue_fits(&q, "b", 1, 0), QUEUE_FULL);
    queue_done(&q);
}

static void one_user_leaves_places_for_others(void **state) {
    (void)state;
    struct queue q;
    static struct item a[1000], b[1000];
    size_t n = 0, m = 0;
    memset(a, 0, sizeof(a));
    memset(b, 0, sizeof(b));
    queue_init(&q, 900, 1 << 20);
    while (queue_fits(&q, "a", 1, 10) == QUEUE_ROOM)
        push(&q, &a[n++], "a", QUEUE_NORMAL, 0);
    assert_int_equal(queue_fits(&q, "a", 1, 10), QUEUE_TAKEN);
    assert_int_equal(n, 800);
    while (queue_fits(&q, "b", 1, 10) == QUEUE_ROOM)
        push(&q, &b[m++], "b", QUEUE_NORMAL, 0);
    assert_in_range(m, 80, 95);
    assert_int_equal(queue_fits(&q, "c", 1, 10), QUEUE_ROOM);
    queue_done(&q);
}

/* Equal users get equal numbers, at every moment, and the position of an entry that nothing
 * overtakes is the number of starts before it. */
static void many_users_are_served_evenly_and_fast(void **state) {
    (void)state;
    enum { USERS = 200, EACH = 50 };
    struct queue q;
    struct item *items = calloc(USERS * EACH, sizeof(*items));
    size_t served[USERS] = {0};
    char name[16];
    assert_non_null(items);
    queue_init(&q, 20000, 1 << 30);
    for (size_t u = 0; u < USERS; u++)
        for (size_t i = 0; i < EACH; i++) {
            snprintf(name, sizeof(name), "u%zu", u);
            push(&q, &items[u * EACH + i], name, QUEUE_NORMAL, 0);
        }
    size_t foretold = queue_position(&q, &items[77 * EACH + 7].node);
    uint64_t begin = clock_mono_ns();
    for (size_t n = 0; n < USERS * EACH; n++) {
        struct item *item = start(&q);
        assert_non_null(item);
        size_t u = (size_t)(item - items) / EACH;
        served[u]++;
        item->started = n;
        assert_int_equal(served[u], n / USERS + 1);
        end(&q, item, u % 7);
    }
    uint64_t ns = (clock_mono_ns() - begin) / (USERS * EACH);
    assert_int_equal(items[77 * EACH + 7].started, foretold);
    assert_true(ns < 20000); /* a walk over what waits would take longer, on any machine */
    assert_null(q.resting.first);
    free(items);
    queue_done(&q);
}

/* Whatever happens in whatever order: what went in comes out once, and every list is sound. */

enum { CHAOS_ITEMS = 400, CHAOS_USERS = 9 };
enum chaos_phase { CHAOS_OUT, CHAOS_WAITS, CHAOS_RUNS };

struct chaos {
    struct queue q;
    struct item items[CHAOS_ITEMS];
    enum chaos_phase phase[CHAOS_ITEMS];
    struct queue_gate *gates[CHAOS_USERS];
    unsigned seed;
    size_t waiting;
};

static unsigned chaos_random(struct chaos *c, unsigned bound) {
    return (unsigned)rand_r(&c->seed) % bound;
}

static size_t chaos_next(struct chaos *c) {
    struct queue_node *next = queue_next(&c->q);
    if (next == NULL)
        return CHAOS_ITEMS;
    size_t i = (size_t)((struct item *)(void *)next - c->items);
    assert_int_equal(c->phase[i], CHAOS_WAITS);
    return i;
}

/* Something with the entry `i`. */
static void chaos_touch(struct chaos *c, size_t i, const char *user) {
    struct queue_node *node = &c->items[i].node;
    switch (c->phase[i]) {
    case CHAOS_OUT:
        push(&c->q, &c->items[i], user, (enum queue_lane)chaos_random(c, QUEUE_LANES),
             chaos_random(c, 400));
        c->phase[i] = CHAOS_WAITS;
        c->waiting++;
        break;
    case CHAOS_WAITS:
        assert_true(queue_position(&c->q, node) < CHAOS_ITEMS);
        if (chaos_random(c, 3) > 0)
            break;
        queue_remove(&c->q, node);
        c->phase[i] = CHAOS_OUT;
        c->waiting--;
        break;
    case CHAOS_RUNS:
        queue_ended(&c->q, node, chaos_random(c, 100000));
        c->phase[i] = CHAOS_OUT;
        break;
    }
}

/* Something with whose turn it is. */
static void chaos_turn(struct chaos *c) {
    size_t i = chaos_next(c);
    if (i == CHAOS_ITEMS)
        return;
    switch (chaos_random(c, 4)) {
    case 0:
        queue_aside(&c->q, &c->items[i].node);
        break;
    case 1:
        queue_hold(&c->q, &c->items[i].node, &c->gates[i % CHAOS_USERS], NULL);
        break;
    default:
        queue_take(&c->q, &c->items[i].node);
        c->phase[i] = CHAOS_RUNS;
        c->waiting--;
        break;
    }
}

static void any_order_of_events_is_sound(void **state) {
    (void)state;
    struct chaos *c = calloc(1, sizeof(*c));
    char name[16];
    assert_non_null(c);
    c->seed = 12345;
    queue_init(&c->q, 10000, 1 << 30);
    for (int step = 0; step < 200000; step++) {
        size_t i = chaos_random(c, CHAOS_ITEMS);
        snprintf(name, sizeof(name), "u%zu", i % CHAOS_USERS);
        switch (chaos_random(c, 5)) {
        case 0:
        case 1:
            chaos_touch(c, i, name);
            break;
        case 2:
        case 3:
            chaos_turn(c);
            break;
        default:
            queue_go_on(&c->q, chaos_random(c, 2) ? name : NULL);
            queue_open(&c->q, c->gates[i % CHAOS_USERS]);
            break;
        }
        assert_int_equal(c->q.count, c->waiting);
        assert_true((queue_any(&c->q) != NULL) == (c->waiting > 0));
    }
    for (struct queue_node *node; (node = queue_any(&c->q)) != NULL;)
        queue_remove(&c->q, node);
    for (size_t i = 0; i < CHAOS_ITEMS; i++)
        if (c->phase[i] == CHAOS_RUNS)
            queue_ended(&c->q, &c->items[i].node, 0);
    for (size_t u = 0; u < CHAOS_USERS; u++)
        assert_null(c->gates[u]);
    assert_int_equal(c->q.users, 0);
    assert_null(c->q.resting.first);
    assert_null(c->q.now.first);
    assert_null(c->q.later.first);
    queue_done(&c->q);
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served_within_a_user),
        cmocka_unit_test(a_thousand_waiting_delay_another_by_one),
        cmocka_unit_test(who_comes_back_at_once_has_no_second_turn),
        cmocka_unit_test(equal_users_are_never_two_starts_apart),
        cmocka_unit_test(weights_share_and_lie_between),
        cmocka_unit_test(lanes_are_the_users_own_and_none_starves),
        cmocka_unit_test(seconds_in_a_slot_are_paid_for),
        cmocka_unit_test(a_user_set_aside_lets_others_go),
        cmocka_unit_test(what_is_at_a_gate_lets_the_same_users_others_go),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(one_user_leaves_places_for_others),
        cmocka_unit_test(many_users_are_served_evenly_and_fast),
        cmocka_unit_test(any_order_of_events_is_sound),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
