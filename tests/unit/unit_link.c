#include "link.h"

#include <fcntl.h>

#include "fake_shard.h"

struct seen {
    int ready, down, slot_free, looked;
    char why[400];
    int ended, failed, lost;
    int opened, started, done, kept_exec, closed;
    uint32_t number;
    int fds[LINK_KEEP_FDS]; /* of the last KEPT_EXEC; owned */
    size_t kept, kept_snapshots;
};

static void on_ready(void *arg, struct link *l) {
    struct seen *s = arg;
    s->ready++;
    s->kept = l->kept.count;
    s->kept_snapshots = l->kept_snapshots.count;
}

static void on_down(void *arg, struct link *l, const struct err *why) {
    struct seen *s = arg;
    (void)l;
    s->down++;
    snprintf(s->why, sizeof(s->why), "%s", why->text);
}

static void on_slot_free(void *arg, struct link *l) {
    (void)l;
    ((struct seen *)arg)->slot_free++;
}

static void on_looked(void *arg, struct link *l) {
    (void)l;
    ((struct seen *)arg)->looked++;
}

static void on_ended(void *owner, const struct wire_end *end) {
    (void)end;
    ((struct seen *)owner)->ended++;
}

static void on_failed(void *owner, const struct wire_failed *failed) {
    (void)failed;
    ((struct seen *)owner)->failed++;
}

static void on_lost(void *owner) {
    ((struct seen *)owner)->lost++;
}

static void on_opened(void *owner) {
    ((struct seen *)owner)->opened++;
}

static void on_started(void *owner, uint32_t number, int master) {
    ((struct seen *)owner)->started++;
    ((struct seen *)owner)->number = number;
    assert_true(fcntl(master, F_GETFD) & FD_CLOEXEC);
    fd_close(&master);
}

static void on_done(void *owner, const struct wire_done *done) {
    (void)done;
    ((struct seen *)owner)->done++;
}

static void on_kept_exec(void *owner, const struct wire_kept_exec *kept,
                         const int fds[LINK_KEEP_FDS]) {
    struct seen *s = owner;
    s->kept_exec++;
    s->number = kept->head.exec;
    memcpy(s->fds, fds, sizeof(s->fds));
}

static void on_closed(void *arg, uint64_t cpu_ns) {
    assert_int_equal(cpu_ns, 5000);
    ((struct seen *)arg)->closed++;
}

static const struct link_jail_ops sandbox_ops = {.ended = on_ended,
                                                 .failed = on_failed,
                                                 .lost = on_lost,
                                                 .opened = on_opened,
                                                 .started = on_started,
                                                 .done = on_done,
                                                 .kept_exec = on_kept_exec};

static const struct link_jail_ops ops = {.ended = on_ended, .failed = on_failed, .lost = on_lost};

struct side {
    struct fake_shard fake;
    struct log log;
    struct link link;
    struct link_watch watch;
    struct seen seen;
};

static int setup(void **state) {
    struct side *t = calloc(1, sizeof(*t));
    struct err err = {0};
    assert_non_null(t);
    fake_start(&t->fake);
    log_init(&t->log, -1, LOG_ERROR, "unit");
    t->watch = (struct link_watch){.ready = on_ready,
                                   .down = on_down,
                                   .slot_free = on_slot_free,
                                   .looked = on_looked,
                                   .arg = &t->seen};
    link_init(&t->link, FAKE_SOCKET, t->fake.loop, &t->log, &t->watch);
    unit_works(link_connect(&t->link, &err), err);
    *state = t;
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    link_done(&t->link);
    fake_stop(&t->fake);
    free(t);
    return 0;
}

