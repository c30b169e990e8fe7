#include "sandboxes.h"

#include "fake_side.h"
#include "store_sandboxes.h"

static void test_tasks_by_number(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a, b;
    struct sandbox *sb = make(s, &jail);
    run(s, sb, &a);
    run(s, sb, &b);
    assert_true(a.task.number != b.task.number);
    fake_send_started(&s->fake, jail, b.task.number, 0);
    assert_int_equal(b.started, 1);
    assert_int_equal(a.started, 0);
    fake_send_end(&s->fake, jail, b.task.number, CAUSE_EXIT, 0);
    assert_int_equal(b.ended, 1);
    assert_int_equal(a.ended, 0);
    sandbox_task_signal(&a.task, 15);
    const struct wire_signal *signal =
        (const struct wire_signal *)(const void *)fake_expect(&s->fake, WIRE_SIGNAL);
    assert_int_equal(signal->signal, 15);
    sandbox_task_kill(&a.task, CAUSE_CANCELLED);
    sandbox_task_kill(&a.task, CAUSE_CANCELLED);
    assert_int_equal(fake_expect(&s->fake, WIRE_KILL)->exec, a.task.number);
    assert_true(fake_quiet(&s->fake));
    fake_send_end(&s->fake, jail, a.task.number, CAUSE_CANCELLED, 0);
    assert_int_equal(a.cause, CAUSE_CANCELLED);
    assert_int_equal(sandbox_activity(sb).started, 2);
    assert_int_equal(sandbox_activity(sb).running, 0);
}

static void test_wrong_end_breaks_the_connection(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a;
    struct sandbox *sb = make(s, &jail);
    run(s, sb, &a);
    fake_send_end(&s->fake, jail, a.task.number + 1, CAUSE_EXIT, 0);
    fake_turn(&s->fake);
    assert_null(sandbox_link(sb));
    assert_int_equal(a.lost, 0);
}

static void test_delete_ends_what_runs(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a;
    struct err err = {0};
    struct waiter w = {.wait.fn = told};
    struct sandbox *sb = make(s, &jail);
    run(s, sb, &a);
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    assert_int_equal(a.lost, 1);
    assert_int_equal(a.cause, CAUSE_CANCELLED);
    assert_false(sandbox_wait_closed(sb, &w.wait));
    assert_int_equal(fake_expect(&s->fake, WIRE_CLOSE)->jail, jail);
    assert_int_equal(w.told, 0);
    fake_send_closed(&s->fake, jail);
    assert_int_equal(w.told, 1);
    assert_int_equal(sandbox_state(sb), SANDBOX_GONE);
    assert_ptr_equal(sandboxes_find(&s->sandboxes, sandbox_id(sb)), sb);
    unit_fails(start(sb, &a, true, &err), err, ERR_STATE);
    assert_true(sandbox_wait_closed(sb, &w.wait));
}

static void test_slow_to_open(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a;
    struct waiter w;
    struct sandbox *sb = make(s, &jail);
    run(s, sb, &a);
    s->sandboxes.answer_ms = 20;
    create(s, &w, NULL);
    uint64_t slow = fake_expect(&s->fake, WIRE_OPEN)->jail;
    wait_for(s, &w.told, 0);
    assert_int_equal(w.status, 504);
    assert_int_equal(fake_expect(&s->fake, WIRE_CLOSE)->jail, slow);
    fake_send_opened(&s->fake, slow); /* they cross */
    fake_send_closed(&s->fake, slow);
    assert_true(connected(s));
    assert_int_equal(a.lost, 0);
    assert_null(s->sandboxes.forgotten);
}

static void test_waits_for_a_slot(void **state) {
    struct side *s = *state;
    uint64_t jail[2];
    struct waiter w;
    struct sandbox *one = make(s, &jail[0]);
    make(s, &jail[1]);
    struct sandbox *sb = create(s, &w, NULL);
    assert_true(fake_quiet(&s->fake));
    sandbox_life_end(one, SANDBOX_END_DELETED, NULL);
    fake_expect(&s->fake, WIRE_CLOSE);
    fake_send_closed(&s->fake, jail[0]);
    jail[0] = fake_expect(&s->fake, WIRE_OPEN)->jail;
    fake_send_opened(&s->fake, jail[0]);
    assert_int_equal(w.told, 1);
    assert_int_equal(w.status, 0);
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
}

