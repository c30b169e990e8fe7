/* Runs from acceptance to eviction, with a runner shard that the test plays. */
#include "runs.h"

#include "admit.h"
#include "answer.h"
#include "bundle.h"
#include "fake_shard.h"
#include "snapshots.h"

struct side {
    struct fake_shard fake;
    struct log log;
    struct links links;
    struct metrics metrics;
    struct runs runs;
};

static void room(void *arg) {
    runs_room(arg);
}

static struct side *start(uint32_t slots, const struct runs_options *options) {
    struct side *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    fake_start(&t->fake);
    log_init(&t->log, -1, LOG_ERROR, "unit");
    runs_init(&t->runs, t->fake.loop, &t->log, &t->links, &t->metrics, options);
    struct links_watch watch = {.room = room, .arg = &t->runs};
    links_start(&t->links, t->fake.loop, &t->log, &watch);
    fake_greet(&t->fake, slots);
    return t;
}

static int setup(void **state) {
    const struct runs_options options = {.queue_count = 4,
                                         .queue_bytes = 1 << 20,
                                         .keep_count = 3,
                                         .keep_bytes = 1 << 20,
                                         .active_max = 100};
    *state = start(2, &options);
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    runs_done(&t->runs);
    links_stop(&t->links);
    fake_stop(&t->fake);
    free(t);
    return 0;
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
    assert_true(runs_may_queue(&t->runs, r.bytes));
    struct run *run = run_new(&t->runs, &r, p, &admit, &err);
    free(admit.steps);
    assert_non_null(run);
    unit_works(runs_add(&t->runs, run, "ann", &err), err);
    return run;
}

/* What the shard gets of a run that begins: returns the jail's number; the pipes are in fake.fds.
 */
static uint64_t expect_start(struct side *t) {
    uint64_t jail = fake_expect(&t->fake, WIRE_OPEN)->jail;
    const struct wire_head *exec = fake_expect(&t->fake, WIRE_EXEC);
    assert_int_equal(exec->jail, jail);
    assert_int_equal(exec->exec, 0);
    return jail;
}

static void say(struct side *t, size_t which, const char *text) {
    assert_true(which < t->fake.fd_count);
    assert_int_equal(write(t->fake.fds[which], text, strlen(text)), strlen(text));
}

static void finish(struct side *t, uint64_t jail) {
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    assert_int_equal(fake_expect(&t->fake, WIRE_CLOSE)->jail, jail);
    fake_send_closed(&t->fake, jail);
}

static void expect_text(const struct capture *c, const char *text) {
    struct iovec parts[CAPTURE_PIECES];
    assert_int_equal(c->total, strlen(text));
    if (c->total == 0)
        return;
    assert_int_equal(capture_view(c, 0, strlen(text), parts), 1);
    assert_memory_equal(parts[0].iov_base, text, strlen(text));
}

static void test_one_step(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"true\"]}");
    assert_int_equal(run->phase, RUN_STEP);
    uint64_t jail = expect_start(t);
    say(t, 0, "out");
    say(t, 1, "err");
    finish(t, jail);
    assert_int_equal(run->phase, RUN_DONE);
    assert_true(run->ok);
    expect_text(&run->steps[0].out.capture, "out");
    expect_text(&run->steps[0].err.capture, "err");
    assert_ptr_equal(runs_find(&t->runs, run->id), run);
    assert_int_equal(t->metrics.ends[CAUSE_EXIT], 1);
    assert_int_equal(runs_unfinished(&t->runs), 0);
}

static void test_steps_and_skip(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"steps\":[{\"argv\":[\"a\"],\"continue_on_error\":true},"
                             "{\"argv\":[\"b\"]},{\"argv\":[\"c\"]}]}");
    uint64_t jail = expect_start(t);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 3);
    assert_int_equal(fake_expect(&t->fake, WIRE_EXEC)->exec, 1);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 1, CAUSE_SIGNAL, 0);
    fake_expect(&t->fake, WIRE_CLOSE);
    assert_int_equal(run->phase, RUN_DONE);
    assert_false(run->ok);
    assert_int_equal(run->steps[0].state, RUN_STEP_DONE);
    assert_int_equal(run->steps[1].end.cause, CAUSE_SIGNAL);
    assert_int_equal(run->steps[2].state, RUN_STEP_SKIPPED);
}

