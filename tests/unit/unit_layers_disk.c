#include "layers_worker.h"

#include <sys/sysmacros.h>

#include "unit_layers_files.h"
#include "unit_layers_jail.h"

static int write_shm(const char *path) {
    (void)path;
    CHECK(put_file("/dev/shm/s") == 0 && put_file("/tmp/t") == 0 && put_file("/home/user/h") == 0,
          "the other places");
    return has_file("/dev/shm/s");
}

static int modes(const char *path) {
    static const struct {
        const char *path;
        mode_t mode;
        uid_t owner;
    } rows[] = {{"/workspace", 0755, 1000},
                {"/home/user", 0755, 1000},
                {"/tmp", 01777, 0},
                {"/var/tmp", 01777, 0},
                {"/dev/shm", 01777, 0}};
    struct stat st;
    (void)path;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        CHECK(stat(rows[i].path, &st) == 0, "%s", rows[i].path);
        CHECK((st.st_mode & 07777) == rows[i].mode && st.st_uid == rows[i].owner, "%s: %o of %u",
              rows[i].path, st.st_mode, st.st_uid);
        CHECK(count_entries(rows[i].path) == 0, "%s is not empty", rows[i].path);
    }
    return 0;
}

static int no_device(const char *path) {
    struct statvfs fs;
    (void)path;
    CHECK(statvfs("/workspace", &fs) == 0, "statvfs");
    CHECK((fs.f_flag & ST_NOSUID) && (fs.f_flag & ST_NODEV), "flags %lx", fs.f_flag);
    return 0;
}

static int use_is_near(struct test_jail *j, uint64_t want) {
    uint64_t bytes, inodes;
    bool full;
    assert_int_equal(layers_use(j->v, &bytes, &inodes, &full), 0);
    assert_in_range(bytes, want, want + 256 * 1024);
    return full;
}

static void test_a_disk_file_holds_what_was_promised(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    uint64_t bytes, inodes;
    bool full;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &a, WIRE_DISK_FILE, ""), t);
    assert_int_equal(count_entries(t->disk_dir), 0); /* it has no name */
    assert_int_equal(layers_use(a.v, &bytes, &inodes, &full), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(inodes, 0);
    assert_false(full);
    test_in(&a, modes, "");
    test_in(&a, no_device, "");
    test_in(&a, write_shm, "");
    test_in(&a, make_big, "/workspace/big");
    assert_false(use_is_near(&a, 8 * JAIL_MIB));
    test_in(&a, fill_disk, "/workspace/full");
    assert_int_equal(layers_use(a.v, &bytes, &inodes, &full), 0);
    assert_true(full);
    assert_in_range(bytes, 62 * JAIL_MIB, 64 * JAIL_MIB);
    test_in(&a, gone_file, "/workspace/full");
    test_in(&a, fill_inodes, "/workspace/1980");
    test_jail_close(&a);
}

static void test_snapshots_of_a_disk_file(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b, c;
    struct stat st;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &a, WIRE_DISK_FILE, ""), t);
    test_in(&a, make_big, "/workspace/big");
    test_in(&a, make_tree, "/workspace/tree");
    test_works(test_snapshot(t, &a, "d1", true), t);
    assert_in_range(t->result.bytes, 8 * JAIL_MIB, 8 * JAIL_MIB + 65536);
    test_in(&a, put_file, "/workspace/new");
    fd_cleanup int upper = layers_upper(a.v, NULL);
    assert_int_equal(fstatat(upper, "workspace/new", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_uid, a.as.id_base + 1000); /* as the jail has it */
    test_in(&a, gone_file, "/workspace/big");
    test_works(test_snapshot(t, &a, "d2", false), t);
    test_works(test_restore(t, &a, "d1"), t);
    test_in(&a, lacks_file, "/workspace/new");
    test_in(&a, is_tree, "/workspace/tree");
    /* In memory from a file, and in a file from memory and a file. */
    test_jail_open(t, &b, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "d1"), t);
    test_in(&b, is_tree, "/workspace/tree");
    test_in(&b, put_file, "/workspace/tree/b");
    test_works(test_snapshot(t, &b, "d3", true), t);
    test_jail_open(t, &c, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &c, WIRE_DISK_FILE, "d3"), t);
    test_jail_close(&a);
    test_jail_close(&b);
    layers_drop(t->layers, "d1");
    layers_drop(t->layers, "d2");
    layers_drop(t->layers, "d3");
    test_in(&c, has_file, "/workspace/tree/b");
    test_in(&c, is_tree, "/workspace/tree");
    test_in(&c, write_shm, "");
    test_in(&c, put_file, "/workspace/tree/c");
    test_works(test_snapshot(t, &c, "d4", true), t);
    test_works(test_restore(t, &c, "d4"), t);
    test_in(&c, has_file, "/workspace/tree/c");
    test_jail_close(&c);
    layers_drop(t->layers, "d4");
}

static int room_is(const char *arg) {
    struct statvfs fs;
    long want = strtol(arg, NULL, 10);
    CHECK(statvfs("/workspace", &fs) == 0, "statvfs");
    long have = (long)(fs.f_bavail * fs.f_frsize / JAIL_MIB);
    CHECK(have == want || have == want - 1, "%ld MiB", have);
    return 0;
}

