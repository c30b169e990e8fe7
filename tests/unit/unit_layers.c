#include "layers.h"

#include "unit_layers_files.h"
#include "unit_layers_jail.h"

static void test_this_host_can(void **state) {
    struct test_layers *t = *state;
    if (t == NULL) {
        skip();
    }
    for (int disk = 0; disk < WIRE_DISK_COUNT; disk++) {
        if (layers_snapshots_missing(t->layers, (enum wire_disk)disk) != NULL) {
            fail_msg("%s", layers_snapshots_missing(t->layers, (enum wire_disk)disk));
        }
    }
    if (layers_files_missing(t->layers) != NULL) {
        fail_msg("%s", layers_files_missing(t->layers));
    }
}

static void test_switch_and_restore(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    struct err e;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 64 * JAIL_MIB, 10000);
    unit_fails(layers_upper(j.v, &e), e, ERR_STATE);
    test_in(&j, put_file, "/workspace/a");
    test_in(&j, put_file, "/home/user/h");
    test_in(&j, put_file, "/var/tmp/v");
    test_in(&j, put_file, "/tmp/t");
    test_works(test_snapshot(t, &j, "one", true), t);
    assert_int_equal(t->result.depth, 1);
    assert_int_equal(t->result.files, 3);
    assert_int_equal(t->result.bytes, 3 * 4096);
    test_in(&j, has_file, "/workspace/a");
    test_in(&j, has_file, "/home/user/h");
    test_in(&j, has_file, "/tmp/t");
    test_in(&j, put_file, "/workspace/b");
    test_in(&j, gone_file, "/workspace/a");
    test_works(test_snapshot(t, &j, "two", true), t);
    assert_int_equal(t->result.depth, 2);
    assert_int_equal(t->result.added_bytes, 4096);
    test_in(&j, lacks_file, "/workspace/a");
    test_works(test_restore(t, &j, "one"), t);
    test_in(&j, has_file, "/workspace/a");
    test_in(&j, lacks_file, "/workspace/b");
    test_in(&j, has_file, "/tmp/t");
    test_in(&j, put_file, "/workspace/c");
    test_works(test_restore(t, &j, "two"), t);
    test_in(&j, lacks_file, "/workspace/a");
    test_in(&j, has_file, "/workspace/b");
    test_in(&j, lacks_file, "/workspace/c");
    assert_int_equal(test_restore(t, &j, "none"), ENOENT);
    assert_int_equal(test_snapshot(t, &j, "one", true), EEXIST);
    test_jail_close(&j);
    layers_drop(t->layers, "one");
    layers_drop(t->layers, "two");
}

/* Its number may be any process's: of that nobody's mounts are touched. */
static void test_process_1_that_somebody_else_waits_for_has_died(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    test_in(&j, put_file, "/workspace/a");
    layers_close(j.v);
    pid_t dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    struct layers_jail as = j.as;
    as.pidfd = (int)syscall(SYS_pidfd_open, dead, 0);
    assert_true(as.pidfd > 0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    j.v = layers_open(t->layers, &as, NULL);
    assert_non_null(j.v);
    assert_int_equal(test_snapshot(t, &j, "ghost", true), EIO); /* nothing was begun */
    fd_close(&as.pidfd);
    test_jail_close(&j);
}

static void test_before_the_first_snapshot_nothing_changes(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    uint64_t bytes = 1, inodes = 1;
    bool full = true;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    test_works(test_prepare(t, &j, WIRE_DISK_MEMORY, ""), t);
    assert_int_equal(layers_use(j.v, &bytes, &inodes, &full), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(inodes, 0);
    assert_false(full);
    test_in(&j, put_file, "/workspace/a");
    assert_int_equal(layers_use(j.v, &bytes, &inodes, &full), 0);
    assert_int_equal(bytes, 4096);
    assert_int_equal(inodes, 1);
    assert_int_equal(test_prepare(t, &j, WIRE_DISK_MEMORY, "none"), ENOENT);
    test_jail_close(&j);
}

static void test_what_is_ours_does_not_count(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    uint64_t bytes = 1, inodes = 1;
    bool full = true;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    for (int i = 0; i < 3; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "empty%d", i);
        test_works(test_snapshot(t, &j, key, true), t);
        assert_int_equal(t->result.bytes, 0);
        assert_int_equal(t->result.files, 0);
        test_settle(t);
        assert_int_equal(layers_use(j.v, &bytes, &inodes, &full), 0);
        assert_int_equal(bytes, 0);
        assert_int_equal(inodes, 0);
        assert_false(full);
    }
    /* As many as it may have, but for attributes that count as a part of one. */
    test_in(&j, fill_inodes, "/workspace/95");
    assert_int_equal(layers_use(j.v, &bytes, &inodes, &full), 0);
    assert_true(full);
    assert_in_range(inodes, 95, 100);
    test_jail_close(&j);
    for (int i = 0; i < 3; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "empty%d", i);
        layers_drop(t->layers, key);
    }
}