/* The end is not told before the pipes have ended. */
static void test_pipe_outlives_end(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"true\"]}");
    uint64_t jail = expect_start(t);
    int out = t->fake.fds[0];
    fd_close(&t->fake.fds[1]);
    t->fake.fd_count = 0;
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    assert_int_equal(run->phase, RUN_STEP);
    assert_int_equal(write(out, "late", 4), 4);
    fd_close(&out);
    for (int i = 0; i < 100 && run->phase != RUN_DONE; i++)
        fake_turn(&t->fake);
    assert_int_equal(run->phase, RUN_DONE);
    expect_text(&run->steps[0].out.capture, "late");
}

/* A pipe that somebody holds for ever delays the answer by a second, not for ever. */
static void test_pipe_never_ends(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"true\"]}");
    uint64_t jail = expect_start(t);
    say(t, 0, "x");
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    uint64_t before = clock_mono_ms();
    while (run->phase != RUN_DONE && clock_mono_ms() - before < 5000)
        fake_turn(&t->fake);
    assert_int_equal(run->phase, RUN_DONE);
    assert_in_range(clock_mono_ms() - before, 500, 3000);
    expect_text(&run->steps[0].out.capture, "x");
}

static void test_failed(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"steps\":[{\"argv\":[\"a\"]},{\"argv\":[\"b\"]}]}");
    fake_send_failed(&t->fake, expect_start(t));
    assert_int_equal(run->phase, RUN_DONE);
    assert_int_equal(run->steps[0].end.cause, CAUSE_INTERNAL);
    assert_int_equal(run->steps[0].end.code, 28);
    assert_string_equal(run->steps[0].end.stage, "mounts");
    assert_int_equal(run->steps[1].state, RUN_STEP_SKIPPED);
}

static void test_lost(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"a\"]}");
    expect_start(t);
    say(t, 0, "before");
    fd_close(&t->fake.fd);
    fake_turn(&t->fake);
    assert_int_equal(run->phase, RUN_DONE);
    assert_int_equal(run->steps[0].end.cause, CAUSE_INTERRUPTED);
    expect_text(&run->steps[0].out.capture, "before");
    /* The next one waits until the shard is back. */
    const struct wire_policy policy = run->policy;
    struct run_request r;
    struct api_error error = {0};
    struct err err = {0};
    struct admit admit;
    const char *json = "{\"argv\":[\"b\"]}";
    assert_int_equal(request_decode(json, strlen(json), &r, &error), 0);
    assert_int_equal(admit_check(&r, &policy, &admit, &error), 0);
    struct run *next = run_new(&t->runs, &r, &policy, &admit, &err);
    free(admit.steps);
    unit_works(runs_add(&t->runs, next, "ann", &err), err);
    assert_int_equal(next->phase, RUN_QUEUED);
    fake_greet(&t->fake, 2);
    finish(t, expect_start(t));
    assert_int_equal(next->phase, RUN_DONE);
    assert_true(next->ok);
}

static void test_wrong_end(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"a\"]}");
    uint64_t jail = expect_start(t);
    fake_send_end(&t->fake, jail, 5, CAUSE_EXIT, 0);
    fake_turn(&t->fake);
    assert_int_equal(run->phase, RUN_DONE);
    assert_int_equal(run->steps[0].end.cause, CAUSE_INTERRUPTED);
}

static void test_queue(void **state) {
    struct side *t = *state;
    struct run *run[6];
    uint64_t jail[2];
    for (int i = 0; i < 6; i++) {
        run[i] = add(t, "{\"argv\":[\"a\"]}");
        if (i < 2)
            jail[i] = expect_start(t);
        assert_int_equal(run[i]->phase, i < 2 ? RUN_STEP : RUN_QUEUED);
    }
    assert_false(runs_may_queue(&t->runs, 0));
    run_cancel(run[3], CAUSE_CANCELLED);
    assert_int_equal(run[3]->phase, RUN_DONE);
    assert_int_equal(run[3]->steps[0].end.cause, CAUSE_CANCELLED);
    assert_true(runs_may_queue(&t->runs, 0));
    finish(t, jail[0]);
    jail[0] = expect_start(t);
    assert_int_equal(run[2]->phase, RUN_STEP);
    assert_int_equal(run[4]->phase, RUN_QUEUED);
    runs_close(&t->runs, false);
    assert_int_equal(run[4]->phase, RUN_DONE);
    assert_int_equal(run[5]->phase, RUN_DONE);
    assert_int_equal(runs_unfinished(&t->runs), 2);
}

