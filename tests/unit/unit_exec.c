/* Every order of what can happen to an execution: it starts, is refused, exits, crashes, is killed
 * by the kernel for its memory or by the filter, its wall-clock or CPU time is over, it is
 * cancelled, its client hangs up, its jail is frozen and let go, its parent reports it, its
 * stragglers go. exec.c and end.c are the real ones; cgroups, the clock and the processes are
 * played here. Whatever the order: one end, by the cause that came first, with its evidence, and
 * nothing is armed or open afterwards. */
#include "exec.h"

#include <sys/eventfd.h>

#include "fake_exec.h"

#define DEPTH 6

enum event {
    STARTED,
    REFUSED,
    EXITS,
    CRASHES,
    OOM,
    FILTERED,
    WALL,
    CPU,
    CANCELLED,
    LOST_CLIENT,
    FREEZE,
    THAW,
    REPORT,
    STRAGGLERS_GO,
    EVENTS
};

/* enum exec_state before, event, enum exec_state after. */
static bool seen[EXEC_OVER + 1][EVENTS][EXEC_OVER + 1];
static unsigned sequences, transitions;

/* Playing. */

static void begin(bool stragglers) {
    struct exec_request q = {.number = 7};
    struct err err = {0};
    struct loop *loop = w.host.loop;
    int pair[2];
    memset(&w, 0, sizeof(w));
    w.now_ns = 1000 * MS;
    w.host = (struct jail_host){.loop = loop, .cgroups = &w.cgroups, .cpus = 2};
    w.cgroups.pids_peak = true;
    w.jail.host = &w.host;
    w.jail.control = -1;
    w.alive = true;
    w.stragglers = stragglers;
    w.peak = MEM / 2;
    q.limits.v[LIMIT_WALL_MS] = WALL_MS;
    q.limits.v[LIMIT_CPU_MS] = CPU_MS;
    q.limits.v[LIMIT_MEM_BYTES] = MEM;
    q.received_ns = w.now_ns;
    w.jail.limits = q.limits;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                     0);
    w.x = exec_new(&w.jail, 0, &err);
    assert_non_null(w.x);
    w.x->sock = pair[0];
    w.child = pair[1];
    w.x->state = EXEC_READY;
    w.x->outside_pid = -1; /* nobody's: no descriptor of a process is needed */
    unit_works(exec_start(w.x, &q, &err), err);
}

static void say(uint32_t type) {
    const struct initmsg_report r = {
        .type = type, .mono_ns = w.now_ns, .code = ENOENT, .stage = "exec", .path = "/no"};
    assert_int_equal(fd_send(w.child, &r, sizeof(r), NULL, 0, NULL), 0);
}

static void fire(struct loop_timer *t) {
    void (*fn)(void *) = t->fn;
    assert_true(t->slot != 0);
    if (w.now_ns < t->due_ns)
        w.now_ns = t->due_ns;
    loop_timer_stop(w.host.loop, t);
    fn(t->arg);
}

static void imposed(enum cause cause) {
    bool first = w.first == CAUSE_NONE;
    exec_stop(w.x, cause);
    if (first)
        w.first = cause; /* before what it killed */
}

static void wall_is_over(void) {
    uint64_t due = w.start_ns + w.frozen_ns + WALL_MS * MS;
    if (w.now_ns < due)
        w.now_ns = due;
    bool first = w.first == CAUSE_NONE;
    for (int i = 0; i < 3 && w.x->wall_timer.slot != 0; i++)
        fire(&w.x->wall_timer);
    if (first)
        w.first = CAUSE_WALL_TIME;
}

static void cpu_is_over(void) {
    bool first = w.first == CAUSE_NONE;
    w.cpu_ns = (CPU_MS + 1) * MS;
    fire(&w.x->cpu_timer);
    if (first)
        w.first = CAUSE_CPU_TIME;
}

static void freeze(bool on) {
    struct err err = {0};
    unit_works(exec_freeze(w.x, on, &err), err);
    if (on)
        w.frozen_since_ns = w.now_ns;
    else
        w.frozen_ns += w.now_ns - w.frozen_since_ns;
}

static bool goes(void) {
    return w.alive && w.started && !w.frozen;
}

/* Can it happen now? */
static bool possible(enum event e) {
    switch (e) {
    case STARTED:
    case REFUSED:
        return w.alive && !w.started && !w.refused && !w.frozen;
    case EXITS:
    case CRASHES:
    case OOM:
    case FILTERED:
        return goes();
    case WALL:
        return goes() && w.x->wall_timer.slot != 0;
    case CPU:
        return goes() && w.x->cpu_timer.slot != 0;
    case CANCELLED:
    case LOST_CLIENT:
        return w.ends == 0;
    case FREEZE:
        return !w.frozen && w.ends == 0;
    case THAW:
        return w.frozen && w.ends == 0;
    case REPORT:
        return !w.alive && !w.reported;
    case STRAGGLERS_GO:
        return w.stragglers && !w.frozen;
    default:
        return false;
    }
}