static void test_a_limit_holds_across_forks_of_a_disk_file(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    uint64_t bytes, inodes;
    bool full;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &a, WIRE_DISK_FILE, ""), t);
    test_works(test_snapshot(t, &a, "l0", true), t);
    test_in(&a, room_is, "64");
    test_in(&a, make_big, "/workspace/big");
    test_in(&a, room_is, "56");
    test_works(test_snapshot(t, &a, "l1", true), t);
    test_jail_open(t, &b, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &b, WIRE_DISK_FILE, "l1"), t);
    test_in(&b, room_is, "56");
    test_in(&b, make_big, "/workspace/more");
    test_in(&b, room_is, "48");
    test_works(test_snapshot(t, &b, "l2", true), t);
    assert_int_equal(layers_use(b.v, &bytes, &inodes, &full), 0);
    assert_in_range(bytes, 16 * JAIL_MIB, 16 * JAIL_MIB + 262144);
    test_works(test_restore(t, &a, "l2"), t); /* of which the first has the half */
    test_in(&a, room_is, "48");
    test_in(&a, fill_disk, "/workspace/full");
    test_works(test_restore(t, &a, "l0"), t);
    test_settle(t);
    test_in(&a, room_is, "56");
    test_jail_close(&b);
    test_jail_open(t, &b, 12 * JAIL_MIB, 2000);
    assert_int_equal(test_prepare(t, &b, WIRE_DISK_FILE, "l2"), ENOSPC);
    test_jail_close(&b);
    test_jail_close(&a);
    layers_drop(t->layers, "l0");
    layers_drop(t->layers, "l1");
    layers_drop(t->layers, "l2");
}

/* Loop devices whose file was in the directory of this test. */
static int loops_of(const struct test_layers *t) {
    struct stat dir;
    int n = 0;
    assert_int_equal(fstat(t->disk_fd, &dir), 0);
    for (int i = 0; i < 256; i++) {
        char path[64], text[4300];
        (void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
        n += read_text(path, text, sizeof text) == 0 && strstr(text, t->disk_dir) != NULL;
    }
    return n;
}

static void loops_become(struct test_layers *t, int want) {
    struct err e;
    uint64_t due = clock_mono_ms() + 10000;
    while (loops_of(t) != want && clock_mono_ms() < due) {
        assert_int_equal(loop_once(t->loop, 10 * CLOCK_NS_PER_MS, &e), 0);
    }
    assert_int_equal(loops_of(t), want);
}

/* Tried at start where a tmpfs cannot be kept, which is not here. */
static void test_the_attempt_on_disk_files_works_and_leaves_nothing(void **state) {
    struct test_layers *t = *state;
    char missing[WIRE_TEXT_MAX] = "untouched";
    if (t == NULL) {
        skip();
    }
    loops_become(t, 0); /* of the tests before */
    layers_job_probe(t->layers, LAYERS_OP_PROBE_SNAPSHOTS, LAYERS_FORMAT, missing);
    assert_string_equal(missing, "");
    loops_become(t, 0);
}

static void test_nothing_of_a_disk_file_is_left(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 2000);
    test_jail_open(t, &b, 64 * JAIL_MIB, 2000);
    test_works(test_prepare(t, &a, WIRE_DISK_FILE, ""), t);
    test_works(test_prepare(t, &b, WIRE_DISK_FILE, ""), t);
    test_works(test_snapshot(t, &b, "left", true), t);
    assert_true(loops_of(t) >= 2);
    test_jail_close(&a);
    test_jail_close(&b);
    layers_drop(t->layers, "left");
    loops_become(t, 0);
}

/* The runner is killed: what a process of it held goes with it. */
static void test_nothing_is_left_after_a_kill(void **state) {
    struct test_layers *t = *state;
    if (t == NULL) {
        skip();
    }
    shared_text[3500] = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct test_layers mine = *t;
        struct test_jail a;
        struct err e;
        mine.loop = loop_new(&e);
        struct layers_config cfg = {.loop = mine.loop, .disk_dirfd = t->disk_fd};
        mine.layers = layers_new(&cfg, &e);
        test_jail_open(&mine, &a, 64 * JAIL_MIB, 2000);
        if (test_prepare(&mine, &a, WIRE_DISK_FILE, "") == 0 &&
            test_snapshot(&mine, &a, "killed", true) == 0 && loops_of(t) > 0) {
            shared_text[3500] = 1;
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(shared_text[3500], 1);
    uint64_t due = clock_mono_ms() + 10000;
    while (loops_of(t) > 0 && clock_mono_ms() < due) {
        (void)usleep(1000);
    }
    assert_int_equal(loops_of(t), 0);
    assert_int_equal(count_entries(t->disk_dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_disk_file_holds_what_was_promised),
        cmocka_unit_test(test_snapshots_of_a_disk_file),
        cmocka_unit_test(test_a_limit_holds_across_forks_of_a_disk_file),
        cmocka_unit_test(test_the_attempt_on_disk_files_works_and_leaves_nothing),
        cmocka_unit_test(test_nothing_of_a_disk_file_is_left),
        cmocka_unit_test(test_nothing_is_left_after_a_kill),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}