static struct link_jail *open_jail(struct side *t, uint64_t *id) {
    struct err err = {0};
    struct wire_open open;
    struct wire_exec exec;
    int out = dup(0);
    memset(&open, 0, sizeof(open));
    memset(&exec, 0, sizeof(exec));
    snprintf(open.policy, sizeof(open.policy), "default");
    snprintf(open.image, sizeof(open.image), "host");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        open.limits.v[i] = limit_info((enum limit_id)i)->min;
        exec.limits.v[i] = open.limits.v[i];
    }
    exec.fds = WIRE_FD_STDOUT;
    exec.spec_size = 40;
    char spec[40] = {0};
    struct link_jail *j = link_open_jail(&t->link, &ops, &t->seen);
    assert_non_null(j);
    struct link_exec x = {.open = &open, .exec = &exec, .spec = spec, .fds = &out, .fd_count = 1};
    unit_works(link_exec(j, &x, &err), err);
    fd_close(&out);
    *id = fake_expect(&t->fake, WIRE_OPEN)->jail;
    assert_int_equal(fake_expect(&t->fake, WIRE_EXEC)->jail, *id);
    assert_int_equal(t->fake.fd_count, 1);
    return j;
}

/* A look: kinds and jails, the rate between two, and what is not there any more. */
static void test_look(void **state) {
    struct side *t = *state;
    uint64_t a;
    struct wire_kind kind;
    struct wire_seen seen;
    struct wire_looked looked;
    struct link_sight sight;
    fake_greet(&t->fake, 2);
    const struct link_jail *j = open_jail(t, &a);
    memset(&kind, 0, sizeof(kind));
    memset(&seen, 0, sizeof(seen));
    memset(&looked, 0, sizeof(looked));
    memcpy(kind.policy, "default", 8);
    memcpy(kind.image, "host", 5);
    kind.warm = 3;
    seen.cpu_ns = 1000;
    seen.mem_bytes = 4096;
    assert_false(link_seen(j, &sight));
    link_look(&t->link, WIRE_LOOK_KINDS);
    link_look(&t->link, WIRE_LOOK_ALL); /* the jails are asked for when that is answered */
    assert_int_equal(
        ((const struct wire_look *)(const void *)fake_expect(&t->fake, WIRE_LOOK))->what,
        WIRE_LOOK_KINDS);
    assert_true(fake_quiet(&t->fake));
    fake_send(&t->fake, &kind, sizeof(kind), WIRE_KIND, 0, 0);
    fake_send(&t->fake, &looked, sizeof(looked), WIRE_LOOKED, 0, 0);
    assert_int_equal(t->link.look.kinds.count, 1);
    assert_int_equal(t->link.look.kinds.items[0].warm, 3);
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            link_look(&t->link, WIRE_LOOK_JAILS);
        assert_int_equal(
            ((const struct wire_look *)(const void *)fake_expect(&t->fake, WIRE_LOOK))->what,
            WIRE_LOOK_JAILS);
        if (i < 2)
            fake_send(&t->fake, &seen, sizeof(seen), WIRE_SEEN, a, 0);
        fake_send(&t->fake, &looked, sizeof(looked), WIRE_LOOKED, 0, 0);
        seen.cpu_ns += 1000000000u; /* more than there is time for */
        assert_int_equal(link_seen(j, &sight), i < 2);
        if (i == 0)
            assert_int_equal(sight.cpus_milli, UINT32_MAX);
        if (i == 1)
            assert_in_range(sight.cpus_milli, 1000, UINT32_MAX - 1);
    }
    assert_int_equal(t->seen.looked, 4);
    /* What nobody asked for ends the connection. */
    fake_send(&t->fake, &looked, sizeof(looked), WIRE_LOOKED, 0, 0);
    assert_int_equal(t->link.state, LINK_CLOSED);
}

static void test_greeting(void **state) {
    struct side *t = *state;
    assert_false(link_has_room(&t->link));
    fake_greet(&t->fake, 2);
    assert_int_equal(t->seen.ready, 1);
    assert_int_equal(t->link.state, LINK_READY);
    assert_true(link_has_room(&t->link));
    assert_non_null(link_policy(&t->link, "default"));
    assert_null(link_policy(&t->link, "other"));
    assert_string_equal(link_policy(&t->link, "default")->text, "{}");
    fd_close(&t->fake.fd);
    fake_turn(&t->fake);
    assert_int_equal(t->seen.down, 1);
    assert_int_equal(t->link.state, LINK_CLOSED);
}

