/* What the server knows of snapshots, with a runner shard that the test plays. */
#include "snapshots.h"

#include <fcntl.h>

#include "fake_shard.h"
#include "store_file.h"

struct side {
    struct fake_shard fake;
    struct log log;
    struct links links;
    struct snapshots all;
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
    snapshots_init(&t->all, t->fake.loop, &t->log, &t->links);
    unit_works(snapshots_start(&t->all, &options, &err), err);
    links_start(&t->links, t->fake.loop, &t->log, &watch);
}

static void end(struct side *t) {
    snapshots_done(&t->all);
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
    char id[SANDBOX_ID_SIZE];
    memcpy(id, add(t, 10, false)->id, sizeof(id));
    fd_close(&t->fake.listener);
    fd_close(&t->fake.fd);
    for (int i = 0; i < 400 && snapshots_find(&t->all, id) != NULL; i++)
        fake_turn(&t->fake);
    assert_null(snapshots_find(&t->all, id));
    assert_int_equal(t->all.bytes, 0);
}

static void test_broken_files_are_removed(void **state) {
    struct side *t = *state;
    end(t);
    int fd = open(SNAPSHOTS_DIR "/snap_aaaaaaaaaaaaaaaaaaaaaaaa.json", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "{\"owner\":", 9), 9);
    fd_close(&fd);
    fd = open(SNAPSHOTS_DIR "/.x.json.new", O_WRONLY | O_CREAT, 0600);
    fd_close(&fd);
    begin(t);
    assert_int_equal(t->all.count, 0);
    assert_int_equal(access(SNAPSHOTS_DIR "/snap_aaaaaaaaaaaaaaaaaaaaaaaa.json", F_OK), -1);
    assert_int_equal(access(SNAPSHOTS_DIR "/.x.json.new", F_OK), -1);
    fake_greet(&t->fake, 2);
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_bounded_in_number_and_bytes),
        WITH_SHARD(test_what_a_later_one_stands_on_still_counts),
        WITH_SHARD(test_steps_make_room),
        WITH_SHARD(test_survive_the_server),
        WITH_SHARD(test_go_with_their_runner),
        WITH_SHARD(test_broken_files_are_removed),
    };
    return cmocka_run_group_tests_name("snapshots", tests, NULL, NULL);
}