/* The disk fails when its turn comes: nothing of it stays with the runner. */
static void test_cannot_be_written_when_its_turn_comes(void **state) {
    struct side *s = *state;
    uint64_t jail[2];
    struct waiter w;
    struct sandbox *one = make(s, &jail[0]);
    make(s, &jail[1]);
    create(s, &w, NULL);
    sandbox_life_end(one, SANDBOX_END_DELETED, NULL);
    fake_expect(&s->fake, WIRE_CLOSE);
    assert_int_equal(rename(SANDBOXES_DIR, "server/away"), 0);
    fake_send_closed(&s->fake, jail[0]);
    jail[0] = fake_expect(&s->fake, WIRE_OPEN)->jail;
    assert_int_equal(rename("server/away", SANDBOXES_DIR), 0);
    assert_int_equal(w.told, 1);
    assert_int_equal(w.status, 500);
    assert_int_equal(fake_expect(&s->fake, WIRE_CLOSE)->jail, jail[0]);
    fake_send_closed(&s->fake, jail[0]);
    assert_null(s->sandboxes.forgotten);
    assert_int_equal(s->sandboxes.queue.count, 0);
    assert_true(connected(s));
}

/* Descriptors are bounded, whatever the shards take. */
static void test_waits_for_another_to_end(void **state) {
    struct side *s = *state;
    uint64_t jail[3], last;
    struct waiter w;
    struct sandbox *one = NULL;
    for (size_t i = 0; i < 3; i++)
        one = make(s, &jail[i]);
    struct sandbox *sb = create(s, &w, NULL);
    assert_true(fake_quiet(&s->fake));
    sandbox_life_end(one, SANDBOX_END_DELETED, NULL);
    fake_expect(&s->fake, WIRE_CLOSE);
    fake_send_closed(&s->fake, jail[2]);
    last = fake_expect(&s->fake, WIRE_OPEN)->jail;
    fake_send_opened(&s->fake, last);
    assert_int_equal(w.told, 1);
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
}

static int setup_large(void **state) {
    return setup_with(state, 8);
}

static void test_failed_to_open(void **state) {
    struct side *s = *state;
    struct waiter w;
    char id[SANDBOX_ID_SIZE];
    memcpy(id, sandbox_id(create(s, &w, NULL)), sizeof(id));
    fake_send_failed(&s->fake, fake_expect(&s->fake, WIRE_OPEN)->jail);
    assert_int_equal(w.told, 1);
    assert_int_equal(w.status, 507);
    assert_null(sandboxes_find(&s->sandboxes, id));
}

static void test_runner_dies(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a;
    struct waiter w;
    struct sandbox *sb = make(s, &jail);
    run(s, sb, &a);
    create(s, &w, NULL);
    fake_expect(&s->fake, WIRE_OPEN);
    fd_close(&s->fake.listener);
    fd_close(&s->fake.fd);
    for (int i = 0; i < 400 && a.lost == 0; i++)
        fake_turn(&s->fake);
    assert_int_equal(w.status, 503);
    assert_int_equal(a.lost, 1);
    assert_int_equal(a.cause, CAUSE_INTERRUPTED);
    assert_int_equal(sandbox_state(sb), SANDBOX_GONE);
}

/* The connection breaks, the runner lives: what runs goes on. */
static void test_connection_comes_back(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a, b, c;
    struct err err = {0};
    struct part *part = &s->part;
    struct sandbox *sb = make(s, &jail);
    loaded(part, sb);
    run(s, sb, &a);
    run(s, sb, &b);
    fd_close(&s->fake.fd);
    fake_turn(&s->fake);
    assert_null(sandbox_link(sb));
    unit_fails(start(sb, &c, true, &err), err, ERR_STATE);
    sandbox_task_kill(&a.task, CAUSE_CANCELLED);
    fake_accept(&s->fake);
    fake_expect(&s->fake, WIRE_HELLO);
    fake_send_welcome(&s->fake, 2, 1);
    fake_send_policy(&s->fake, "default");
    fake_send_kept(&s->fake, WIRE_KEPT, sandbox_id(sb));
    fake_send_ready(&s->fake);
    const struct wire_head *adopt = fake_expect(&s->fake, WIRE_ADOPT);
    jail = adopt->jail;
    assert_true(sandboxes_adopting(&s->sandboxes));
    int fd = dup(0);
    fake_send_kept_exec(&s->fake, jail, a.task.number, &fd, 1);
    fd_close(&fd);
    assert_null(sandbox_link(sb));
    fake_send_done(&s->fake, adopt, 0);
    assert_non_null(sandbox_link(sb));
    assert_false(sandboxes_adopting(&s->sandboxes));
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
    assert_int_equal(b.lost, 1);
    assert_int_equal(part->adopted, 1);
    assert_int_equal(part->kept, 0);
    /* What was asked for meanwhile is not forgotten. */
    assert_int_equal(fake_expect(&s->fake, WIRE_KILL)->exec, a.task.number);
    fake_send_end(&s->fake, jail, a.task.number, CAUSE_CANCELLED, 0);
    assert_int_equal(a.ended, 1);
}

