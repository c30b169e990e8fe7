#include "fake_side.h"

static void test_pause_and_resume(void **state) {
    struct side *s = *state;
    uint64_t jail;
    int code = -2;
    struct task a, f;
    struct err err = {0};
    struct sandbox *sb = make(s, &jail);
    assert_non_null(sandbox_op_freeze(sb, true, done, &code, &err));
    /* From the moment of the request on. */
    unit_fails(start(sb, &a, true, &err), err, ERR_STATE);
    fake_send_done(&s->fake, fake_expect(&s->fake, WIRE_FREEZE), 0);
    assert_int_equal(code, 0);
    assert_int_equal(sandbox_state(sb), SANDBOX_PAUSED);
    unit_fails(start(sb, &a, true, &err), err, ERR_STATE);
    unit_works(start(sb, &f, false, &err), err);
    fake_expect(&s->fake, WIRE_EXEC);
    assert_null(sandbox_op_restore(sb, "snap_x", done, &code, &err));
    assert_int_equal(err.kind, ERR_STATE);
    assert_non_null(sandbox_op_freeze(sb, false, done, &code, &err));
    fake_send_done(&s->fake, fake_expect(&s->fake, WIRE_FREEZE), 0);
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
    run(s, sb, &a);
}

static void test_restore(void **state) {
    struct side *s = *state;
    uint64_t jail;
    int code = -2;
    struct err err = {0};
    struct task a;
    struct sandbox *sb = make(s, &jail);
    uint64_t layers = sandbox_layer_serial(sb);
    assert_non_null(sandbox_op_snapshot(sb, "snap_x", done, &code, &err));
    assert_non_null(sandbox_op_restore(sb, "snap_x", done, &code, &err));
    unit_fails(start(sb, &a, true, &err), err, ERR_STATE);
    fake_send_done(&s->fake, fake_expect(&s->fake, WIRE_SNAPSHOT), 0);
    assert_int_equal(sandbox_layer_serial(sb), layers + 1);
    fake_send_done(&s->fake, fake_expect(&s->fake, WIRE_RESTORE), 0);
    assert_int_equal(sandbox_layer_serial(sb), layers + 2);
    /* One that fails changes nothing. */
    assert_non_null(sandbox_op_restore(sb, "snap_y", done, &code, &err));
    fake_send_done(&s->fake, fake_expect(&s->fake, WIRE_RESTORE), ENOENT);
    assert_int_equal(code, ENOENT);
    assert_int_equal(sandbox_layer_serial(sb), layers + 2);
    run(s, sb, &a);
}

/* An earlier server asked for them: others use the connection. */
static void test_answers_to_nobody(void **state) {
    struct side *s = *state;
    uint64_t jail;
    int code = -2;
    struct err err = {0};
    struct task a;
    struct sandbox *sb = make(s, &jail);
    struct wire_key key = {.head = {.type = WIRE_SNAPSHOT, .jail = jail}, .key = "snap_old"};
    struct wire_freeze freeze = {.head = {.type = WIRE_FREEZE, .jail = jail}, .frozen = 1};
    run(s, sb, &a);
    fake_send_done(&s->fake, &key.head, 0);
    /* Nobody has learnt its name. */
    fake_expect(&s->fake, WIRE_DROP);
    assert_string_equal(((const struct wire_key *)(const void *)s->fake.packet)->key, "snap_old");
    assert_non_null(sandbox_op_snapshot(sb, "snap_x", done, &code, &err));
    struct wire_key own =
        *(const struct wire_key *)(const void *)fake_expect(&s->fake, WIRE_SNAPSHOT);
    fake_send_done(&s->fake, &key.head, ENOENT);
    assert_int_equal(code, -2);
    fake_send_done(&s->fake, &own.head, 0);
    assert_int_equal(code, 0);
    fake_send_done(&s->fake, &freeze.head, 0);
    assert_int_equal(sandbox_state(sb), SANDBOX_PAUSED);
    assert_true(fake_quiet(&s->fake));
    assert_true(connected(s));
    assert_int_equal(a.lost, 0);
}

static void test_slow_answer(void **state) {
    struct side *s = *state;
    uint64_t jail;
    int code = -2, next = -2;
    struct err err = {0};
    struct task a;
    struct sandbox *sb = make(s, &jail);
    s->sandboxes.answer_ms = 20;
    run(s, sb, &a);
    assert_non_null(sandbox_op_snapshot(sb, "snap_x", done, &code, &err));
    struct wire_key slow =
        *(const struct wire_key *)(const void *)fake_expect(&s->fake, WIRE_SNAPSHOT);
    wait_for(s, &code, -2);
    assert_int_equal(code, ETIMEDOUT);
    assert_true(connected(s));
    assert_int_equal(a.lost, 0);
    /* What is asked for later is answered later. */
    s->sandboxes.answer_ms = 60000;
    assert_non_null(sandbox_op_snapshot(sb, "snap_y", done, &next, &err));
    struct wire_key later =
        *(const struct wire_key *)(const void *)fake_expect(&s->fake, WIRE_SNAPSHOT);
    uint64_t layers = sandbox_layer_serial(sb);
    fake_send_done(&s->fake, &slow.head, 0);
    assert_int_equal(sandbox_layer_serial(sb), layers + 1);
    assert_int_equal(code, ETIMEDOUT);
    assert_int_equal(next, -2);
    fake_expect(&s->fake, WIRE_DROP);
    fake_send_done(&s->fake, &later.head, 0);
    assert_int_equal(next, 0);
    assert_true(fake_quiet(&s->fake));
}

/* A restore that takes long keeps commands out until it is over. */
static void test_slow_restore(void **state) {
    struct side *s = *state;
    uint64_t jail;
    int code = -2;
    struct err err = {0};
    struct task a;
    struct sandbox *sb = make(s, &jail);
    s->sandboxes.answer_ms = 20;
    assert_non_null(sandbox_op_restore(sb, "snap_x", done, &code, &err));
    struct wire_key slow =
        *(const struct wire_key *)(const void *)fake_expect(&s->fake, WIRE_RESTORE);
    wait_for(s, &code, -2);
    assert_int_equal(code, ETIMEDOUT);
    unit_fails(start(sb, &a, true, &err), err, ERR_STATE);
    fake_send_done(&s->fake, &slow.head, 0);
    run(s, sb, &a);
    assert_true(connected(s));
}

/* Something in it does not die: nobody else's connection ends for that. */
static void test_cannot_be_ended(void **state) {
    struct side *s = *state;
    uint64_t jail, other;
    struct task a;
    struct waiter w = {.wait.fn = told};
    struct sandbox *sb = make(s, &jail);
    run(s, make(s, &other), &a);
    s->sandboxes.answer_ms = 20;
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    assert_false(sandbox_wait_closed(sb, &w.wait));
    assert_int_equal(fake_expect(&s->fake, WIRE_CLOSE)->jail, jail);
    wait_for(s, &w.told, 0);
    assert_int_equal(w.told, 1);
    assert_true(connected(s));
    assert_int_equal(a.lost, 0);
    fake_send_closed(&s->fake, jail); /* at last */
    assert_true(connected(s));
    assert_int_equal(w.told, 1);
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_pause_and_resume),  WITH_SHARD(test_restore),
        WITH_SHARD(test_answers_to_nobody), WITH_SHARD(test_slow_answer),
        WITH_SHARD(test_slow_restore),      WITH_SHARD(test_cannot_be_ended),
    };
    return cmocka_run_group_tests_name("sandbox_op", tests, NULL, NULL);
}