static void test_a_full_disk_can_be_kept(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    uint64_t bytes, inodes;
    bool full = false;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, JAIL_MIB, 100);
    test_in(&j, fill_disk, "/workspace/big");
    assert_int_equal(layers_use(j.v, &bytes, &inodes, &full), 0);
    assert_true(full);
    test_works(test_snapshot(t, &j, "full", true), t);
    assert_int_equal(t->result.bytes, JAIL_MIB);
    test_in(&j, gone_file, "/workspace/big");
    assert_int_equal(layers_use(j.v, &bytes, &inodes, &full), 0);
    assert_true(full); /* the snapshot needs it */
    test_works(test_restore(t, &j, "full"), t);
    layers_drop(t->layers, "full");
    test_jail_close(&j);
}

static void test_all_inodes_can_be_kept(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    test_in(&j, fill_inodes, "/workspace/50");
    test_works(test_snapshot(t, &j, "many", true), t);
    test_works(test_restore(t, &j, "many"), t);
    test_jail_close(&j);
    layers_drop(t->layers, "many");
}

static void test_the_live_directory_is_told(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    struct stat st;
    struct err e;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    test_in(&j, put_file, "/workspace/old");
    test_works(test_snapshot(t, &j, "live", true), t);
    test_in(&j, put_file, "/workspace/new");
    test_in(&j, gone_file, "/workspace/old");
    fd_cleanup int upper = layers_upper(j.v, &e);
    assert_true(upper >= 0);
    assert_int_equal(fstatat(upper, "workspace/new", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_uid, j.as.id_base + 1000);
    assert_int_equal(fstatat(upper, "workspace/old", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISCHR(st.st_mode) && st.st_rdev == 0);
    assert_int_equal(fstatat(upper, "home", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(fstatat(upper, "tmp", &st, AT_SYMLINK_NOFOLLOW), -1);
    test_jail_close(&j);
    layers_drop(t->layers, "live");
}

static void count_keys(void *arg, const char *key, uint64_t bytes, uint64_t files) {
    unsigned *n = arg;
    assert_true(strcmp(key, "k1") == 0 || strcmp(key, "k2") == 0);
    assert_int_equal(bytes, 4096);
    assert_int_equal(files, 1);
    (*n)++;
}

static void test_snapshots_are_listed_until_dropped(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    uint64_t bytes, files;
    unsigned n = 0;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    test_in(&j, put_file, "/workspace/a");
    test_works(test_snapshot(t, &j, "k1", true), t);
    test_works(test_snapshot(t, &j, "k2", true), t);
    test_jail_close(&j);
    layers_each(t->layers, count_keys, &n);
    assert_int_equal(n, 2);
    assert_true(layers_find(t->layers, "k1", &bytes, &files));
    assert_int_equal(bytes, 4096);
    layers_drop(t->layers, "k1");
    assert_false(layers_find(t->layers, "k1", NULL, NULL));
    assert_true(layers_find(t->layers, "k2", NULL, NULL));
    layers_drop(t->layers, "k2");
    layers_drop(t->layers, "k2");
    n = 0;
    layers_each(t->layers, count_keys, &n);
    assert_int_equal(n, 0);
}

/* A dropped snapshot whose layer a later one stands on still takes room, also when the later one
 * has added nothing and the jail is gone. */
static void test_what_layers_hold_is_bounded(void **state) {
    struct test_layers *t = *state, mine;
    struct test_jail j;
    struct err e;
    if (t == NULL) {
        skip();
    }
    mine = *t;
    struct layers_config cfg = {
        .loop = t->loop, .disk_dirfd = t->disk_fd, .layer_bytes = 2 * JAIL_MIB};
    mine.layers = layers_new(&cfg, &e);
    assert_non_null(mine.layers);
    test_jail_open(&mine, &j, 4 * JAIL_MIB, 1000);
    test_in(&j, fill_disk, "/workspace/a");
    test_works(test_snapshot(&mine, &j, "one", true), &mine);
    assert_int_equal(test_snapshot(&mine, &j, "two", true), ENOSPC);
    layers_drop(mine.layers, "one");
    assert_int_equal(test_snapshot(&mine, &j, "two", true), ENOSPC);
    test_jail_close(&j);
    test_jail_open(&mine, &j, 4 * JAIL_MIB, 1000);
    test_works(test_snapshot(&mine, &j, "three", true), &mine);
    test_jail_close(&j);
    layers_free(mine.layers);
    t->jails = mine.jails;
}

static void test_a_close_ends_what_is_in_progress(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    struct err e;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 64 * JAIL_MIB, 1000);
    test_in(&j, fill_disk, "/workspace/big");
    t->done = false;
    layers_snapshot(j.v, "never", false, test_done, t);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(loop_once(t->loop, CLOCK_NS_PER_MS, &e), 0);
    }
    bool early = t->done;
    test_jail_close(&j);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(loop_once(t->loop, CLOCK_NS_PER_MS, &e), 0);
    }
    assert_int_equal(t->done, early);
    layers_drop(t->layers, "never");
}

static void test_one_operation_at_a_time(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    struct test_layers other = {.done = false};
    struct err e;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    t->done = false;
    layers_snapshot(j.v, "first", true, test_done, t);
    layers_snapshot(j.v, "second", true, test_done, &other);
    assert_false(t->done || other.done);
    while (!t->done || !other.done) {
        assert_int_equal(loop_once(t->loop, CLOCK_NS_PER_S, &e), 0);
    }
    assert_int_equal(t->result.code, 0);
    assert_int_equal(other.result.code, EBUSY);
    test_works(test_snapshot(t, &j, "third", true), t);
    test_jail_close(&j);
    layers_drop(t->layers, "first");
    layers_drop(t->layers, "third");
}

static int zygote_mounts(const struct test_layers *t) {
    static char text[1 << 20];
    char path[64];
    int n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/mounts", (int)t->layers->zygote.pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            n += text[i] == '\n';
        }
    }
    fd_close(&fd);
    return n;
}