static void happens(enum event e) {
    w.now_ns += MS / 2;
    switch (e) {
    case STARTED:
        w.started = true;
        w.start_ns = w.now_ns;
        say(INITMSG_STARTED);
        break;
    case REFUSED:
        w.refused = true;
        say(INITMSG_REFUSED);
        dies(127 << 8, CAUSE_START);
        break;
    case EXITS:
        dies(3 << 8, CAUSE_EXIT);
        break;
    case CRASHES:
        dies(SIGSEGV, CAUSE_SIGNAL);
        break;
    case OOM:
        w.oom_kills = 1;
        w.peak = MEM;
        dies(SIGKILL, CAUSE_MEMORY);
        break;
    case FILTERED:
        exec_filtered(w.x, w.x->outside_pid, 101, 0xc000003e);
        dies(SIGSYS, CAUSE_SYSCALL);
        break;
    case WALL:
        wall_is_over();
        break;
    case CPU:
        cpu_is_over();
        break;
    case CANCELLED:
        imposed(CAUSE_CANCELLED);
        break;
    case LOST_CLIENT:
        imposed(CAUSE_LOST_CLIENT);
        break;
    case FREEZE:
    case THAW:
        freeze(e == FREEZE);
        break;
    case REPORT:
        w.reported = true;
        exec_exited(w.x, w.status, w.died_ns);
        break;
    default:
        w.stragglers = false;
        break;
    }
}

/* Everything that is certain to come, comes. */
static void settle(void) {
    if (w.frozen && w.ends == 0)
        freeze(false);
    if (w.alive && !w.started)
        happens(STARTED);
    if (w.alive)
        wall_is_over();
    if (!w.reported)
        happens(REPORT);
    for (int i = 0; i < 200 && w.ends == 0; i++)
        fire(&w.x->drain_timer);
}

