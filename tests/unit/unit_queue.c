#include "queue.h"

#include "unit.h"

static void test_order(void **state) {
    (void)state;
    struct queue q;
    struct queue_node n[5];
    queue_init(&q, 10, 1000);
    for (size_t i = 0; i < 5; i++) {
        assert_true(queue_fits(&q, 10));
        queue_push(&q, &n[i], 10);
    }
    assert_int_equal(q.count, 5);
    assert_int_equal(q.bytes, 50);
    assert_ptr_equal(q.first, &n[0]);
    assert_int_equal(queue_position(&q, &n[3]), 3);
    queue_remove(&q, &n[2]);
    queue_remove(&q, &n[2]);
    assert_int_equal(queue_position(&q, &n[3]), 2);
    queue_remove(&q, &n[0]);
    queue_remove(&q, &n[4]);
    assert_ptr_equal(q.first, &n[1]);
    assert_ptr_equal(q.last, &n[3]);
    assert_ptr_equal(n[1].next, &n[3]);
    queue_remove(&q, &n[1]);
    queue_remove(&q, &n[3]);
    assert_null(q.first);
    assert_null(q.last);
    assert_int_equal(q.count, 0);
    assert_int_equal(q.bytes, 0);
}

static void test_bounds(void **state) {
    (void)state;
    struct queue q;
    struct queue_node n[4];
    queue_init(&q, 3, 100);
    assert_true(queue_fits(&q, 5000)); /* or it could never run */
    queue_push(&q, &n[0], 5000);
    assert_false(queue_fits(&q, 1));
    queue_remove(&q, &n[0]);
    queue_push(&q, &n[0], 60);
    assert_true(queue_fits(&q, 40));
    assert_false(queue_fits(&q, 41));
    assert_false(queue_fits(&q, SIZE_MAX));
    queue_push(&q, &n[1], 0);
    queue_push(&q, &n[2], 0);
    assert_false(queue_fits(&q, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