static void test_what_is_kept_for_the_next_server_does_not_start(void **state) {
    struct side *t = *state;
    struct run *run[5];
    uint64_t jail[2];
    for (int i = 0; i < 5; i++) {
        run[i] = add(t, "{\"argv\":[\"a\"]}");
        if (i < 2)
            jail[i] = expect_start(t);
    }
    run[2]->store.told = run[3]->store.told = true;
    run[3]->cancel_on_disconnect = true;
    runs_close(&t->runs, true);
    assert_int_equal(run[3]->phase, RUN_DONE);
    assert_int_equal(run[4]->phase, RUN_DONE);
    finish(t, jail[0]);
    assert_int_equal(runs_unfinished(&t->runs), 1);
    finish(t, jail[1]);
    fake_turn(&t->fake);
    assert_int_equal(run[2]->phase, RUN_QUEUED);
    assert_true(runs_is_kept(run[2]));
    assert_int_equal(runs_unfinished(&t->runs), 0);
}

static void test_cancel(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"steps\":[{\"argv\":[\"a\"]},{\"argv\":[\"b\"]}]}");
    uint64_t jail = expect_start(t);
    fake_forget_fds(&t->fake);
    run_cancel(run, CAUSE_CANCELLED);
    run_cancel(run, CAUSE_LOST_CLIENT);
    const struct wire_kill *kill =
        (const struct wire_kill *)(const void *)fake_expect(&t->fake, WIRE_KILL);
    assert_int_equal(kill->cause, CAUSE_CANCELLED);
    assert_true(fake_quiet(&t->fake));
    fake_send_end(&t->fake, jail, 0, CAUSE_CANCELLED, 0);
    assert_int_equal(run->phase, RUN_DONE);
    assert_int_equal(run->steps[1].state, RUN_STEP_SKIPPED);
    fake_expect(&t->fake, WIRE_CLOSE);
}

static void test_end_on_output(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"a\"],\"end_on\":[\"output\"],"
                             "\"limits\":{\"output_bytes\":4}}");
    uint64_t jail = expect_start(t);
    say(t, 0, "12345");
    const struct wire_kill *kill =
        (const struct wire_kill *)(const void *)fake_expect(&t->fake, WIRE_KILL);
    assert_int_equal(kill->cause, CAUSE_OUTPUT);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 0, CAUSE_OUTPUT, 0);
    assert_int_equal(run->phase, RUN_DONE);
    assert_int_equal(run->steps[0].end.limit, 4);
    assert_int_equal(run->steps[0].end.observed, 5);
}

static void collect_with(struct side *t, const char *bytes, size_t len, struct run **run) {
    *run = add(t, "{\"argv\":[\"a\"],\"collect\":[\"x*\",\"y\"]}");
    uint64_t jail = expect_start(t);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    const struct wire_exec *exec =
        (const struct wire_exec *)(const void *)fake_expect(&t->fake, WIRE_EXEC);
    assert_int_equal(exec->kind, WIRE_EXEC_COLLECT);
    assert_int_equal(exec->head.exec, 1);
    assert_int_equal(write(t->fake.fds[0], bytes, len), len);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 1, CAUSE_EXIT, 0);
    for (int i = 0; i < 20 && (*run)->phase != RUN_DONE; i++)
        fake_turn(&t->fake);
    assert_int_equal((*run)->phase, RUN_DONE);
    fake_expect(&t->fake, WIRE_CLOSE);
    fake_send_closed(&t->fake, jail);
}