/* What image "host" is, the shard says once; each of its policies knows. */
static void test_greeting_of_an_engine(void **state) {
    struct side *t = *state;
    struct wire_welcome w;
    memset(&w, 0, sizeof(w));
    w.slots = w.sandboxes = w.policies = w.execs = 1;
    w.backend = BACKEND_DOCKER;
    memset(w.host_sha256, 7, sizeof(w.host_sha256));
    fake_accept(&t->fake);
    fake_expect(&t->fake, WIRE_HELLO);
    fake_send(&t->fake, &w, sizeof(w), WIRE_WELCOME, 0, 0);
    fake_send_policy(&t->fake, "default");
    fake_send_ready(&t->fake);
    const struct link_policy *policy = link_policy(&t->link, "default");
    assert_non_null(policy);
    assert_int_equal(policy->backend, BACKEND_DOCKER);
    assert_memory_equal(policy->host_sha256, w.host_sha256, sizeof(w.host_sha256));
}

static void test_jail(void **state) {
    struct side *t = *state;
    uint64_t a, b;
    fake_greet(&t->fake, 2);
    struct link_jail *one = open_jail(t, &a);
    struct link_jail *two = open_jail(t, &b);
    assert_true(a != b);
    assert_false(link_has_room(&t->link));
    assert_null(link_open_jail(&t->link, &ops, &t->seen));
    fake_send_end(&t->fake, a, 0, CAUSE_EXIT, 0);
    assert_int_equal(t->seen.ended, 1);
    link_kill(two, 0, CAUSE_CANCELLED);
    const struct wire_kill *kill =
        (const struct wire_kill *)(const void *)fake_expect(&t->fake, WIRE_KILL);
    assert_int_equal(kill->head.jail, b);
    assert_int_equal(kill->cause, CAUSE_CANCELLED);
    link_close_jail(one);
    assert_int_equal(fake_expect(&t->fake, WIRE_CLOSE)->jail, a);
    assert_false(link_has_room(&t->link));
    fake_send_closed(&t->fake, a);
    assert_int_equal(t->seen.slot_free, 1);
    assert_true(link_has_room(&t->link));
    /* What comes late of a closed jail is not told to anybody. */
    link_close_jail(two);
    assert_int_equal(fake_expect(&t->fake, WIRE_CLOSE)->jail, b);
    fake_send_end(&t->fake, b, 0, CAUSE_CANCELLED, 0);
    assert_int_equal(t->seen.ended, 1);
    /* A number is never used again. */
    uint64_t c;
    open_jail(t, &c);
    assert_true(c != a && c != b);
    fd_close(&t->fake.fd);
    fake_turn(&t->fake);
    assert_int_equal(t->seen.lost, 1);
}

static void test_abandon(void **state) {
    struct side *t = *state;
    fake_greet(&t->fake, 1);
    struct link_jail *j = link_open_jail(&t->link, &ops, &t->seen);
    assert_false(link_has_room(&t->link));
    link_abandon(j);
    assert_true(link_has_room(&t->link));
    assert_true(fake_quiet(&t->fake));
}

static void test_failed(void **state) {
    struct side *t = *state;
    uint64_t id;
    fake_greet(&t->fake, 1);
    open_jail(t, &id);
    fake_send_failed(&t->fake, id);
    assert_int_equal(t->seen.failed, 1);
    fake_send_closed(&t->fake, id);
    assert_true(link_has_room(&t->link));
}

/* It died by itself in the same moment: there is no CLOSE to send any more. */
static void test_closed_before_close(void **state) {
    struct side *t = *state;
    uint64_t id;
    fake_greet(&t->fake, 1);
    link_close_jail(open_jail(t, &id));
    fake_send_closed(&t->fake, id);
    assert_int_equal(t->link.state, LINK_READY);
    assert_true(link_has_room(&t->link));
    assert_true(fake_quiet(&t->fake));
}