static void test_nothing_is_left_over(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    if (t == NULL) {
        skip();
    }
    test_settle(t);
    int fds = count_entries("/proc/self/fd");
    int mounts = zygote_mounts(t);
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_in(&a, put_file, "/workspace/a");
    test_works(test_snapshot(t, &a, "l1", false), t);
    test_works(test_snapshot(t, &a, "l2", true), t);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "l2"), t);
    test_works(test_snapshot(t, &b, "l3", true), t);
    test_works(test_restore(t, &a, "l3"), t);
    assert_int_equal(zygote_mounts(t), mounts + 2);
    test_jail_close(&a);
    layers_drop(t->layers, "l1");
    layers_drop(t->layers, "l2");
    test_settle(t);
    assert_int_equal(zygote_mounts(t), mounts + 2); /* one stands on the other */
    test_jail_close(&b);
    layers_drop(t->layers, "l3");
    test_settle(t);
    assert_int_equal(zygote_mounts(t), mounts);
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_null(t->layers->fs);
}

/* Kills the process that copies. -> false: it was done before, or had found no room. */
static bool test_dies(struct test_layers *t, struct test_jail *j) {
    struct err e;
    t->done = false;
    layers_snapshot(j->v, "dies", false, test_done, t);
    while (!t->done && t->layers->jobs->pidfd < 0) {
        assert_int_equal(loop_once(t->loop, CLOCK_NS_PER_S, &e), 0);
    }
    if (!t->done) {
        (void)syscall(SYS_pidfd_send_signal, t->layers->jobs->pidfd, SIGKILL, NULL, 0);
        test_wait(t);
    }
    return t->result.code == EIO;
}