static void test_server_comes_back(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a, taken = {.task = {.ops = &task_ops, .command = true}};
    struct part *part = &s->part;
    part->take = &taken.task;
    char id[SANDBOX_ID_SIZE];
    struct sandbox *sb = make(s, &jail);
    memcpy(id, sandbox_id(sb), sizeof(id));
    run(s, sb, &a);
    uint32_t number = a.task.number;
    restart(s, part);
    sb = sandboxes_find(&s->sandboxes, id);
    assert_non_null(sb);
    assert_null(sandbox_link(sb));
    assert_true(sandboxes_unsettled(&s->sandboxes, "ann"));
    fake_send_kept(&s->fake, WIRE_KEPT, "sb_nobody");
    fake_send_kept(&s->fake, WIRE_KEPT, id);
    fake_send_ready(&s->fake);
    struct wire_key unknown =
        *(const struct wire_key *)(const void *)fake_expect(&s->fake, WIRE_ADOPT);
    assert_string_equal(unknown.key, "sb_nobody");
    const struct wire_head *adopt = fake_expect(&s->fake, WIRE_ADOPT);
    struct wire_key own = *(const struct wire_key *)(const void *)adopt;
    assert_string_equal(own.key, id);
    assert_int_equal(fake_expect(&s->fake, WIRE_CLOSE)->jail, unknown.head.jail);
    int fds[2] = {dup(0), dup(0)};
    fake_send_kept_exec(&s->fake, own.head.jail, number, fds, 2);
    fake_send_kept_exec(&s->fake, own.head.jail, number + 1, fds, 2);
    fake_send_kept_exec(&s->fake, own.head.jail, number + 2, fds, 0);
    fd_close(&fds[0]);
    fd_close(&fds[1]);
    fake_send_done(&s->fake, &own.head, 0);
    assert_int_equal(part->adopted, 1);
    assert_int_equal(part->kept, 3);
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
    /* What nobody took is ended; file operations end by themselves. */
    assert_int_equal(sandbox_activity(sb).running, 2);
    assert_int_equal(fake_expect(&s->fake, WIRE_KILL)->exec, number + 1);
    fake_send_end(&s->fake, own.head.jail, number + 1, CAUSE_INTERRUPTED, 0);
    fake_send_end(&s->fake, own.head.jail, number + 2, CAUSE_EXIT, 0);
    fake_send_end(&s->fake, own.head.jail, number, CAUSE_EXIT, 0);
    assert_int_equal(taken.ended, 1);
    assert_int_equal(sandbox_activity(sb).running, 0);
    /* No number is used twice. */
    run(s, sb, &a);
    assert_true(a.task.number > number + 2);
    assert_int_equal(s->links.items[0]->state, LINK_READY);
}

/* A sandbox that is adopted after `count` executions were told of. */
static struct sandbox *adopt_with(struct side *s, struct part *part, size_t count) {
    uint64_t jail;
    char id[SANDBOX_ID_SIZE];
    memcpy(id, sandbox_id(make(s, &jail)), sizeof(id));
    restart(s, part);
    fake_send_kept(&s->fake, WIRE_KEPT, id);
    fake_send_ready(&s->fake);
    struct wire_key own = *(const struct wire_key *)(const void *)fake_expect(&s->fake, WIRE_ADOPT);
    for (size_t i = 0; i < count; i++)
        fake_send_kept_exec(&s->fake, own.head.jail, (uint32_t)i + 1, NULL, 0);
    fake_send_done(&s->fake, &own.head, 0);
    return sandboxes_find(&s->sandboxes, id);
}

