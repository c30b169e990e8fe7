#include "layers_work.h"

#include <sys/vfs.h>

#include "unit_layers_files.h"
#include "unit_layers_jail.h"

/* ---- other jails ---- */

static int owned_file(const char *path) {
    struct stat st;
    CHECK(stat(path, &st) == 0, "%s", path);
    CHECK(st.st_uid == 1000 && st.st_gid == 1000, "%s: %u", path, st.st_uid);
    return has_file(path);
}

static int change_all(const char *path) {
    char name[300];
    (void)path;
    CHECK(chmod("/workspace/d/one", 0600) == 0, "chmod");
    CHECK(rename("/workspace/d", "/workspace/e") == 0, "rename of a directory from below");
    CHECK(unlink("/workspace/e/two") == 0, "unlink");
    CHECK(link("/workspace/e/one", "/workspace/e/three") == 0, "link");
    CHECK(symlink("one", "/workspace/e/sym") == 0, "symlink");
    CHECK(mkdir("/workspace/d", 0755) == 0, "a directory of the old name");
    CHECK(put_file("/workspace/d/new") == 0, "a file in it");
    CHECK(rename("/workspace/e", "/workspace/f") == 0, "again");
    CHECK(mkdir("/workspace/sub", 0700) == 0 && rename("/workspace/f", "/workspace/sub/f") == 0,
          "into another");
    int fd = open("/workspace", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    CHECK(fd >= 0, "a file without a name");
    CHECK(write(fd, "x", 1) == 1, "write");
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, name, AT_FDCWD, "/workspace/tmpfile", AT_SYMLINK_FOLLOW) == 0,
          "name it");
    fd_close(&fd);
    fd = open("/workspace/mapped", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0, "a file to map");
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED, "map");
    memcpy(p, "mapped", 7);
    CHECK(munmap(p, 4096) == 0 && read_text("/workspace/mapped", name, sizeof name) == 0, "unmap");
    CHECK(strcmp(name, "mapped") == 0, "%s", name);
    fd_close(&fd);
    return 0;
}

static int see_all(const char *path) {
    struct stat st, other;
    char text[300];
    (void)path;
    CHECK(stat("/workspace/sub/f/one", &st) == 0 && (st.st_mode & 07777) == 0600, "chmod");
    CHECK(stat("/workspace/sub/f/three", &other) == 0 && other.st_ino == st.st_ino &&
              st.st_nlink == 2,
          "link");
    CHECK(lacks_file("/workspace/sub/f/two") == 0, "unlink");
    CHECK(readlink("/workspace/sub/f/sym", text, sizeof text) == 3, "symlink");
    CHECK(has_file("/workspace/d/new") == 0, "opaque directory");
    CHECK(count_entries("/workspace/d") == 1, "opaque directory");
    CHECK(lacks_file("/workspace/e") == 0 && lacks_file("/workspace/f") == 0, "old names");
    CHECK(read_text("/workspace/tmpfile", text, sizeof text) == 0 && strcmp(text, "x") == 0,
          "tmpfile");
    CHECK(read_text("/workspace/mapped", text, sizeof text) == 0 && strcmp(text, "mapped") == 0,
          "mapped");
    return 0;
}

static int make_d(const char *path) {
    (void)path;
    CHECK(mkdir("/workspace/d", 0755) == 0, "mkdir");
    CHECK(put_file("/workspace/d/one") == 0 && put_file("/workspace/d/two") == 0, "files");
    return 0;
}