static struct link_jail *open_sandbox(struct side *t, uint64_t *id) {
    struct err err = {0};
    struct wire_open open;
    memset(&open, 0, sizeof(open));
    snprintf(open.policy, sizeof(open.policy), "default");
    snprintf(open.image, sizeof(open.image), "host");
    snprintf(open.key, sizeof(open.key), "sb_1");
    open.flags = WIRE_OPEN_SANDBOX;
    for (int i = 0; i < LIMIT_COUNT; i++)
        open.limits.v[i] = limit_info((enum limit_id)i)->min;
    struct link_jail *j = link_open_sandbox(&t->link, &sandbox_ops, &t->seen);
    assert_non_null(j);
    unit_works(link_open(j, &open, &err), err);
    *id = fake_expect(&t->fake, WIRE_OPEN)->jail;
    return j;
}

static size_t open_files(void) {
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_sandbox(void **state) {
    struct side *t = *state;
    uint64_t id, run;
    fake_greet(&t->fake, 1);
    struct link_jail *j = open_sandbox(t, &id);
    assert_false(link_has_sandbox_room(&t->link));
    assert_null(link_open_sandbox(&t->link, &sandbox_ops, &t->seen));
    /* Runs have places of their own. */
    assert_true(link_has_room(&t->link));
    open_jail(t, &run);
    assert_true(run != id);
    fake_send_opened(&t->fake, id);
    assert_int_equal(t->seen.opened, 1);
    link_freeze(j, true);
    fake_send_done(&t->fake, fake_expect(&t->fake, WIRE_FREEZE), 0);
    link_snapshot(j, "snap_1");
    fake_send_done(&t->fake, fake_expect(&t->fake, WIRE_SNAPSHOT), 5);
    link_restore(j, "snap_1");
    fake_send_done(&t->fake, fake_expect(&t->fake, WIRE_RESTORE), 0);
    assert_int_equal(t->seen.done, 3);
    link_signal(j, 7, 2);
    assert_int_equal(fake_expect(&t->fake, WIRE_SIGNAL)->exec, 7);
    link_drop_snapshot(&t->link, "snap_1");
    assert_int_equal(fake_expect(&t->fake, WIRE_DROP)->jail, 0);
    link_close_then(j, on_closed, &t->seen);
    fake_expect(&t->fake, WIRE_CLOSE);
    assert_int_equal(t->seen.closed, 0);
    fake_send_closed(&t->fake, id);
    assert_int_equal(t->seen.closed, 1);
    assert_true(link_has_sandbox_room(&t->link));
}

/* Several packets in one read, those with descriptors between others: each gets its own, and none
 * is left open when nobody listens. */
static void test_descriptors(void **state) {
    struct side *t = *state;
    uint64_t id;
    fake_greet(&t->fake, 1);
    struct link_jail *j = open_sandbox(t, &id);
    fake_send_opened(&t->fake, id);
    size_t before = open_files();
    int fds[] = {dup(0), dup(1), dup(2), dup(0)};
    fake_send_started(&t->fake, id, 3, fds[0]);
    assert_int_equal(t->seen.started, 1);
    assert_int_equal(t->seen.number, 3);
    fake_send_kept_exec(&t->fake, id, 4, fds, LINK_KEEP_FDS);
    assert_int_equal(t->seen.kept_exec, 1);
    for (size_t i = 0; i < LINK_KEEP_FDS; i++) {
        assert_true(fcntl(t->seen.fds[i], F_GETFD) & FD_CLOEXEC);
        fd_close(&t->seen.fds[i]);
    }
    fake_send_kept_exec(&t->fake, id, 5, fds, 1);
    assert_int_equal(t->seen.fds[0], -1);
    assert_true(t->seen.fds[1] >= 0);
    assert_int_equal(t->seen.fds[2], -1);
    assert_int_equal(t->seen.fds[3], -1);
    fd_close(&t->seen.fds[1]);
    link_close_jail(j);
    fake_expect(&t->fake, WIRE_CLOSE);
    fake_send_started(&t->fake, id, 6, fds[0]);
    fake_send_kept_exec(&t->fake, id, 7, fds, 3);
    fake_send_closed(&t->fake, id);
    assert_int_equal(t->seen.started, 1);
    assert_int_equal(t->link.state, LINK_READY);
    for (size_t i = 0; i < LINK_KEEP_FDS; i++)
        fd_close(&fds[i]);
    assert_int_equal(open_files(), before);
}

/* More descriptors than a packet may have: the connection ends and none of them stays open. */
static void test_too_many_descriptors(void **state) {
    struct side *t = *state;
    uint64_t id;
    struct wire_started started;
    struct wire_end end;
    struct err err = {0};
    fake_greet(&t->fake, 1);
    open_sandbox(t, &id);
    size_t before = open_files();
    int fds[6];
    for (size_t i = 0; i < 6; i++)
        fds[i] = dup(0);
    memset(&started, 0, sizeof(started));
    wire_head_init(&started.head, WIRE_STARTED, sizeof(started), id, 1);
    unit_works(fd_send(t->fake.fd, &started, sizeof(started), fds, 6, &err), err);
    memset(&end, 0, sizeof(end));
    wire_head_init(&end.head, WIRE_END, sizeof(end), id, 1);
    unit_works(fd_send(t->fake.fd, &end, sizeof(end), fds, 2, &err), err);
    fake_turn(&t->fake);
    assert_int_equal(t->seen.lost, 1);
    for (size_t i = 0; i < 6; i++)
        fd_close(&fds[i]);
    assert_int_equal(open_files(), before - 1); /* the connection's own */
}

static void test_kept(void **state) {
    struct side *t = *state;
    fake_accept(&t->fake);
    fake_expect(&t->fake, WIRE_HELLO);
    fake_send_welcome(&t->fake, 2, 1);
    fake_send_policy(&t->fake, "default");
    fake_send_kept(&t->fake, WIRE_KEPT, "sb_1");
    fake_send_kept(&t->fake, WIRE_KEPT_SNAPSHOT, "snap_1");
    fake_send_kept(&t->fake, WIRE_KEPT, "sb_2");
    fake_send_ready(&t->fake);
    assert_int_equal(t->seen.kept, 2);
    assert_int_equal(t->seen.kept_snapshots, 1);
    assert_int_equal(t->link.kept.count, 0);
    struct link_jail *j = link_open_sandbox(&t->link, &sandbox_ops, &t->seen);
    link_adopt(j, "sb_1");
    const struct wire_head *adopt = fake_expect(&t->fake, WIRE_ADOPT);
    fake_send_done(&t->fake, adopt, 0);
    assert_int_equal(t->seen.done, 1);
}

/* Each of these ends the connection. */
enum wrong {
    WRONG_READY_FIRST,
    WRONG_END_FIRST,
    WRONG_TWO_WELCOMES,
    WRONG_NO_SLOTS,
    WRONG_TOO_MANY_POLICIES,
    WRONG_NO_DEFAULT,
    WRONG_TOO_MANY_KEPT,
    WRONG_LATE_POLICY,
    WRONG_UNKNOWN_JAIL,
    WRONG_CLOSED_IN_USE,
    WRONG_REQUEST,
    WRONG_SHORT,
    WRONG_LONG,
    WRONG_LATE_KEPT,
    WRONG_OPENED_RUN,
    WRONG_STARTED_RUN,
    WRONG_KEPT_EXEC_RUN,
    WRONG_COUNT
};

static void send_wrong_early(struct fake_shard *f, int what) {
    fake_accept(f);
    fake_expect(f, WIRE_HELLO);
    if (what == WRONG_READY_FIRST)
        fake_send_ready(f);
    if (what == WRONG_END_FIRST)
        fake_send_end(f, 1, 0, CAUSE_EXIT, 0);
    if (what == WRONG_TWO_WELCOMES) {
        fake_send_welcome(f, 1, 1);
        fake_send_welcome(f, 1, 1);
    }
    if (what == WRONG_NO_SLOTS)
        fake_send_welcome(f, 0, 1);
    if (what == WRONG_TOO_MANY_POLICIES) {
        fake_send_welcome(f, 1, 1);
        fake_send_policy(f, "default");
        fake_send_policy(f, "more");
    }
    if (what == WRONG_TOO_MANY_KEPT) {
        fake_send_welcome(f, 1, 1);
        fake_send_kept(f, WIRE_KEPT, "sb_1");
        fake_send_kept(f, WIRE_KEPT, "sb_2");
    }
    if (what == WRONG_NO_DEFAULT) {
        fake_send_welcome(f, 1, 1);
        fake_send_policy(f, "other");
        fake_send_ready(f);
    }
}

static void send_wrong_late(struct side *t, int what) {
    struct fake_shard *f = &t->fake;
    struct err err = {0};
    uint64_t id;
    char bytes[4096] = {0};
    struct wire_hello hello = {0};
    fake_greet(f, 1);
    open_jail(t, &id);
    if (what == WRONG_LATE_POLICY)
        fake_send_policy(f, "late");
    if (what == WRONG_UNKNOWN_JAIL)
        fake_send_end(f, id + 1, 0, CAUSE_EXIT, 0);
    if (what == WRONG_CLOSED_IN_USE)
        fake_send_closed(f, id);
    if (what == WRONG_REQUEST)
        fake_send(f, &hello, sizeof(hello), WIRE_HELLO, 0, 0);
    if (what == WRONG_SHORT)
        unit_works(fd_send(f->fd, bytes, 3, NULL, 0, &err), err);
    if (what == WRONG_LONG)
        unit_works(fd_send(f->fd, bytes, sizeof(bytes), NULL, 0, &err), err);
    if (what == WRONG_LATE_KEPT)
        fake_send_kept(f, WIRE_KEPT, "sb_1");
    if (what == WRONG_OPENED_RUN)
        fake_send_opened(f, id);
    if (what == WRONG_STARTED_RUN)
        fake_send_started(f, id, 0, 0);
    if (what == WRONG_KEPT_EXEC_RUN)
        fake_send_kept_exec(f, id, 0, NULL, 0);
    fake_turn(f);
    assert_int_equal(t->seen.lost, 1);
}

static void test_wrong(void **state) {
    (void)state;
    for (int what = 0; what < WRONG_COUNT; what++) {
        void *side = NULL;
        setup(&side);
        struct side *t = side;
        if (what < WRONG_LATE_POLICY)
            send_wrong_early(&t->fake, what);
        else
            send_wrong_late(t, what);
        if (t->seen.down != 1 || t->link.state != LINK_CLOSED || t->seen.why[0] == '\0')
            fail_msg("case %d: %s", what, t->seen.why);
        teardown(&side);
    }
}

/* A shard that does not read: packets wait here, in order, and nothing blocks. */
static void test_slow_shard(void **state) {
    struct side *t = *state;
    uint64_t id;
    fake_greet(&t->fake, 1);
    struct link_jail *j = open_jail(t, &id);
    int sent = 0;
    while (t->link.out_count < 50 && sent++ < 100000)
        link_kill(j, (uint32_t)sent, CAUSE_CANCELLED);
    assert_int_equal(t->link.out_count, 50);
    assert_false(link_has_room(&t->link));
    for (int i = 0; i < sent; i++)
        assert_int_equal(fake_expect(&t->fake, WIRE_KILL)->exec, 1 + i);
    assert_int_equal(t->link.out_count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_look, setup, teardown),
        cmocka_unit_test_setup_teardown(test_greeting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_greeting_of_an_engine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_abandon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed_before_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(test_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test_setup_teardown(test_slow_shard, setup, teardown),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