/* As many as run at once, and the last ENDs told again. */
static void test_adopts_all_that_was_kept(void **state) {
    struct side *s = *state;
    struct part *part = &s->part;
    size_t most = 64 + WIRE_TOLD_MAX;
    struct sandbox *sb = adopt_with(s, part, most);
    assert_true(connected(s));
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
    assert_int_equal(part->kept, most);
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    assert_int_equal(sandbox_activity(sb).running, 0);
}

static void test_more_was_kept_than_can_be(void **state) {
    struct side *s = *state;
    struct part *part = &s->part;
    const struct sandbox *sb = adopt_with(s, part, 64 + WIRE_TOLD_MAX + 1);
    fake_expect(&s->fake, WIRE_CLOSE);
    assert_true(connected(s));
    assert_int_equal(sandbox_state(sb), SANDBOX_GONE);
    assert_int_equal(part->adopted, 0);
}

static void test_runner_kept_nothing(void **state) {
    struct side *s = *state;
    uint64_t jail;
    char id[SANDBOX_ID_SIZE];
    struct part *part = &s->part;
    memcpy(id, sandbox_id(make(s, &jail)), sizeof(id));
    restart(s, part);
    fake_send_ready(&s->fake);
    struct sandbox *sb = sandboxes_find(&s->sandboxes, id);
    assert_int_equal(sandbox_state(sb), SANDBOX_GONE);
    assert_int_equal(part->gone, 1);
    char text[256];
    sandbox_life_text(sb, text, sizeof(text));
    assert_non_null(strstr(text, "ended it"));
    /* So it is after another start. */
    restart(s, NULL);
    assert_int_equal(sandbox_state(sandboxes_find(&s->sandboxes, id)), SANDBOX_GONE);
}

static void test_idle_and_ttl(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct task a;
    struct sandbox *sb = make(s, &jail);
    run(s, sb, &a);
    uint64_t before = clock_mono_ms();
    sandbox_life_ttl(sb, 150);
    while (sandbox_state(sb) != SANDBOX_GONE && clock_mono_ms() - before < 3000)
        fake_turn(&s->fake);
    assert_int_equal(sandbox_state(sb), SANDBOX_GONE);
    assert_true(clock_mono_ms() - before >= 149);
    assert_int_equal(a.cause, CAUSE_CANCELLED);
}