static void test_a_fork_has_the_files_as_its_own(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b, c;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_in(&a, make_d, "");
    test_in(&a, put_file, "/home/user/h");
    test_works(test_snapshot(t, &a, "a", true), t);
    test_in(&a, put_file, "/workspace/later");
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "a"), t);
    test_in(&b, owned_file, "/workspace/d/one");
    test_in(&b, owned_file, "/home/user/h");
    test_in(&b, lacks_file, "/workspace/later");
    test_in(&b, change_all, "");
    test_in(&b, see_all, "");
    test_in(&a, owned_file, "/workspace/d/two"); /* the first one sees nothing of it */
    test_in(&a, lacks_file, "/workspace/sub");
    /* … and neither the end of the first nor of the second takes it from the third. */
    test_works(test_snapshot(t, &b, "b", true), t);
    assert_int_equal(t->result.depth, 2);
    test_jail_close(&a);
    test_jail_open(t, &c, 16 * JAIL_MIB, 1000);
    test_works(test_prepare(t, &c, WIRE_DISK_MEMORY, "b"), t);
    test_jail_close(&b);
    layers_drop(t->layers, "a");
    layers_drop(t->layers, "b");
    test_in(&c, see_all, "");
    test_in(&c, owned_file, "/workspace/d/new");
    test_works(test_snapshot(t, &c, "c", true), t);
    test_works(test_restore(t, &c, "c"), t);
    test_in(&c, see_all, "");
    test_jail_close(&c);
    layers_drop(t->layers, "c");
}

static void test_a_sandbox_can_become_another_ones_snapshot(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_in(&a, put_file, "/workspace/a");
    test_works(test_snapshot(t, &a, "base", true), t);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "base"), t);
    test_in(&b, put_file, "/workspace/b");
    test_works(test_snapshot(t, &b, "won", true), t);
    test_in(&a, put_file, "/workspace/lost");
    test_works(test_restore(t, &a, "won"), t);
    test_in(&a, owned_file, "/workspace/a");
    test_in(&a, owned_file, "/workspace/b");
    test_in(&a, lacks_file, "/workspace/lost");
    test_jail_close(&b);
    layers_drop(t->layers, "base");
    layers_drop(t->layers, "won");
    test_in(&a, owned_file, "/workspace/b");
    test_jail_close(&a);
}

/* ---- limits ---- */

static int write_mib(const char *arg) {
    static char block[JAIL_MIB];
    const char *slash = strrchr(arg, '/');
    long mib = strtol(slash + 1, NULL, 10);
    memset(block, 7, sizeof block);
    int fd = open(arg, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
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
    CHECK(have == want, "%ld MiB", have);
    return 0;
}

static void test_a_limit_holds_across_forks(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b, c;
    uint64_t bytes, inodes;
    bool full;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_in(&a, write_mib, "/workspace/10");
    test_works(test_snapshot(t, &a, "ten", true), t);
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "ten"), t);
    test_settle(t);
    assert_int_equal(layers_use(b.v, &bytes, &inodes, &full), 0);
    assert_int_equal(bytes, 10 * JAIL_MIB);
    assert_int_equal(inodes, 1);
    test_in(&b, room_mib, "6");
    test_in(&b, fill_disk, "/workspace/full");
    assert_int_equal(layers_use(b.v, &bytes, &inodes, &full), 0);
    assert_true(full && bytes == 16 * JAIL_MIB);
    test_works(test_snapshot(t, &b, "sixteen", true), t);
    assert_int_equal(t->result.bytes, 16 * JAIL_MIB);
    assert_int_equal(t->result.added_bytes, 6 * JAIL_MIB);
    /* Nothing is left for the next one, and a smaller one never had it. */
    test_jail_open(t, &c, 16 * JAIL_MIB, 1000);
    assert_int_equal(test_prepare(t, &c, WIRE_DISK_MEMORY, "sixteen"), ENOSPC);
    assert_true(strlen(t->result.text) > 20);
    test_jail_close(&c);
    test_jail_open(t, &c, 8 * JAIL_MIB, 1000);
    assert_int_equal(test_prepare(t, &c, WIRE_DISK_MEMORY, "ten"), ENOSPC);
    test_works(test_prepare(t, &c, WIRE_DISK_MEMORY, ""), t);
    test_jail_close(&c);
    test_jail_close(&b);
    test_jail_close(&a);
    layers_drop(t->layers, "ten");
    layers_drop(t->layers, "sixteen");
}

