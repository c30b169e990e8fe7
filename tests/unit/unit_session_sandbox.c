/* A sandbox and one server after the other. */
#include "fake_session.h"

static void hangs_up(void) {
    fd_close(&w.sock);
    follows();
}

static void comes_back(void) {
    connects();
    says_hello();
    adopts();
    follows();
}

/* A command has ended, and the server was told. */
static void begins_told(void) {
    struct err err = {0};
    w.loop = loop_new(&err);
    assert_non_null(w.loop);
    begins(true);
    execs(1);
    follows();
    struct fake_child *c = fake_running(0);
    assert_non_null(c);
    fake_starts(c);
    fake_ends(c, 0);
    follows();
    assert_int_equal(w.exec[0].ends, 1);
}

/* Nobody comes for it any more. */
static void finishes(void) {
    hangs_up();
    passes(2 * KEEP_NS);
    passes(CLOCK_NS_PER_S);
    assert_int_equal(w.taken, w.released);
    assert_int_equal(fake.made, fake.gone);
    assert_null(w.hold.first);
    fd_close(&fake.jail.control);
    fd_close(&fake.jail.death);
    loop_free(w.loop);
}

/* Long after the first, the second one dies in the middle of taking it over: the third hears all.
 */
static void test_death_while_adopting(void **state) {
    (void)state;
    begins_told();
    hangs_up();
    passes(3 * CLOCK_NS_PER_S);
    connects();
    says_hello();
    follows();
    adopts();
    hangs_up();
    assert_int_equal(w.overs, 2);
    comes_back();
    assert_int_equal(w.exec[0].here, 1);
    finishes();
}

static void looks(void) {
    struct wire_look q;
    memset(&q, 0, sizeof(q));
    q.what = WIRE_LOOK_JAILS;
    wire_head_init(&q.head, WIRE_LOOK, sizeof(q), 0, 0);
    assert_int_equal(fd_send(w.sock, &q, sizeof(q), NULL, 0, NULL), 0);
    passes(CLOCK_NS_PER_MS);
}

/* Looks are counted anew with each server, and what an earlier one saw is not seen yet. */
static void test_the_next_server_sees_all(void **state) {
    (void)state;
    begins_told();
    looks();
    assert_int_equal(w.seen, 1);
    hangs_up();
    comes_back();
    looks();
    assert_int_equal(w.seen, 1);
    finishes();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death_while_adopting),
        cmocka_unit_test(test_the_next_server_sees_all),
    };
    return cmocka_run_group_tests_name("session_sandbox", tests, NULL, NULL);
}
