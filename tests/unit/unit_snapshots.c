/* What the server knows of snapshots, with a runner shard that the test plays. */
#include "snapshots.h"

#include <fcntl.h>

#include "fake_shard.h"
#include "store_file.h"
#include "store_internal.h"

struct side {
    struct fake_shard fake;
    struct log log;
    struct links links;
    struct snapshots all;
    struct store *store;
};

static void room(void *arg) {
    (void)arg;
}

static void ready(void *arg, struct link *l) {
    snapshots_ready(&((struct side *)arg)->all, l);
}

static void down(void *arg, struct link *l) {
    snapshots_down(&((struct side *)arg)->all, l);
}

static void dead(void *arg, const char *name) {
    snapshots_dead(&((struct side *)arg)->all, name);
}

static void begin(struct side *t) {
    struct err err = {0};
    struct links_watch watch = {.room = room, .ready = ready, .down = down, .dead = dead, .arg = t};
    const struct snapshots_options options = {.count = 3, .bytes = 2048};
    fd_cleanup int dir = open("server", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store_options store = {.loop = t->fake.loop, .log = &t->log, .dir = dir};
    unit_works(store_open(&store, &t->store, &err), err);
    snapshots_init(&t->all, t->fake.loop, &t->log, &t->links);
    t->all.store = t->store;
    unit_works(snapshots_start(&t->all, &options, &err), err);
    links_start(&t->links, t->fake.loop, &t->log, &watch);
}

static void end(struct side *t) {
    snapshots_done(&t->all);
    store_close(t->store);
    links_stop(&t->links);
    fd_close(&t->fake.fd);
}

static int setup(void **state) {
    struct side *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    fake_start(&t->fake);
    assert_int_equal(mkdir("server", 0700), 0);
    log_init(&t->log, -1, LOG_ERROR, "unit");
    begin(t);
    fake_greet(&t->fake, 2);
    *state = t;
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    end(t);
    int dir = open("server", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    store_file_empty(dir, NULL);
    fd_close(&dir);
    rmdir("server");
    fake_stop(&t->fake);
    free(t);
    return 0;
}

static struct snapshot *add(struct side *t, uint64_t added, bool step) {
    struct snapshot info;
    struct wire_done done;
    struct api_error error = {0};
    memset(&info, 0, sizeof(info));
    memset(&done, 0, sizeof(done));
    if (snapshots_begin(&t->all, &info, &error) < 0)
        fail_msg("%s", error.message);
    snprintf(info.owner, sizeof(info.owner), "ann");
    snprintf(info.shard, sizeof(info.shard), FAKE_SOCKET);
    snprintf(info.image, sizeof(info.image), "host");
    snprintf(info.name, sizeof(info.name), "a \"name\"");
    info.step = step;
    done.bytes = 4096;
    done.files = 7;
    done.added_bytes = added;
    struct snapshot *snap = snapshots_add(&t->all, &info, &done);
    assert_non_null(snap);
    return snap;
}

static void refused(struct side *t, const char *option) {
    struct api_error error = {0};
    struct snapshot info = {0};
    assert_int_equal(snapshots_begin(&t->all, &info, &error), -1);
    assert_int_equal(error.status, 429);
    assert_non_null(strstr(error.message, option));
}

static void test_bounded_in_number_and_bytes(void **state) {
    struct side *t = *state;
    struct api_error error = {0};
    struct snapshot info = {0};
    struct snapshot *first = add(t, 10, false);
    add(t, 10, false);
    /* One that is being made counts. */
    assert_int_equal(snapshots_begin(&t->all, &info, &error), 0);
    refused(t, "--snapshots");
    snapshots_give_up(&t->all);
    struct snapshot *large = add(t, 2048, false);
    assert_int_equal(t->all.bytes, 2068);
    snapshots_remove(&t->all, first);
    fake_expect(&t->fake, WIRE_DROP);
    refused(t, "--snapshot-bytes");
    char key[SANDBOX_ID_SIZE];
    memcpy(key, large->id, sizeof(key));
    snapshots_remove(&t->all, large);
    const struct wire_key *drop =
        (const struct wire_key *)(const void *)fake_expect(&t->fake, WIRE_DROP);
    assert_string_equal(drop->key, key);
    assert_null(snapshots_find(&t->all, key));
    add(t, 1, false);
}

/* Its layer stays as long as a later one needs it, and so does what it counts; but no more than
 * that one holds in all. */
static void test_what_a_later_one_stands_on_still_counts(void **state) {
    struct side *t = *state;
    struct snapshot *first = add(t, 1000, false);
    struct snapshot *second = add(t, 0, false);
    snapshots_remove(&t->all, first);
    fake_expect(&t->fake, WIRE_DROP);
    assert_int_equal(second->added_bytes, 1000);
    assert_int_equal(t->all.bytes, 1000);
    second->bytes = 1500;
    struct snapshot *third = add(t, 900, false);
    third->bytes = 1500;
    snapshots_remove(&t->all, second);
    fake_expect(&t->fake, WIRE_DROP);
    assert_int_equal(t->all.bytes, 1500);
    snapshots_remove(&t->all, third);
    fake_expect(&t->fake, WIRE_DROP);
    assert_int_equal(t->all.bytes, 0);
}

static void test_steps_make_room(void **state) {
    struct side *t = *state;
    char step[2][SANDBOX_ID_SIZE];
    add(t, 10, false);
    memcpy(step[0], add(t, 10, true)->id, SANDBOX_ID_SIZE);
    memcpy(step[1], add(t, 10, true)->id, SANDBOX_ID_SIZE);
    add(t, 10, false);
    const struct wire_key *drop =
        (const struct wire_key *)(const void *)fake_expect(&t->fake, WIRE_DROP);
    assert_string_equal(drop->key, step[0]);
    assert_null(snapshots_find(&t->all, step[0]));
    assert_non_null(snapshots_find(&t->all, step[1]));
    add(t, 10, false);
    fake_expect(&t->fake, WIRE_DROP);
    refused(t, "--snapshots");
}

static void greet_with(struct side *t, const char *const *keys, size_t count) {
    fake_accept(&t->fake);
    fake_expect(&t->fake, WIRE_HELLO);
    fake_send_welcome(&t->fake, 2, 1);
    fake_send_policy(&t->fake, "default");
    for (size_t i = 0; i < count; i++)
        fake_send_kept(&t->fake, WIRE_KEPT_SNAPSHOT, keys[i]);
    fake_send_ready(&t->fake);
}

static void test_survive_the_server(void **state) {
    struct side *t = *state;
    char kept[SANDBOX_ID_SIZE], lost[SANDBOX_ID_SIZE], step[SANDBOX_ID_SIZE];
    memcpy(kept, add(t, 10, false)->id, sizeof(kept));
    memcpy(lost, add(t, 10, false)->id, sizeof(lost));
    memcpy(step, add(t, 10, true)->id, sizeof(step));
    end(t);
    begin(t);
    assert_non_null(snapshots_find(&t->all, kept));
    assert_false(snapshots_find(&t->all, kept)->settled);
    const char *const keys[] = {kept, step};
    greet_with(t, keys, 2);
    const struct snapshot *snap = snapshots_find(&t->all, kept);
    assert_true(snap->settled);
    assert_string_equal(snap->name, "a \"name\"");
    assert_string_equal(snap->owner, "ann");
    assert_int_equal(snap->files, 7);
    assert_int_equal(t->all.bytes, 10);
    /* What the shard has not is gone; what only it knows is dropped. */
    assert_null(snapshots_find(&t->all, lost));
    const struct wire_key *drop =
        (const struct wire_key *)(const void *)fake_expect(&t->fake, WIRE_DROP);
    assert_string_equal(drop->key, step);
    /* For good: the file went, too. */
    end(t);
    begin(t);
    assert_int_equal(t->all.count, 1);
    greet_with(t, keys, 1);
}

static void test_go_with_their_runner(void **state) {
    struct side *t = *state;
    char id[SANDBOX_ID_SIZE], step[SANDBOX_ID_SIZE + 16];
    memcpy(id, add(t, 10, false)->id, sizeof(id));
    const struct snapshot *of_step = add(t, 10, true);
    snprintf(step, sizeof(step), "%s@%u", of_step->source, of_step->step_index);
    fd_close(&t->fake.listener);
    fd_close(&t->fake.fd);
    for (int i = 0; i < 400 && snapshots_find(&t->all, id) != NULL; i++)
        fake_turn(&t->fake);
    assert_null(snapshots_find(&t->all, id));
    assert_int_equal(t->all.bytes, 0);
    assert_true(snapshots_lost_has(&t->all.lost, "ann", id));
    assert_false(snapshots_lost_has(&t->all.lost, "bob", id));
    assert_true(snapshots_lost_has(&t->all.lost, "ann", step));
}

static void test_the_newest_that_were_lost_are_known(void **state) {
    (void)state;
    struct snapshots_lost lost = {0};
    char ref[SANDBOX_ID_SIZE];
    assert_false(snapshots_lost_has(&lost, "", ""));
    for (unsigned i = 0; i <= SNAPSHOTS_LOST_MAX; i++) {
        snprintf(ref, sizeof(ref), "snap_%u", i);
        snapshots_lost_add(&lost, "ann", ref);
    }
    assert_false(snapshots_lost_has(&lost, "", ""));
    assert_false(snapshots_lost_has(&lost, "ann", "snap_0"));
    assert_true(snapshots_lost_has(&lost, "ann", "snap_1"));
    assert_true(snapshots_lost_has(&lost, "ann", ref));
    snapshots_lost_done(&lost);
}

static void put_file(const char *name, const char *text) {
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fd_close(&fd);
}

/* As a server left them that kept them as files: one that is whole, and two that are not. */
static void test_files_become_rows(void **state) {
    struct side *t = *state;
    end(t);
    assert_int_equal(mkdir(SNAPSHOTS_DIR, 0700), 0);
    put_file(SNAPSHOTS_DIR "/snap_aaaaaaaaaaaaaaaaaaaaaaaa.json", "{\"owner\":");
    put_file(SNAPSHOTS_DIR "/.x.json.new", "");
    put_file(SNAPSHOTS_DIR "/snap_bbbbbbbbbbbbbbbbbbbbbbbb.json",
             "{\"version\":1,\"owner\":\"ann\",\"token\":\"\",\"shard\":\"" FAKE_SOCKET
             "\",\"image\":\"host\",\"policy\":\"default\",\"source\":\"sb_1\",\"name\":\"old\","
             "\"disk\":0,\"bytes\":4096,\"files\":3,\"added_bytes\":12,\"created_at\":5}");
    for (int i = 0; i < 2; i++) {
        begin(t);
        assert_int_equal(t->all.count, 1);
        const struct snapshot *snap = snapshots_find(&t->all, "snap_bbbbbbbbbbbbbbbbbbbbbbbb");
        assert_non_null(snap);
        assert_string_equal(snap->name, "old");
        assert_int_equal(snap->added_bytes, 12);
        assert_int_equal(snap->created_ms, 5);
        assert_int_equal(access(SNAPSHOTS_DIR, F_OK), -1);
        const char *const keys[] = {snap->id};
        greet_with(t, keys, 1);
        if (i == 0)
            end(t);
    }
}

static void read_only(struct side *t, bool on) {
    assert_int_equal(sqlite3_exec(t->store->db, on ? "PRAGMA query_only=1" : "PRAGMA query_only=0",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
}

/* One whose row could not be written is written when that works again. */
static void test_written_when_the_disk_is_well_again(void **state) {
    struct side *t = *state;
    char id[SANDBOX_ID_SIZE];
    read_only(t, true);
    struct snapshot *snap = add(t, 10, false);
    memcpy(id, snap->id, sizeof(id));
    assert_true(snap->unsaved);
    fake_turn(&t->fake);
    assert_non_null(store_sick(t->store));
    read_only(t, false);
    (void)store_probe(t->store);
    fake_turn(&t->fake);
    assert_null(store_sick(t->store));
    snapshots_well(&t->all);
    fake_turn(&t->fake);
    assert_false(snap->unsaved);
    end(t);
    begin(t);
    assert_non_null(snapshots_find(&t->all, id));
    const char *const keys[] = {id};
    greet_with(t, keys, 1);
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_bounded_in_number_and_bytes),
        WITH_SHARD(test_what_a_later_one_stands_on_still_counts),
        WITH_SHARD(test_steps_make_room),
        WITH_SHARD(test_survive_the_server),
        WITH_SHARD(test_go_with_their_runner),
        cmocka_unit_test(test_the_newest_that_were_lost_are_known),
        WITH_SHARD(test_files_become_rows),
        WITH_SHARD(test_written_when_the_disk_is_well_again),
    };
    return cmocka_run_group_tests_name("snapshots", tests, NULL, NULL);
}