static void test_a_worker_that_dies_breaks_the_volume(void **state) {
    struct test_layers *t = *state;
    bool died = false;
    if (t == NULL) {
        skip();
    }
    /* A worker that the scheduler favours may be done before it can be killed: then the next. */
    for (int i = 0; i < 20 && !died; i++) {
        struct test_jail a;
        test_jail_open(t, &a, 64 * JAIL_MIB, 20000);
        test_in(&a, fill_inodes, "/workspace/5000");
        died = test_dies(t, &a);
        if (died) {
            assert_true(layers_broken(a.v));
            assert_int_equal(test_snapshot(t, &a, "dies", true), EIO);
            assert_true(layers_broken(a.v));
        } else if (t->result.code == 0) {
            layers_drop(t->layers, "dies");
        }
        test_jail_close(&a);
        test_settle(t);
        assert_null(t->layers->fs);
    }
    assert_true(died);
}

static void test_lost(void *arg) {
    ++*(int *)arg;
}

static void test_without_its_process_nothing_goes_on_and_all_is_said(void **state) {
    struct test_layers *t = *state;
    struct test_layers mine;
    struct test_jail a;
    struct err e;
    if (t == NULL) {
        skip();
    }
    mine = *t;
    int lost = 0;
    struct layers_config cfg = {
        .loop = mine.loop, .disk_dirfd = t->disk_fd, .lost = test_lost, .arg = &lost};
    mine.layers = layers_new(&cfg, &e);
    assert_non_null(mine.layers);
    test_jail_open(&mine, &a, 16 * JAIL_MIB, 1000);
    test_works(test_snapshot(&mine, &a, "z1", true), &mine);
    assert_int_equal(kill(mine.layers->zygote.pid, SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)mine.layers->zygote.pid, &info, WEXITED | WNOWAIT), 0);
    test_in(&a, put_file, "/workspace/a"); /* the jail has not noticed */
    assert_int_equal(test_snapshot(&mine, &a, "z2", true), EIO);
    assert_true(strlen(mine.result.text) > 10);
    assert_false(layers_broken(a.v)); /* nothing was begun */
    assert_int_equal(test_restore(&mine, &a, "z1"), EIO);
    assert_int_equal(lost, 1);
    test_jail_close(&a);
    layers_drop(mine.layers, "z1");
    layers_free(mine.layers);
    t->jails = mine.jails;
}

static unsigned asides_waiting(const struct test_layers *t, enum layers_op op) {
    unsigned n = 0;
    for (const struct layers_aside *a = t->layers->asides; a != NULL; a = a->next) {
        n += a->op == op;
    }
    return n;
}

static unsigned layers_in_jail(struct test_jail *j) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/layers", j->v->own->root_fd);
    return (unsigned)count_entries(path);
}

