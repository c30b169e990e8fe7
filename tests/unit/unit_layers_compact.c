#include "layers_state.h"

#include "unit_layers_files.h"
#include "unit_layers_jail.h"

static int write_mib(const char *arg) {
    static char block[JAIL_MIB];
    const char *slash = strrchr(arg, '/');
    long mib = strtol(slash + 1, NULL, 10);
    memset(block, 7, sizeof block);
    int fd = open("/workspace/big", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0, "%s", arg);
    for (long i = 0; i < mib; i++) {
        CHECK(write(fd, block, sizeof block) == (ssize_t)sizeof block, "%ld of %ld MiB", i, mib);
    }
    fd_close(&fd);
    return 0;
}

static int room_mib(const char *arg) {
    struct statvfs fs;
    long want = strtol(arg, NULL, 10);
    CHECK(statvfs("/workspace", &fs) == 0, "statvfs");
    long have = (long)(fs.f_bavail * fs.f_frsize / JAIL_MIB);
    CHECK(have == want || have == want - 1, "%ld MiB", have);
    return 0;
}

/* Three states of 20 MiB, each over the one before. */
static void three_states(struct test_layers *t, struct test_jail *j) {
    static const char *const keys[] = {"c1", "c2", "c3"};
    test_jail_open(t, j, 100 * JAIL_MIB, 1000);
    test_in(j, make_tree, "/workspace/tree");
    for (size_t i = 0; i < UNIT_COUNT(keys); i++) {
        test_in(j, write_mib, "/20");
        test_in(j, put_file, i % 2 ? "/workspace/odd" : "/workspace/even");
        test_works(test_snapshot(t, j, keys[i], true), t);
    }
    test_in(j, room_mib, "40");
}

static void test_what_nobody_can_reach_makes_room(void **state) {
    struct test_layers *t = *state;
    struct test_jail j, f;
    uint64_t bytes = 0;
    if (t == NULL) {
        skip();
    }
    three_states(t, &j);
    layers_drop(t->layers, "c1");
    test_settle(t);
    layers_drop(t->layers, "c2");
    test_settle(t);
    assert_true(layers_find(t->layers, "c3", &bytes, NULL));
    assert_in_range(bytes, 20 * JAIL_MIB, 20 * JAIL_MIB + 65536);
    test_in(&j, put_file, "/workspace/live"); /* nobody has noticed */
    test_in(&j, is_tree, "/workspace/tree");
    test_works(test_snapshot(t, &j, "c4", true), t);
    assert_int_equal(t->result.depth, 2);
    test_settle(t);
    test_in(&j, room_mib, "80");
    test_in(&j, has_file, "/workspace/live");
    test_in(&j, has_file, "/workspace/odd");
    test_in(&j, has_file, "/workspace/even");
    test_jail_open(t, &f, 100 * JAIL_MIB, 1000);
    test_works(test_prepare(t, &f, WIRE_DISK_MEMORY, "c3"), t);
    test_in(&f, is_tree, "/workspace/tree");
    test_in(&f, lacks_file, "/workspace/live");
    test_in(&f, room_mib, "80");
    test_jail_close(&f);
    test_works(test_restore(t, &j, "c3"), t);
    test_in(&j, lacks_file, "/workspace/live");
    test_in(&j, has_file, "/workspace/odd");
    test_jail_close(&j);
    layers_drop(t->layers, "c3");
    layers_drop(t->layers, "c4");
}

static void test_who_needs_the_volume_does_not_wait(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    if (t == NULL) {
        skip();
    }
    three_states(t, &j);
    layers_drop(t->layers, "c1");
    assert_non_null(j.v->compacting);
    test_works(test_restore(t, &j, "c3"), t);
    assert_null(j.v->compacting);
    test_settle(t);
    test_in(&j, is_tree, "/workspace/tree");
    test_in(&j, room_mib, "40");
    layers_drop(t->layers, "c2"); /* once more, and to the end */
    assert_non_null(j.v->compacting);
    test_settle(t);
    assert_non_null(j.v->merged);
    test_works(test_restore(t, &j, "c3"), t);
    test_settle(t);
    test_in(&j, room_mib, "80");
    test_in(&j, is_tree, "/workspace/tree");
    test_jail_close(&j);
    layers_drop(t->layers, "c3");
}

static void test_a_state_that_has_a_name_is_left_alone(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    if (t == NULL) {
        skip();
    }
    three_states(t, &j);
    layers_drop(t->layers, "c3");
    assert_null(t->layers->fs->owner->merged);
    test_settle(t);
    test_works(test_restore(t, &j, "c1"), t);
    test_in(&j, lacks_file, "/workspace/odd");
    test_works(test_restore(t, &j, "c2"), t);
    test_in(&j, has_file, "/workspace/odd");
    test_jail_close(&j); /* in the middle of a merge, perhaps */
    layers_drop(t->layers, "c1");
    layers_drop(t->layers, "c2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_nobody_can_reach_makes_room),
        cmocka_unit_test(test_who_needs_the_volume_does_not_wait),
        cmocka_unit_test(test_a_state_that_has_a_name_is_left_alone),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}