static void test_collect(void **state) {
    struct side *t = *state;
    struct buf b;
    struct err err = {0};
    struct run *run;
    buf_init(&b, 65536);
    unit_works(bundle_file(&b, 0644, "x1", 2, "data", 4, &err), err);
    unit_works(bundle_error(&b, BUNDLE_NOT_FOUND, "y", 1, &err), err);
    size_t whole = b.len;
    unit_works(bundle_end(&b, &err), err);
    collect_with(t, b.data, b.len, &run);
    assert_int_equal(run->file_count, 2);
    assert_null(run->collect_error);
    assert_int_equal(run->files[0].size, 4);
    assert_memory_equal(run->files[0].data, "data", 4);
    assert_int_equal(run->files[1].code, BUNDLE_NOT_FOUND);
    /* One that was cut short, and one that is none, give no files and say so. */
    collect_with(t, b.data, whole, &run);
    assert_string_equal(run->collect_error, "internal");
    assert_int_equal(run->file_count, 2);
    assert_int_equal(run->files[0].code, BUNDLE_IO);
    assert_memory_equal(run->files[0].path, "x*", 2);
    collect_with(t, "what is this?", 13, &run);
    assert_string_equal(run->collect_error, "internal");
    assert_true(run->ok);
    buf_done(&b);
}

static void expect_snapshot(struct side *t, uint64_t jail, int code, char key[WIRE_NAME_MAX]) {
    const struct wire_head *head = fake_expect(&t->fake, WIRE_SNAPSHOT);
    assert_int_equal(head->jail, jail);
    memcpy(key, ((const struct wire_key *)(const void *)head)->key, WIRE_NAME_MAX);
    fake_send_done(&t->fake, head, code);
}

static void expect_exec(struct side *t, uint64_t jail, uint32_t number, uint32_t fds) {
    const struct wire_exec *exec =
        (const struct wire_exec *)(const void *)fake_expect(&t->fake, WIRE_EXEC);
    assert_int_equal(exec->head.exec, number);
    assert_int_equal(exec->fds & (WIRE_FD_BUNDLE | WIRE_FD_STDERR), fds);
    fake_forget_fds(&t->fake);
    (void)jail;
}

/* The files come first, then a snapshot before each step; they go with the run. */
static void test_kept_steps(void **state) {
    struct side *t = *state;
    struct snapshots snapshots;
    char key[3][WIRE_NAME_MAX];
    snapshots_init(&snapshots, t->fake.loop, &t->log, &t->links);
    snapshots.options = (struct snapshots_options){.count = 4, .bytes = 1 << 20};
    t->runs.snapshots = &snapshots;
    struct run *run = add(t, "{\"keep_steps\":true,\"files\":[{\"path\":\"f\",\"content\":\"x\"}],"
                             "\"steps\":[{\"argv\":[\"a\"]},{\"argv\":[\"b\"]}]}");
    uint64_t jail = fake_expect(&t->fake, WIRE_OPEN)->jail;
    expect_exec(t, jail, 3, WIRE_FD_BUNDLE);
    assert_true(fake_quiet(&t->fake));
    fake_send_end(&t->fake, jail, 3, CAUSE_EXIT, 0);
    expect_snapshot(t, jail, 0, key[0]);
    expect_exec(t, jail, 0, WIRE_FD_STDERR);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    expect_snapshot(t, jail, 28, key[1]);
    expect_exec(t, jail, 1, WIRE_FD_STDERR);
    fake_send_end(&t->fake, jail, 1, CAUSE_EXIT, 0);
    fake_expect(&t->fake, WIRE_CLOSE);
    fake_send_closed(&t->fake, jail);
    assert_int_equal(run->phase, RUN_DONE);
    assert_true(run->ok);
    assert_string_equal(run_keep_key(run, 0), key[0]);
    assert_null(run_keep_key(run, 1));
    assert_null(run_keep_key(run, 2));
    assert_int_equal(snapshots.count, 1);
    assert_int_equal(snapshots.pending, 0);
    struct buf b;
    struct err err = {0};
    buf_init(&b, 65536);
    assert_int_equal(answer_encode(run, 0, &b, &err), 0);
    assert_non_null(strstr(b.data, "\"kept_steps\":[0]"));
    assert_non_null(strstr(b.data, "\"keep_error\":\"The state before step 1 was not kept: "));
    buf_done(&b);
    for (int i = 0; i < 2; i++) {
        add(t, "{\"argv\":[\"a\"]}");
        finish(t, expect_start(t));
        fake_turn(&t->fake);
    }
    add(t, "{\"argv\":[\"a\"]}");
    jail = expect_start(t);
    fake_forget_fds(&t->fake);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    const struct wire_key *drop =
        (const struct wire_key *)(const void *)fake_expect(&t->fake, WIRE_DROP);
    assert_string_equal(drop->key, key[0]);
    assert_int_equal(snapshots.count, 0);
    snapshots_done(&snapshots);
}