static void test_a_burst_of_drops_is_worked_off_by_a_few(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    struct err e;
    char key[16];
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 16 * JAIL_MIB, 1000);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(key, sizeof key, "burst%d", i);
        test_in(&j, put_file, i == 0 ? "/workspace/a" : "/workspace/b");
        test_works(test_snapshot(t, &j, key, false), t);
    }
    test_settle(t);
    assert_int_equal(layers_in_jail(&j), 20);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(key, sizeof key, "burst%d", i);
        layers_drop(t->layers, key);
    }
    assert_null(t->layers->jobs);
    assert_int_equal(asides_waiting(t, LAYERS_OP_REMOVE), 20);
    uint64_t due = clock_mono_ms() + 10000;
    while ((t->layers->jobs != NULL || t->layers->asides != NULL) && clock_mono_ms() < due) {
        unsigned workers = 0;
        assert_int_equal(loop_once(t->loop, 100 * CLOCK_NS_PER_MS, &e), 0);
        for (const struct layers_job *job = t->layers->jobs; job != NULL; job = job->next) {
            workers++;
        }
        assert_in_range(workers, 0, 8);
        assert_int_equal(workers, t->layers->aside_workers);
    }
    assert_null(t->layers->asides);
    assert_int_equal(layers_in_jail(&j), 0);
    test_jail_close(&j);
}

static void test_what_goes_as_a_whole_is_not_removed_before(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    char key[16];
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 16 * JAIL_MIB, 1000);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(key, sizeof key, "whole%d", i);
        test_works(test_snapshot(t, &j, key, i % 2 == 0), t);
    }
    test_settle(t);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(key, sizeof key, "whole%d", i);
        layers_drop(t->layers, key);
    }
    assert_true(asides_waiting(t, LAYERS_OP_REMOVE) > 0);
    test_jail_close(&j);
    assert_int_equal(asides_waiting(t, LAYERS_OP_REMOVE), 0);
    assert_int_equal(asides_waiting(t, LAYERS_OP_FORGET), 1);
    test_settle(t);
    assert_null(t->layers->fs);
}

/* The process for layers does not take what it is asked for: nobody stands still for it. */
static void test_a_full_socket_is_waited_for(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    struct err e;
    int pair[2];
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 4 * JAIL_MIB, 100);
    assert_int_equal(kill(t->layers->zygote.pid, SIGSTOP), 0);
    siginfo_t stopped;
    assert_int_equal(waitid(P_PID, (id_t)t->layers->zygote.pid, &stopped, WSTOPPED | WNOWAIT), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&pair[1]); /* a worker for it ends at once */
    int rc = 0;
    for (int i = 0; rc == 0 && i < 100000; i++) {
        rc = layers_zygote_fork(&t->layers->zygote, pair[0], &e);
    }
    assert_int_equal(rc, 1);
    t->done = false;
    layers_snapshot(j.v, "waits", true, test_done, t);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(loop_once(t->loop, CLOCK_NS_PER_MS, &e), 0);
    }
    assert_false(t->done);
    assert_true(t->layers->jobs->theirs >= 0);
    assert_int_equal(kill(t->layers->zygote.pid, SIGCONT), 0);
    test_wait(t);
    assert_int_equal(t->result.code, 0);
    assert_false(t->layers->crowded);
    fd_close(&pair[0]);
    test_jail_close(&j);
    layers_drop(t->layers, "waits");
    test_settle(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_host_can),
        cmocka_unit_test(test_switch_and_restore),
        cmocka_unit_test(test_process_1_that_somebody_else_waits_for_has_died),
        cmocka_unit_test(test_before_the_first_snapshot_nothing_changes),
        cmocka_unit_test(test_what_is_ours_does_not_count),
        cmocka_unit_test(test_a_full_disk_can_be_kept),
        cmocka_unit_test(test_all_inodes_can_be_kept),
        cmocka_unit_test(test_the_live_directory_is_told),
        cmocka_unit_test(test_snapshots_are_listed_until_dropped),
        cmocka_unit_test(test_what_layers_hold_is_bounded),
        cmocka_unit_test(test_a_close_ends_what_is_in_progress),
        cmocka_unit_test(test_one_operation_at_a_time),
        cmocka_unit_test(test_nothing_is_left_over),
        cmocka_unit_test(test_a_burst_of_drops_is_worked_off_by_a_few),
        cmocka_unit_test(test_what_goes_as_a_whole_is_not_removed_before),
        cmocka_unit_test(test_a_full_socket_is_waited_for),
        cmocka_unit_test(test_a_worker_that_dies_breaks_the_volume),
        cmocka_unit_test(test_without_its_process_nothing_goes_on_and_all_is_said),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}