static void test_room_that_a_restore_makes_is_used(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_in(&a, write_mib, "/workspace/10");
    test_works(test_snapshot(t, &a, "ten", true), t);
    test_in(&b, write_mib, "/workspace/9"); /* where no snapshot was made yet */
    test_works(test_restore(t, &b, "ten"), t);
    test_in(&b, room_mib, "6");
    test_jail_close(&b);
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_works(test_snapshot(t, &b, "none", true), t);
    test_in(&b, write_mib, "/workspace/9");
    test_works(test_restore(t, &b, "ten"), t);
    test_in(&b, room_mib, "6");
    test_in(&b, write_mib, "/workspace/6");
    test_in(&b, write_mib, "/tmp/0");
    test_works(test_restore(t, &b, "none"), t);
    test_settle(t);
    test_in(&b, room_mib, "16");
    /* What stays of its own leaves no room. */
    test_in(&b, write_mib, "/tmp/7");
    assert_int_equal(test_restore(t, &b, "ten"), ENOSPC);
    test_in(&b, room_mib, "9");
    test_jail_close(&a);
    test_jail_close(&b);
    layers_drop(t->layers, "ten");
    layers_drop(t->layers, "none");
}

/* ---- memory ---- */

static uint64_t shmem_bytes(void) {
    char text[8192];
    assert_int_equal(read_text("/proc/meminfo", text, sizeof text), 0);
    const char *line = strstr(text, "\nShmem:");
    assert_non_null(line);
    return strtoull(line + 7, NULL, 10) * 1024;
}

/* Others on this machine use shared memory as well: looked at until it fits. */
static void shmem_falls(struct test_layers *t, uint64_t below) {
    uint64_t due = clock_mono_ms() + 10000;
    while (shmem_bytes() > below && clock_mono_ms() < due) {
        struct err e;
        assert_int_equal(loop_once(t->loop, 10 * CLOCK_NS_PER_MS, &e), 0);
    }
    assert_true(shmem_bytes() <= below);
}

static void test_memory_goes_with_what_needs_it(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    uint64_t before = shmem_bytes();
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 512 * JAIL_MIB, 1000);
    test_in(&a, write_mib, "/workspace/100");
    test_works(test_snapshot(t, &a, "hundred", true), t);
    test_in(&a, write_mib, "/workspace/200");
    test_in(&a, write_mib, "/tmp/50");
    assert_true(shmem_bytes() > before + 300 * JAIL_MIB);
    test_jail_close(&a); /* only the snapshot stays */
    shmem_falls(t, before + 140 * JAIL_MIB);
    assert_true(shmem_bytes() > before + 60 * JAIL_MIB);
    test_jail_open(t, &b, 512 * JAIL_MIB, 1000);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "hundred"), t);
    layers_drop(t->layers, "hundred"); /* it is still stood on */
    test_in(&b, room_mib, "412");
    assert_true(shmem_bytes() > before + 60 * JAIL_MIB);
    test_jail_close(&b);
    shmem_falls(t, before + 40 * JAIL_MIB);
}

static void test_a_layer_nobody_needs_is_removed(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 1000);
    test_works(test_snapshot(t, &a, "none", true), t);
    test_in(&a, write_mib, "/workspace/10");
    test_works(test_snapshot(t, &a, "ten", true), t);
    test_in(&a, room_mib, "54");
    test_works(test_restore(t, &a, "none"), t);
    test_in(&a, room_mib, "54");
    layers_drop(t->layers, "ten");
    test_settle(t);
    test_in(&a, room_mib, "64");
    test_jail_close(&a);
    layers_drop(t->layers, "none");
}

/* ---- many layers ---- */

static int make_kept(const char *path) {
    (void)path;
    CHECK(mkdir("/workspace/k", 0711) == 0 && mkdir("/workspace/k/deep", 0700) == 0, "mkdir");
    CHECK(put_file("/workspace/k/one") == 0, "file");
    CHECK(link("/workspace/k/one", "/workspace/k/deep/two") == 0, "link");
    CHECK(symlink("one", "/workspace/k/sym") == 0 && mkfifo("/workspace/k/fifo", 0600) == 0,
          "others");
    return 0;
}

