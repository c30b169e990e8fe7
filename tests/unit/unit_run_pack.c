/* Runs whose files and stdin are large: a worker copies them before anything is sent. The test
 * keeps the worker busy for as long as it likes. */
#include "run.h"

#include <semaphore.h>

#include "admit.h"
#include "buf.h"
#include "fake_shard.h"
#include "packet.h"
#include "runs.h"
#include "work.h"

struct side {
    struct fake_shard fake;
    struct log log;
    struct links links;
    struct metrics metrics;
    struct runs runs;
    struct work *work;
    struct work_job busy;
    sem_t go;
};

static struct side *side_of;

static void room(void *arg) {
    runs_room(arg);
}

static int setup(void **state) {
    const struct runs_options options = {.queue_count = 4,
                                         .queue_bytes = 64 << 20,
                                         .keep_count = 3,
                                         .keep_bytes = 64 << 20,
                                         .active_max = 100};
    struct err err = {0};
    struct side *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    fake_start(&t->fake);
    log_init(&t->log, -1, LOG_ERROR, "unit");
    runs_init(&t->runs, t->fake.loop, &t->log, &t->links, &t->metrics, &options);
    struct links_watch watch = {.room = room, .arg = &t->runs};
    links_start(&t->links, t->fake.loop, &t->log, &watch);
    fake_greet(&t->fake, 2);
    t->work = work_new(t->fake.loop, 1, &err);
    assert_non_null(t->work);
    t->runs.work = t->work;
    sem_init(&t->go, 0, 0);
    *state = side_of = t;
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    work_free(t->work);
    t->runs.work = NULL;
    runs_done(&t->runs);
    links_stop(&t->links);
    fake_stop(&t->fake);
    sem_destroy(&t->go);
    free(t);
    return 0;
}

static void wait_for_go(struct work_job *job) {
    (void)job;
    sem_wait(&side_of->go);
}

static void nothing(struct work_job *job) {
    (void)job;
}

/* The one worker is busy from here on, until it is let go. */
static void occupy(struct side *t) {
    t->busy = (struct work_job){.run = wait_for_go, .done = nothing};
    work_add(t->work, &t->busy);
}

static void let_go(struct side *t) {
    sem_post(&t->go);
}

static struct run *add(struct side *t, const char *json) {
    struct run_request r;
    struct api_error error = {0};
    struct err err = {0};
    struct admit admit;
    if (request_decode(json, strlen(json), &r, &error) < 0)
        fail_msg("%s", error.message);
    const struct wire_policy *p = &link_policy(links_first_ready(&t->links), "default")->head;
    assert_int_equal(admit_check(&r, p, &admit, &error), 0);
    struct run *run = run_new(&t->runs, &r, p, &admit, &err);
    free(admit.steps);
    assert_non_null(run);
    unit_works(runs_add(&t->runs, run, "ann", &err), err);
    return run;
}

/* A request with one file, and a second step with stdin, of so many bytes each. */
static struct run *add_large(struct side *t, size_t file, size_t input, const char *more) {
    struct buf b;
    buf_init(&b, 16 << 20);
    char *text = calloc(1, (file > input ? file : input) + 1);
    assert_non_null(text);
    memset(text, 'f', file);
    assert_int_equal(buf_printf(&b, NULL, "{%s\"files\":[{\"path\":\"f\",\"content\":\"", more), 0);
    assert_int_equal(buf_append(&b, text, file, NULL), 0);
    assert_int_equal(
        buf_puts(&b, "\"}],\"steps\":[{\"argv\":[\"a\"]},{\"argv\":[\"b\"],\"stdin\":\"", NULL), 0);
    memset(text, 'i', input);
    assert_int_equal(buf_append(&b, text, input, NULL), 0);
    assert_int_equal(buf_puts(&b, "\"}]}", NULL), 0);
    struct run *run = add(t, b.data);
    buf_done(&b);
    free(text);
    return run;
}

static void expect_bytes(int fd, size_t least, size_t most) {
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_in_range(st.st_size, least, most);
}

static void until_done(struct side *t, const struct run *run) {
    for (int i = 0; i < 2000 && run->phase != RUN_DONE; i++)
        fake_turn(&t->fake);
    assert_int_equal(run->phase, RUN_DONE);
}

static uint64_t expect_open(struct side *t) {
    uint64_t jail = 0;
    for (int i = 0; i < 100 && jail == 0; i++)
        if (!fake_quiet(&t->fake))
            jail = ((const struct wire_head *)(const void *)t->fake.packet)->jail;
    assert_int_not_equal(jail, 0);
    const struct wire_head *exec = fake_expect(&t->fake, WIRE_EXEC);
    assert_int_equal(exec->exec, 0);
    return jail;
}

#define MIB ((size_t)1 << 20)

/* Others go on meanwhile, and what the command gets is whole. */
static void test_the_loop_goes_on_while_a_worker_copies(void **state) {
    struct side *t = *state;
    occupy(t);
    struct run *run = add_large(t, 3 * MIB, 2 * MIB, "");
    assert_int_equal(run->phase, RUN_STEP);
    assert_true(run_pack_waits(run));
    assert_true(fake_quiet(&t->fake));
    struct run *small = add(t, "{\"argv\":[\"true\"]}");
    uint64_t other = expect_open(t);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, other, 0, CAUSE_EXIT, 0);
    fake_expect(&t->fake, WIRE_CLOSE);
    assert_int_equal(small->phase, RUN_DONE);
    assert_true(run_pack_waits(run));
    let_go(t);
    uint64_t jail = expect_open(t);
    assert_int_equal(t->fake.fd_count, 3); /* stdout, stderr, the files */
    expect_bytes(t->fake.fds[2], 3 * MIB, 3 * MIB + 1000);
    fake_forget_fds(&t->fake);
    occupy(t);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    assert_true(run_pack_waits(run));
    assert_true(fake_quiet(&t->fake));
    let_go(t);
    const struct wire_head *exec = fake_expect(&t->fake, WIRE_EXEC);
    assert_int_equal(exec->exec, 1);
    assert_int_equal(t->fake.fd_count, 3); /* stdin comes first */
    expect_bytes(t->fake.fds[0], 2 * MIB, 2 * MIB);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 1, CAUSE_EXIT, 0);
    fake_expect(&t->fake, WIRE_CLOSE);
    assert_int_equal(run->phase, RUN_DONE);
    assert_true(run->ok);
}