static size_t entries(const char *path) {
    DIR *d = opendir(path);
    size_t n = 0;
    assert_non_null(d);
    const struct dirent *e;
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static bool has_file(const char *id, const char *name) {
    char path[128];
    snprintf(path, sizeof(path), SANDBOXES_DIR "/%s/%s", id, name);
    return access(path, F_OK) == 0;
}

static size_t rows(struct side *s) {
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_prepare_v2(s->store->db, "SELECT count(*) FROM sandboxes", -1, &q, 0),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    size_t n = (size_t)sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return n;
}

/* Directories made in advance are used, and used up, and left to the next server. */
static void test_spare_directories(void **state) {
    struct side *s = *state;
    uint64_t jail;
    for (int i = 0; i < 1000 && s->sandboxes.spare.count < SANDBOX_SPARE_MAX; i++)
        fake_turn(&s->fake);
    assert_int_equal(s->sandboxes.spare.count, SANDBOX_SPARE_MAX);
    struct sandbox *one = make(s, &jail);
    assert_true(has_file(sandbox_id(one), "exec.log"));
    assert_int_equal(entries(SANDBOX_SPARE_DIR), SANDBOX_SPARE_MAX - 1);
    s->sandboxes.spare.count = 0;
    struct sandbox *two = make(s, &jail);
    assert_false(has_file(sandbox_id(two), "exec.log"));
    restart(s, NULL);
    fake_send_ready(&s->fake);
    assert_true(s->sandboxes.spare.count >= SANDBOX_SPARE_MAX - 1);
    /* Both went with the runner: they are remembered, and their directories are not needed. */
    for (int i = 0; i < 1000 && entries(SANDBOXES_DIR) > 0; i++)
        fake_turn(&s->fake);
    assert_int_equal(entries(SANDBOXES_DIR), 0);
    assert_int_equal(rows(s), 2);
}

/* One that was deleted: its id. */
static void make_gone(struct side *s, char id[SANDBOX_ID_SIZE]) {
    uint64_t jail;
    struct sandbox *sb = make(s, &jail);
    memcpy(id, sandbox_id(sb), SANDBOX_ID_SIZE);
    assert_int_equal(store_sandboxes_has(s->store, id, NULL), 1);
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    fake_expect(&s->fake, WIRE_CLOSE);
    fake_send_closed(&s->fake, jail);
}

static void forgets_all(struct side *s) {
    uint64_t before = clock_mono_ms();
    while (entries(SANDBOXES_DIR) + rows(s) > 0 && clock_mono_ms() - before < 5000)
        fake_turn(&s->fake);
    assert_int_equal(entries(SANDBOXES_DIR), 0);
    assert_int_equal(rows(s), 0);
    assert_null(s->sandboxes.oldest);
}

static void test_forgotten_leave_nothing(void **state) {
    struct side *s = *state;
    char id[SANDBOX_ID_SIZE];
    s->sandboxes.gone_ms = 1;
    make_gone(s, id);
    forgets_all(s);
}

static void test_forgotten_after_a_start_leave_nothing(void **state) {
    struct side *s = *state;
    char id[3][SANDBOX_ID_SIZE];
    for (size_t i = 0; i < 3; i++)
        make_gone(s, id[i]);
    s->gone_ms = 1;
    restart(s, NULL);
    forgets_all(s);
}

/* By age, and in the order in which they went, however the directory lists them. */
static void test_order_after_a_start(void **state) {
    struct side *s = *state;
    uint64_t jail[3];
    struct sandbox *sb[3];
    for (size_t i = 0; i < 3; i++) {
        sb[i] = make(s, &jail[i]);
        fake_turn(&s->fake); /* milliseconds */
    }
    for (size_t i = 3; i-- > 0;) {
        sandbox_life_end(sb[i], SANDBOX_END_DELETED, NULL);
        fake_turn(&s->fake);
    }
    char id[3][SANDBOX_ID_SIZE];
    for (size_t i = 0; i < 3; i++)
        memcpy(id[i], sandbox_id(sb[i]), sizeof(id[i]));
    restart(s, NULL);
    const struct sandbox *x = s->sandboxes.newest;
    for (size_t i = 3; i-- > 0; x = sandbox_older(x))
        assert_string_equal(sandbox_id(x), id[i]);
    assert_null(x);
    assert_int_equal(s->sandboxes.gone_count, 3);
    assert_string_equal(sandbox_id(s->sandboxes.gone_oldest), id[2]);
    assert_string_equal(sandbox_id(s->sandboxes.gone_newest), id[0]);
}

static struct sandbox *adopt(struct side *s, const char *id) {
    fake_send_kept(&s->fake, WIRE_KEPT, id);
    fake_send_ready(&s->fake);
    fake_send_done(&s->fake, fake_expect(&s->fake, WIRE_ADOPT), 0);
    struct sandbox *sb = sandboxes_find(&s->sandboxes, id);
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
    return sb;
}

/* A server that starts: the sandbox is adopted, and nothing of it was kept. */
static struct sandbox *adopted(struct side *s, const char *id) {
    restart(s, NULL);
    return adopt(s, id);
}

static void read_only(struct side *s, bool on) {
    assert_int_equal(sqlite3_exec(s->store->db, on ? "PRAGMA query_only=1" : "PRAGMA query_only=0",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
}

/* A row that turns out at the end of the round not to be there: whoever waits is told, and nothing
 * of it stays with the runner. */
static void test_a_row_that_is_not_durable(void **state) {
    struct side *s = *state;
    struct waiter w;
    struct err why = {0};
    create(s, &w, NULL);
    err_set(&why, ERR_LIMIT, ENOSPC, "there is no space left");
    s->store->doomed = true;
    s->store->why = why;
    uint64_t jail = fake_expect(&s->fake, WIRE_OPEN)->jail;
    assert_int_equal(w.told, 1);
    assert_int_equal(w.status, 507);
    assert_int_equal(fake_expect(&s->fake, WIRE_CLOSE)->jail, jail);
    fake_send_closed(&s->fake, jail);
    assert_null(s->sandboxes.oldest);
    assert_int_equal(rows(s), 0);
}

/* As a server left it that kept sandboxes as files: it is adopted, and the file goes. */
static void test_files_become_rows(void **state) {
    struct side *s = *state;
    uint64_t jail;
    char id[SANDBOX_ID_SIZE], path[128], hidden[] = SANDBOXES_DIR "/sb_bbbbbbbbbbbbbbbbbbbbbbbb";
    struct err err = {0};
    struct sandbox *sb = make(s, &jail);
    memcpy(id, sandbox_id(sb), sizeof(id));
    fake_turn(&s->fake);
    end(s);
    fd_cleanup int dir = open("server", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store *store = NULL;
    struct store_options options = {.dir = dir};
    unit_works(store_open(&options, &store, &err), err);
    snprintf(path, sizeof(path), SANDBOXES_DIR "/%s/sandbox.json", id);
    sqlite3_stmt *q = NULL;
    sqlite3_prepare_v2(store->db, "DELETE FROM sandboxes RETURNING record", -1, &q, NULL);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(write(fd, sqlite3_column_blob(q, 0), (size_t)sqlite3_column_bytes(q, 0)) > 0);
    fd_close(&fd);
    sqlite3_finalize(q);
    assert_int_equal(mkdir(hidden, 0700), 0); /* of nobody */
    store_close(store);
    begin(s, NULL);
    fake_accept(&s->fake);
    fake_expect(&s->fake, WIRE_HELLO);
    fake_send_welcome(&s->fake, 4, 1);
    fake_send_policy(&s->fake, "default");
    sb = adopt(s, id);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rows(s), 1);
    for (int i = 0; i < 1000 && entries(SANDBOXES_DIR) > 1; i++)
        fake_turn(&s->fake);
    assert_int_equal(entries(SANDBOXES_DIR), 1);
    struct task a;
    run(s, sb, &a);
}

/* Numbers that are not reserved on disk are not used: the next server would use them again. */
static void test_no_numbers_without_a_disk(void **state) {
    struct side *s = *state;
    uint64_t jail;
    char id[SANDBOX_ID_SIZE];
    struct task first, a, b;
    struct err err = {0};
    struct sandbox *sb = make(s, &jail);
    memcpy(id, sandbox_id(sb), sizeof(id));
    run(s, sb, &first);
    restart(s, NULL);
    read_only(s, true);
    sb = adopt(s, id);
    assert_int_equal(sandbox_number(sb), 0);
    unit_fails(start(sb, &a, true, &err), err, ERR_SYSTEM);
    assert_true(fake_quiet(&s->fake));
    read_only(s, false);
    fake_turn(&s->fake);
    run(s, sb, &a);
    assert_true(a.task.number > first.task.number);
    run(s, adopted(s, id), &b);
    assert_true(b.task.number > a.task.number);
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_tasks_by_number),
        WITH_SHARD(test_wrong_end_breaks_the_connection),
        WITH_SHARD(test_delete_ends_what_runs),
        WITH_SHARD(test_slow_to_open),
        WITH_SHARD(test_waits_for_a_slot),
        cmocka_unit_test_setup_teardown(test_waits_for_another_to_end, setup_large, teardown),
        WITH_SHARD(test_cannot_be_written_when_its_turn_comes),
        WITH_SHARD(test_failed_to_open),
        WITH_SHARD(test_runner_dies),
        WITH_SHARD(test_connection_comes_back),
        WITH_SHARD(test_server_comes_back),
        WITH_SHARD(test_adopts_all_that_was_kept),
        WITH_SHARD(test_more_was_kept_than_can_be),
        WITH_SHARD(test_runner_kept_nothing),
        WITH_SHARD(test_no_numbers_without_a_disk),
        WITH_SHARD(test_a_row_that_is_not_durable),
        WITH_SHARD(test_files_become_rows),
        WITH_SHARD(test_idle_and_ttl),
        WITH_SHARD(test_spare_directories),
        WITH_SHARD(test_forgotten_leave_nothing),
        cmocka_unit_test_setup_teardown(test_forgotten_after_a_start_leave_nothing, setup_large,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_order_after_a_start, setup_large, teardown),
    };
    return cmocka_run_group_tests_name("sandboxes", tests, NULL, NULL);
}