static int see_kept(const char *path) {
    struct stat st, other;
    char text[64];
    (void)path;
    CHECK(stat("/workspace/k", &st) == 0 && (st.st_mode & 07777) == 0711, "mode");
    CHECK(has_file("/workspace/k/one") == 0, "file");
    CHECK(stat("/workspace/k/one", &st) == 0 && stat("/workspace/k/deep/two", &other) == 0, "link");
    CHECK(st.st_ino == other.st_ino, "link");
    CHECK(readlink("/workspace/k/sym", text, sizeof text) == 3, "symlink");
    CHECK(lstat("/workspace/k/fifo", &st) == 0 && S_ISFIFO(st.st_mode), "fifo");
    return 0;
}

static void test_many_snapshots_are_merged(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    char name[64];
    uint32_t deepest = 0;
    bool merged = false;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 10000);
    test_in(&a, put_file, "/workspace/never");
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "/workspace/f%d", i);
        test_in(&a, put_file, name);
        if (i > 0) {
            (void)snprintf(name, sizeof name, "/workspace/f%d", i - 1);
            test_in(&a, gone_file, name);
        }
        (void)snprintf(name, sizeof name, "s%d", i);
        test_works(test_snapshot(t, &a, name, true), t);
        merged |= t->result.depth < deepest;
        deepest = t->result.depth > deepest ? t->result.depth : deepest;
    }
    assert_true(merged);
    assert_int_equal(deepest, LAYERS_DEPTH_MAX);
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        test_works(test_restore(t, &a, name), t);
        (void)snprintf(name, sizeof name, "/workspace/f%d", i);
        test_in(&a, owned_file, name);
        test_in(&a, owned_file, "/workspace/never");
        (void)snprintf(name, sizeof name, "/workspace/f%d", i - 1);
        test_in(&a, lacks_file, name);
    }
    test_jail_open(t, &b, 64 * JAIL_MIB, 10000);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "s31"), t);
    test_jail_close(&a);
    test_in(&b, owned_file, "/workspace/f31");
    test_in(&b, lacks_file, "/workspace/f30");
    test_in(&b, put_file, "/workspace/b");
    test_works(test_snapshot(t, &b, "b", true), t); /* merges layers of another file system */
    assert_int_equal(t->result.depth, 2);
    test_in(&b, owned_file, "/workspace/f31");
    test_in(&b, owned_file, "/workspace/b");
    test_in(&b, lacks_file, "/workspace/f30");
    test_jail_close(&b);
    layers_drop(t->layers, "b");
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        layers_drop(t->layers, name);
    }
}

static void test_merging_takes_no_room(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    char name[64];
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 10000);
    test_in(&a, write_mib, "/workspace/10");
    test_in(&a, make_kept, "");
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "r%d", i);
        test_works(test_snapshot(t, &a, name, true), t);
        test_in(&a, see_kept, "");
        if (i == 35) {
            assert_true(t->result.depth < 10);
        }
    }
    test_settle(t);
    test_in(&a, room_mib, "5");
    for (int i = 0; i < 39; i++) {
        (void)snprintf(name, sizeof name, "r%d", i);
        layers_drop(t->layers, name);
    }
    test_works(test_restore(t, &a, "r39"), t);
    test_settle(t);
    test_in(&a, room_mib, "5");
    test_in(&a, see_kept, "");
    test_jail_close(&a);
    layers_drop(t->layers, "r39");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fork_has_the_files_as_its_own),
        cmocka_unit_test(test_a_sandbox_can_become_another_ones_snapshot),
        cmocka_unit_test(test_a_limit_holds_across_forks),
        cmocka_unit_test(test_room_that_a_restore_makes_is_used),
        cmocka_unit_test(test_memory_goes_with_what_needs_it),
        cmocka_unit_test(test_a_layer_nobody_needs_is_removed),
        cmocka_unit_test(test_many_snapshots_are_merged),
        cmocka_unit_test(test_merging_takes_no_room),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}