/* Whoever does not need them any more need not wait until the run is forgotten. */
static void test_kept_steps_are_dropped(void **state) {
    struct side *t = *state;
    struct snapshots snapshots;
    char key[WIRE_NAME_MAX];
    snapshots_init(&snapshots, t->fake.loop, &t->log, &t->links);
    snapshots.options = (struct snapshots_options){.count = 4, .bytes = 1 << 20};
    t->runs.snapshots = &snapshots;
    struct run *run = add(t, "{\"keep_steps\":true,\"argv\":[\"a\"]}");
    uint64_t jail = fake_expect(&t->fake, WIRE_OPEN)->jail;
    expect_exec(t, jail, 2, 0);
    fake_send_end(&t->fake, jail, 2, CAUSE_EXIT, 0);
    expect_snapshot(t, jail, 0, key);
    expect_exec(t, jail, 0, WIRE_FD_STDERR);
    fake_send_end(&t->fake, jail, 0, CAUSE_EXIT, 0);
    fake_expect(&t->fake, WIRE_CLOSE);
    fake_send_closed(&t->fake, jail);
    assert_int_equal(snapshots.count, 1);
    run_keep_drop(run);
    const struct wire_key *drop =
        (const struct wire_key *)(const void *)fake_expect(&t->fake, WIRE_DROP);
    assert_string_equal(drop->key, key);
    assert_int_equal(snapshots.count, 0);
    run_keep_drop(run);
    assert_true(fake_quiet(&t->fake));
    snapshots_done(&snapshots);
    t->runs.snapshots = NULL;
}

static void test_cancelled_while_kept(void **state) {
    struct side *t = *state;
    struct snapshots snapshots;
    char key[WIRE_NAME_MAX];
    snapshots_init(&snapshots, t->fake.loop, &t->log, &t->links);
    snapshots.options = (struct snapshots_options){.count = 4, .bytes = 1 << 20};
    t->runs.snapshots = &snapshots;
    struct run *run = add(t, "{\"keep_steps\":true,\"argv\":[\"a\"]}");
    uint64_t jail = fake_expect(&t->fake, WIRE_OPEN)->jail;
    expect_exec(t, jail, 2, 0);
    fake_send_end(&t->fake, jail, 2, CAUSE_EXIT, 0);
    fake_turn(&t->fake);
    run_cancel(run, CAUSE_CANCELLED);
    assert_int_equal(run->phase, RUN_STEP);
    expect_snapshot(t, jail, 0, key);
    fake_expect(&t->fake, WIRE_CLOSE);
    assert_int_equal(run->phase, RUN_DONE);
    assert_int_equal(run->steps[0].end.cause, CAUSE_CANCELLED);
    runs_done(&t->runs);
    t->runs.loop = NULL;
    snapshots_done(&snapshots);
}