static const char *told(const enum event *order, size_t count) {
    static const char *const names[EVENTS] = {
        "started", "refused", "exits",       "crashes", "oom",  "filtered", "wall",
        "cpu",     "cancel",  "lost client", "freeze",  "thaw", "report",   "stragglers go"};
    static char text[256];
    size_t len = 0;
    for (size_t i = 0; i < count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s, ", names[order[i]]);
    return text;
}

static void evidence(const char *how) {
    const struct wire_end *end = &w.end;
    switch (end->cause) {
    case CAUSE_EXIT:
        assert_int_equal(end->exit_code, 3);
        break;
    case CAUSE_SIGNAL:
        assert_int_equal(end->signal, SIGSEGV);
        break;
    case CAUSE_MEMORY:
        assert_int_equal(end->signal, SIGKILL);
        assert_int_equal(end->usage.oom_kills, 1);
        assert_true(end->limit == MEM && end->observed == MEM);
        break;
    case CAUSE_SYSCALL:
        assert_int_equal(end->syscall_nr, 101);
        break;
    case CAUSE_WALL_TIME:
        if (end->limit != WALL_MS || end->observed < WALL_MS)
            fail_msg("%s: %u ms of %u", how, (unsigned)end->observed, (unsigned)end->limit);
        break;
    case CAUSE_CPU_TIME:
        assert_true(end->limit == CPU_MS && end->observed >= CPU_MS);
        break;
    case CAUSE_START:
        assert_int_equal(end->code, ENOENT);
        assert_string_equal(end->path, "/no");
        break;
    default:
        assert_true(end->limit == 0);
        break;
    }
    assert_true(end->cause == CAUSE_EXIT || end->exit_code == -1);
}

/* Plays an order from the beginning -> false when it cannot happen. */
static bool play(const enum event *order, size_t count, bool stragglers) {
    struct err err = {0};
    bool can = true;
    begin(stragglers);
    for (size_t i = 0; i < count && can; i++) {
        enum exec_state before = w.x->state;
        can = possible(order[i]);
        if (!can)
            break;
        happens(order[i]);
        bool *one = &seen[before][order[i]][w.x->state];
        transitions += !*one;
        *one = true;
        if (w.ends > 0)
            assert_int_equal(w.x->state, EXEC_OVER);
    }
    if (can) {
        settle();
        if (w.ends != 1 || w.fails != 0 || w.end.cause != w.first)
            fail_msg("%s%s: %u ends, %u failures, cause %s, first was %s", told(order, count),
                     stragglers ? "with stragglers" : "", w.ends, w.fails, cause_name(w.end.cause),
                     cause_name(w.first));
        assert_int_equal(w.end.head.exec, 7);
        assert_false(w.alive || w.stragglers);
        evidence(told(order, count));
        unsigned kills = w.kills;
        exec_stop(w.x, CAUSE_CANCELLED); /* too late for anything: its group may be gone */
        assert_int_equal(w.ends, 1);
        assert_int_equal(w.kills, kills);
    }
    exec_close(w.x);
    const struct loop_timer *timers[] = {&w.x->wall_timer, &w.x->cpu_timer, &w.x->watch_timer,
                                         &w.x->drain_timer, &w.x->signal_timer};
    for (size_t i = 0; i < UNIT_COUNT(timers); i++)
        assert_true(timers[i]->slot == 0);
    assert_true(w.x->sock == -1 && w.x->pidfd == -1);
    unit_works(exec_remove(w.x, &err), err);
    exec_free(w.x);
    close(w.child);
    return can;
}

static void orders(enum event *order, size_t count, size_t depth, bool stragglers) {
    if (count > 0 && !play(order, count, stragglers))
        return;
    sequences++;
    for (int e = 0; e < EVENTS && count < depth; e++) {
        order[count] = (enum event)e;
        orders(order, count + 1, depth, stragglers);
    }
}

static unsigned explored(size_t depth) {
    enum event order[DEPTH];
    orders(order, 0, depth, false);
    orders(order, 0, depth, true);
    return transitions;
}

static void test_every_order(void **state) {
    (void)state;
    struct err err = {0};
    w.host.loop = loop_new(&err);
    assert_non_null(w.host.loop);
    unsigned before = explored(DEPTH - 1);
    /* Deep enough: one event more leads nowhere that was not seen. */
    assert_int_equal(explored(DEPTH), before);
    print_message("# %u orders, %u transitions\n", sequences, transitions);
    assert_true(sequences > 10000 && transitions >= 20);
    loop_free(w.host.loop);
}

static void gives(int fd) {
    const struct initmsg_report r = {.type = INITMSG_TERMINAL};
    assert_int_equal(fd_send(w.child, &r, sizeof(r), &fd, 1, NULL), 0);
    fire(&w.x->wall_timer);
    fd_close(&fd);
}

/* Who has taken process 1 over can say what it likes on a child's socket. */
static void test_a_hostile_child_gives_no_other_descriptor_and_holds_nobody_up(void **state) {
    (void)state;
    struct err err = {0};
    char byte;
    w.host.loop = loop_new(&err);
    assert_non_null(w.host.loop);
    begin(false);
    w.typing = w.x->terminal = true;
    gives(eventfd(0, EFD_CLOEXEC));
    gives(open("/dev/null", O_RDWR | O_CLOEXEC));
    gives(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    assert_int_equal(w.terminals, 0);
    gives(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
    assert_int_equal(w.terminals, 1);
    gives(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
    assert_int_equal(w.terminals, 1);
    const struct initmsg_report r = {.type = INITMSG_HELLO};
    while (fd_send(w.child, &r, sizeof(r), NULL, 0, NULL) == 0) {
    }
    fire(&w.x->wall_timer);
    assert_true(recv(w.x->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0);
    exec_close(w.x);
    exec_free(w.x);
    fd_close(&w.child);
    loop_free(w.host.loop);
    memset(&w, 0, sizeof(w));
}

static enum cause reported_early(unsigned deaths) {
    begin(false);
    w.started = true;
    w.start_ns = w.now_ns;
    say(INITMSG_STARTED);
    /* In place of a descriptor of the process, which is readable once that is dead. */
    w.x->pidfd = eventfd(deaths, EFD_CLOEXEC);
    assert_true(w.x->pidfd >= 0);
    wall_is_over();
    w.stragglers = false;
    exec_exited(w.x, 0, w.start_ns + MS);
    for (int i = 0; i < 200 && w.ends == 0; i++)
        fire(&w.x->drain_timer);
    assert_int_equal(w.ends, 1);
    exec_close(w.x);
    exec_free(w.x);
    fd_close(&w.child);
    return w.end.cause;
}

/* Process 1 tells when a command has ended, and who has taken it over tells what he likes; but not
 * that it ended before a moment when it was seen alive. */
static void test_what_was_alive_at_its_limit_did_not_end_before(void **state) {
    (void)state;
    struct err err = {0};
    w.host.loop = loop_new(&err);
    assert_non_null(w.host.loop);
    assert_int_equal(reported_early(0), CAUSE_WALL_TIME);
    assert_int_equal(reported_early(1), CAUSE_EXIT);
    loop_free(w.host.loop);
    memset(&w, 0, sizeof(w));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_alive_at_its_limit_did_not_end_before),
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_a_hostile_child_gives_no_other_descriptor_and_holds_nobody_up),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
