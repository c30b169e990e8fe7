/* Every order of what can happen to a jail and two executions in it: requests, starts, exits,
 * time-outs, cancels, the death of process 1, CLOSE, a server that hangs up and one that comes
 * back. The session, its jails and executions are the real ones; the kernel is played by
 * fake_process1.h, the pool and the server by fake_session.h. Whatever the order: to each server at
 * most one END for each execution, and exactly one in all unless the jail failed, was closed or
 * died with its server; its cause is what came first; exactly one CLOSED; nothing is left. */
#include "fake_session.h"

#define DEPTH 6

enum event {
    EXEC_1,
    EXEC_2,
    START_1,
    EXIT_1,
    EXIT_2,
    KILL_1,
    KILL_2,
    TIMEOUT,
    DEATH,
    CLOSE,
    HANG_UP,
    RESTART,
    EVENTS
};

static unsigned sequences;

/* What happens. */

static void comes_first(unsigned i, enum cause cause) {
    if (w.exec[i].first == CAUSE_NONE)
        w.exec[i].first = cause;
}

/* Which execution a running child is: they start in the order in which they were asked for. */
static int number_of(const struct fake_child *c) {
    int n = 0;
    for (unsigned i = 0; i < fake.jail.children; i++) {
        const struct fake_child *one = &fake.jail.child[i];
        if (one == c)
            break;
        n += one->running;
    }
    /* Those that were cancelled before they ran never get a child. */
    for (int i = 0; i < EXECS; i++) {
        bool never = !w.exec[i].asked ||
                     (w.exec[i].first == CAUSE_CANCELLED && w.exec[i].cause == CAUSE_CANCELLED &&
                      w.exec[i].ends > 0 && fake_running(0) == c);
        if (never)
            continue;
        if (n-- == 0)
            return i;
    }
    return -1;
}

static bool possible(enum event e) {
    bool server = w.sock >= 0;
    switch (e) {
    case EXEC_1:
        return server && !w.closed_by_us && !w.exec[0].asked;
    case EXEC_2: /* in a run, one after the other */
        return server && !w.closed_by_us && !w.exec[1].asked && w.exec[0].asked &&
               (w.sandbox || w.exec[0].ends > 0);
    case START_1:
    case EXIT_1:
        return fake_running(0) != NULL;
    case EXIT_2:
        return fake_running(1) != NULL;
    case KILL_1:
    case KILL_2:
        return server && !w.closed_by_us && w.exec[e - KILL_1].asked;
    case TIMEOUT:
        return fake_running(0) != NULL;
    case DEATH:
        return !fake.jail.dead;
    case CLOSE:
        return server && !w.closed_by_us;
    case HANG_UP:
        return server && !w.hung_up;
    default:
        return !server && w.sandbox && !w.back;
    }
}

static void exits(unsigned nth) {
    struct fake_child *c = fake_running(nth);
    int i = number_of(c);
    fake_starts(c);
    if (i >= 0)
        comes_first((unsigned)i, CAUSE_EXIT);
    fake_ends(c, 0);
}

static void kills(uint32_t number) {
    struct wire_kill q;
    memset(&q, 0, sizeof(q));
    q.cause = CAUSE_CANCELLED;
    sends(&q, WIRE_KILL, sizeof(q), number);
    if (w.exec[number - 1].ends == 0)
        comes_first(number - 1, CAUSE_CANCELLED);
}

static void times_out(void) {
    struct fake_child *c;
    for (unsigned n = 0; (c = fake_running(n)) != NULL; n++)
        fake_starts(c);
    follows();
    for (int i = 0; i < EXECS; i++)
        if (w.exec[i].asked && w.exec[i].ends == 0)
            comes_first((unsigned)i, CAUSE_WALL_TIME);
    passes((WALL_MS + 1) * CLOCK_NS_PER_MS);
}