static void test_retention(void **state) {
    struct side *t = *state;
    char ids[6][RUN_ID_SIZE];
    for (int i = 0; i < 6; i++) {
        struct run *run = add(t, "{\"argv\":[\"a\"]}");
        memcpy(ids[i], run->id, RUN_ID_SIZE);
        finish(t, expect_start(t));
        fake_turn(&t->fake);
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(runs_find(&t->runs, ids[i]) != NULL, i >= 3);
    assert_int_equal(t->runs.done_count, 3);
    /* One that somebody works on stays in memory, but is not found any more. */
    struct run *held = runs_find(&t->runs, ids[3]);
    runs_pin(held);
    for (int i = 0; i < 3; i++) {
        add(t, "{\"argv\":[\"a\"]}");
        finish(t, expect_start(t));
        fake_turn(&t->fake);
    }
    assert_null(runs_find(&t->runs, ids[3]));
    assert_true(held->ok);
    runs_unpin(held);
    assert_int_equal(t->runs.count, 3);
}

static void nothing(struct run_watcher *w) {
    (void)w;
}

static size_t count_lines(const struct buf *b, const char *what) {
    size_t n = 0;
    const char *at = b->data != NULL ? b->data : "";
    while ((at = strstr(at, what)) != NULL) {
        n++;
        at += strlen(what);
    }
    return n;
}

/* A character that comes in halves is one event; what is not UTF-8 is base64. */
static void test_events(void **state) {
    struct side *t = *state;
    struct buf b;
    struct err err = {0};
    struct run *run = add(t, "{\"argv\":[\"a\"]}");
    struct run_watcher w = {.changed = nothing};
    buf_init(&b, 65536);
    run_follow(run, &w, 0);
    uint64_t jail = expect_start(t);
    say(t, 0, "caf\xc3");
    fake_turn(&t->fake);
    fake_turn(&t->fake);
    assert_int_equal(answer_events(run, &w, 60000, &b, &err), 0);
    assert_int_equal(count_lines(&b, "\"data\":\"caf\""), 1);
    say(t, 0, "\xa9!");
    fake_turn(&t->fake);
    assert_int_equal(answer_events(run, &w, 60000, &b, &err), 0);
    assert_int_equal(count_lines(&b, "\"data\":\"\xc3\xa9!\""), 1);
    say(t, 0, "\xff");
    fake_turn(&t->fake);
    assert_int_equal(answer_events(run, &w, 60000, &b, &err), 0);
    assert_int_equal(count_lines(&b, "\"data\":\"/w==\",\"encoding\":\"base64\""), 1);
    say(t, 0, "\xc3");
    finish(t, jail);
    assert_int_equal(answer_events(run, &w, 60000, &b, &err), 1);
    assert_int_equal(count_lines(&b, "\"data\":\"ww==\""), 1);
    assert_int_equal(count_lines(&b, "\"type\":\"done\""), 1);
    assert_int_equal(count_lines(&b, "\n"), 7);
    size_t first = b.len;
    /* The same again for somebody who comes later. */
    struct run_watcher late = {.changed = nothing};
    run_follow(run, &late, 0);
    assert_int_equal(answer_events(run, &late, 60000 + first, &b, &err), 1);
    assert_int_equal(b.len, 2 * first);
    assert_memory_equal(b.data, b.data + first, first);
    run_unwatch(&late);
    run_unwatch(&w);
    buf_done(&b);
}

/* Large enough to be the first to go, but nowhere else. */
static void test_what_is_only_in_memory_stays_when_nothing_is_asked_for(void **state) {
    struct side *t = *state;
    struct run *run = add(t, "{\"argv\":[\"true\"]}");
    finish(t, expect_start(t));
    assert_int_equal(run->phase, RUN_DONE);
    size_t before = t->runs.done_bytes;
    run->memory += 64 << 20;
    t->runs.done_bytes += 64 << 20;
    runs_rest(&t->runs);
    assert_ptr_equal(runs_find(&t->runs, run->id), run);
    run->memory -= 64 << 20;
    t->runs.done_bytes = before;
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_what_is_only_in_memory_stays_when_nothing_is_asked_for),
        WITH_SHARD(test_one_step),
        WITH_SHARD(test_steps_and_skip),
        WITH_SHARD(test_pipe_outlives_end),
        WITH_SHARD(test_pipe_never_ends),
        WITH_SHARD(test_failed),
        WITH_SHARD(test_lost),
        WITH_SHARD(test_wrong_end),
        WITH_SHARD(test_queue),
        WITH_SHARD(test_what_is_kept_for_the_next_server_does_not_start),
        WITH_SHARD(test_cancel),
        WITH_SHARD(test_end_on_output),
        WITH_SHARD(test_collect),
        WITH_SHARD(test_kept_steps),
        WITH_SHARD(test_kept_steps_are_dropped),
        WITH_SHARD(test_cancelled_while_kept),
        WITH_SHARD(test_retention),
        WITH_SHARD(test_events),
    };
    return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