static void test_what_is_small_is_sent_at_once(void **state) {
    struct side *t = *state;
    occupy(t);
    struct run *run = add_large(t, 1000, 1000, "");
    assert_false(run_pack_waits(run));
    expect_open(t);
    let_go(t);
}

/* Nothing of it was sent, so there is nothing to kill and nobody to close; the place is free. */
static void test_cancelled_before_anything_was_sent(void **state) {
    struct side *t = *state;
    occupy(t);
    struct run *run = add_large(t, MIB, 10, "");
    run_cancel(run, CAUSE_CANCELLED);
    assert_true(run_pack_waits(run));
    assert_int_equal(t->runs.active, 1);
    let_go(t);
    until_done(t, run);
    assert_true(fake_quiet(&t->fake));
    assert_int_equal(run->steps[0].end.cause, CAUSE_CANCELLED);
    assert_int_equal(run->steps[1].state, RUN_STEP_SKIPPED);
    assert_int_equal(t->runs.active, 0);
    assert_int_equal(runs_unfinished(&t->runs), 0);
    for (int i = 0; i < 2; i++) /* both slots */
        add(t, "{\"argv\":[\"true\"]}");
    expect_open(t);
    expect_open(t);
}

/* Between two steps its jail is there, and is closed. */
static void test_cancelled_between_two_steps(void **state) {
    struct side *t = *state;
    struct run *run = add_large(t, 10, MIB, "");
    uint64_t jail = expect_open(t);
    fake_forget_fds(&t->fake);
    occupy(t);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    assert_true(run_pack_waits(run));
    run_cancel(run, CAUSE_LOST_CLIENT);
    assert_true(fake_quiet(&t->fake));
    let_go(t);
    assert_int_equal(fake_expect(&t->fake, WIRE_CLOSE)->jail, jail);
    until_done(t, run);
    assert_int_equal(run->steps[0].end.cause, CAUSE_EXIT);
    assert_int_equal(run->steps[1].end.cause, CAUSE_LOST_CLIENT);
}

/* The worker still reads the request: the run ends when it is done. */
static void test_the_runner_dies_meanwhile(void **state) {
    struct side *t = *state;
    occupy(t);
    struct run *run = add_large(t, MIB, 10, "");
    fd_close(&t->fake.fd);
    for (int i = 0; i < 10; i++)
        fake_turn(&t->fake);
    assert_null(run->jail);
    assert_int_equal(run->phase, RUN_STEP);
    let_go(t);
    until_done(t, run);
    assert_int_equal(run->steps[0].end.cause, CAUSE_INTERRUPTED);
    assert_int_equal(t->runs.active, 0);
}

static void test_a_jail_fails_between_two_steps(void **state) {
    struct side *t = *state;
    struct run *run = add_large(t, 10, MIB, "");
    uint64_t jail = expect_open(t);
    fake_forget_fds(&t->fake);
    occupy(t);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    fake_send_failed(&t->fake, jail);
    assert_int_equal(run->phase, RUN_STEP);
    let_go(t);
    until_done(t, run);
    assert_int_equal(run->steps[1].end.cause, CAUSE_INTERNAL);
    assert_string_equal(run->steps[1].end.stage, "mounts");
}

/* The files of a run that keeps its steps go before the first of them. */
static void test_kept_steps(void **state) {
    struct side *t = *state;
    occupy(t);
    struct run *run = add_large(t, MIB, 10, "\"keep_steps\":true,");
    assert_true(run_pack_waits(run));
    assert_true(fake_quiet(&t->fake));
    let_go(t);
    fake_expect(&t->fake, WIRE_OPEN);
    const struct wire_exec *exec =
        (const struct wire_exec *)(const void *)fake_expect(&t->fake, WIRE_EXEC);
    assert_int_equal(exec->head.exec, 3);
    assert_true((exec->fds & WIRE_FD_BUNDLE) != 0);
    expect_bytes(t->fake.fds[t->fake.fd_count - 1], MIB, MIB + 1000);
}

/* A server that stops waits for the worker, whatever it was about. */
static void test_the_server_stops_meanwhile(void **state) {
    struct side *t = *state;
    occupy(t);
    struct run *run = add_large(t, MIB, 10, "");
    assert_true(run_pack_waits(run));
    let_go(t);
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_the_loop_goes_on_while_a_worker_copies),
        WITH_SHARD(test_what_is_small_is_sent_at_once),
        WITH_SHARD(test_cancelled_before_anything_was_sent),
        WITH_SHARD(test_cancelled_between_two_steps),
        WITH_SHARD(test_the_runner_dies_meanwhile),
        WITH_SHARD(test_a_jail_fails_between_two_steps),
        WITH_SHARD(test_kept_steps),
        WITH_SHARD(test_the_server_stops_meanwhile),
    };
    return cmocka_run_group_tests_name("run_pack", tests, NULL, NULL);
}