static void happens(enum event e) {
    struct wire_close q;
    fake.now_ns += CLOCK_NS_PER_MS;
    switch (e) {
    case EXEC_1:
    case EXEC_2:
        execs((uint32_t)(e - EXEC_1) + 1);
        break;
    case START_1:
        fake_starts(fake_running(0));
        break;
    case EXIT_1:
    case EXIT_2:
        exits((unsigned)(e - EXIT_1));
        break;
    case KILL_1:
    case KILL_2:
        kills((uint32_t)(e - KILL_1) + 1);
        break;
    case TIMEOUT:
        times_out();
        break;
    case DEATH:
        w.died = true;
        fake_dies();
        break;
    case CLOSE:
        memset(&q, 0, sizeof(q));
        w.closed_by_us = true;
        sends(&q, WIRE_CLOSE, sizeof(q), 0);
        break;
    case HANG_UP:
        w.hung_up = true;
        fd_close(&w.sock);
        break;
    default:
        w.back = true;
        connects();
        says_hello();
        adopts();
        break;
    }
    follows();
}
static const char *told(const enum event *order, size_t count) {
    static const char *const names[EVENTS] = {"exec 1", "exec 2",   "start",    "exit",
                                              "exit 2", "cancel 1", "cancel 2", "timeout",
                                              "death",  "close",    "hang-up",  "restart"};
    static char text[256];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s: ", w.sandbox ? "sandbox" : "run");
    for (size_t i = 0; i < count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s, ", names[order[i]]);
    return text;
}

/* Everything comes to its end: commands by their limit, the jail by CLOSE or for want of a server.
 */
static void ends(void) {
    for (int i = 0; i < EXECS + 1 && fake_running(0) != NULL; i++)
        times_out();
    passes(CLOCK_NS_PER_S);
}

static void goes(void) {
    if (w.sock >= 0 && !w.closed_by_us)
        happens(CLOSE);
    passes(2 * KEEP_NS);
    passes(CLOCK_NS_PER_S);
}

static void check_ends(const char *how) {
    bool whole =
        !w.died && w.failed == 0 && !w.closed_by_us && w.sock >= 0 && (w.sandbox || !w.hung_up);
    for (int i = 0; i < EXECS; i++) {
        const struct told *t = &w.exec[i];
        if (whole && t->asked && t->ends == 0)
            fail_msg("%s: execution %d has no END", how, i + 1);
        if (!w.hung_up && t->ends > 1)
            fail_msg("%s: execution %d has %u ENDs", how, i + 1, t->ends);
        if (t->ends > 0 && t->first != CAUSE_NONE && t->cause != t->first)
            fail_msg("%s: execution %d ended by %s, first was %s", how, i + 1, cause_name(t->cause),
                     cause_name(t->first));
    }
}

static void check_gone(const char *how) {
    if (w.failed > 1 || w.taken != w.released || w.hold.first != NULL)
        fail_msg("%s: %u FAILED, %u jails taken, %u given back", how, w.failed, w.taken,
                 w.released);
    if (w.sock >= 0 && w.closed != 1)
        fail_msg("%s: %u CLOSED", how, w.closed);
    if (fake.made != fake.gone)
        fail_msg("%s: %u groups made, %u removed", how, fake.made, fake.gone);
    assert_true(fake.jail.dead);
}

static unsigned descriptors(void) {
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static bool play(const enum event *order, size_t count, bool sandbox) {
    unsigned before = descriptors();
    bool can = true;
    begins(sandbox);
    for (size_t i = 0; i < count && can; i++) {
        can = possible(order[i]);
        if (can)
            happens(order[i]);
    }
    if (can) {
        ends();
        check_ends(told(order, count));
    }
    goes();
    if (can)
        check_gone(told(order, count));
    fd_close(&w.sock);
    follows();
    assert_int_equal(w.overs, w.sessions);
    fd_close(&fake.jail.control);
    fd_close(&fake.jail.death);
    if (descriptors() != before)
        fail_msg("%s: %u descriptors, %u before", told(order, count), descriptors(), before);
    return can;
}

static void orders(enum event *order, size_t count, size_t depth, bool sandbox) {
    if (count > 0 && !play(order, count, sandbox))
        return;
    sequences++;
    for (int e = 0; e < EVENTS && count < depth; e++) {
        order[count] = (enum event)e;
        orders(order, count + 1, depth, sandbox);
    }
}

static void test_every_order(void **state) {
    enum event order[DEPTH];
    struct err err = {0};
    bool sandbox = *(bool *)*state;
    sequences = 0;
    w.loop = loop_new(&err);
    assert_non_null(w.loop);
    orders(order, 0, DEPTH, sandbox);
    print_message("# %u orders\n", sequences);
    assert_true(sequences > 500);
    loop_free(w.loop);
}

int main(void) {
    static bool run = false, sandbox = true;
    const struct CMUnitTest tests[] = {
        {"every order in the jail of a run", test_every_order, NULL, NULL, &run},
        {"every order in a sandbox", test_every_order, NULL, NULL, &sandbox},
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
