#include "layers_copy.h"

#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>

#include "unit_layers_files.h"
#include "unit_layers_jail.h"

/* ---- a process that goes on writing ---- */

static int hold_open(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, "held", 4) == 4, "%s", path);
    test_ready();
    return 0;
}

static int hold_mapped(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0, "%s", path);
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED, "%s", path);
    fd_close(&fd);
    memcpy(p, "before", 7);
    char *flag = shared_text + 3001;
    test_ready();
    while (*(volatile char *)flag == 0) {
        (void)usleep(1000);
    }
    memcpy(p, "later", 6); /* sets no time any more */
    *(volatile char *)flag = 0;
    return 0;
}

static int text_is(const char *arg) {
    char path[300], text[300];
    const char *is = strchr(arg, '=');
    (void)snprintf(path, sizeof path, "%.*s", (int)(is - arg), arg);
    CHECK(read_text(path, text, sizeof text) == 0, "%s", path);
    CHECK(strcmp(text, is + 1) == 0, "%s: %s", path, text);
    return 0;
}

static void test_a_running_process_keeps_its_files(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_in(&a, put_file, "/workspace/a");
    pid_t pid = test_stay(&a, hold_open, "/workspace/held");
    /* Said to be quiet, and found not to be: copied, not switched. */
    test_works(test_snapshot(t, &a, "one", true), t);
    assert_int_equal(t->result.files, 2);
    test_in(&a, put_file, "/workspace/b");
    test_works(test_snapshot(t, &a, "two", false), t);
    assert_int_equal(t->result.files, 3);
    test_release(&a, pid);
    test_works(test_restore(t, &a, "one"), t);
    test_in(&a, has_file, "/workspace/a");
    test_in(&a, text_is, "/workspace/held=held");
    test_in(&a, lacks_file, "/workspace/b");
    test_works(test_restore(t, &a, "two"), t);
    test_in(&a, has_file, "/workspace/b");
    test_jail_close(&a);
    layers_drop(t->layers, "one");
    layers_drop(t->layers, "two");
}

/* Waits until what was changed last is old enough to be linked next time. */
static int settle(const char *path) {
    struct timespec from, now;
    (void)path;
    CHECK(clock_gettime(CLOCK_REALTIME, &from) == 0, "clock");
    do {
        (void)usleep(1000);
        CHECK(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0, "clock");
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < 60);
    return 0;
}

static void test_what_has_not_changed_is_linked(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    uint64_t bytes, inodes, again;
    bool full;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 64 * JAIL_MIB, 1000);
    test_works(test_snapshot(t, &a, "zero", true), t);
    test_in(&a, make_big, "/workspace/big");
    test_in(&a, make_tree, "/workspace/tree");
    test_in(&a, settle, "");
    test_works(test_snapshot(t, &a, "one", false), t);
    assert_in_range(t->result.added_bytes, 8 * JAIL_MIB, 9 * JAIL_MIB);
    assert_int_equal(layers_use(a.v, &bytes, &inodes, &full), 0);
    test_in(&a, put_file, "/workspace/tree/sub/changed");
    test_works(test_snapshot(t, &a, "two", false), t);
    assert_in_range(t->result.added_bytes, 4096, 65536);
    assert_int_equal(layers_use(a.v, &again, &inodes, &full), 0);
    assert_in_range(again, bytes, bytes + 65536);
    /* The same size and the same time of change, but other contents. */
    test_in(&a, sneak, "/workspace/big");
    test_works(test_snapshot(t, &a, "three", false), t);
    assert_in_range(t->result.added_bytes, 8 * JAIL_MIB, 9 * JAIL_MIB);
    test_works(test_restore(t, &a, "three"), t);
    test_in(&a, is_sneaked, "/workspace/big");
    test_works(test_restore(t, &a, "two"), t);
    test_in(&a, has_file, "/workspace/tree/sub/changed");
    test_in(&a, is_tree, "/workspace/tree");
    test_jail_close(&a);
    layers_drop(t->layers, "zero");
    layers_drop(t->layers, "one");
    layers_drop(t->layers, "two");
    layers_drop(t->layers, "three");
}

static void test_writes_through_a_mapping_are_seen(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    if (t == NULL) {
        skip();
    }
    for (int live = 0; live < 2; live++) {
        test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
        if (live) {
            test_works(test_snapshot(t, &a, "m0", true), t);
        }
        shared_text[3001] = 0;
        pid_t pid = test_stay(&a, hold_mapped, "/workspace/mapped");
        test_in(&a, settle, "");
        test_works(test_snapshot(t, &a, "m1", false), t);
        shared_text[3001] = 1;
        for (int i = 0; i < 5000 && *(volatile char *)(shared_text + 3001) != 0; i++) {
            (void)usleep(1000);
        }
        test_works(test_snapshot(t, &a, "m2", false), t);
        test_release(&a, pid);
        test_works(test_restore(t, &a, "m1"), t);
        test_in(&a, text_is, "/workspace/mapped=before");
        test_works(test_restore(t, &a, "m2"), t);
        test_in(&a, text_is, "/workspace/mapped=later");
        test_jail_close(&a);
        layers_drop(t->layers, "m0");
        layers_drop(t->layers, "m1");
        layers_drop(t->layers, "m2");
    }
}

/* ---- all kinds of files ---- */

static int make_kinds(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/workspace/k/socket"};
    struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_sec = 2000, .tv_nsec = 7}};
    (void)path;
    CHECK(mkdir("/workspace/k", 0750) == 0, "mkdir");
    CHECK(symlink("/etc/shadow", "/workspace/k/shadow") == 0, "symlink");
    CHECK(symlink("../../../../../../etc", "/workspace/k/up") == 0, "symlink");
    CHECK(symlink("/proc/self/root", "/workspace/k/proc") == 0, "symlink");
    CHECK(symlink("loop", "/workspace/k/loop") == 0, "symlink");
    CHECK(mkfifo("/workspace/k/fifo", 0604) == 0, "fifo");
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(sock >= 0 && bind(sock, (struct sockaddr *)&name, sizeof name) == 0, "socket");
    fd_close(&sock);
    CHECK(put_file("/workspace/k/one") == 0, "file");
    CHECK(link("/workspace/k/one", "/workspace/k/two") == 0, "link");
    CHECK(mkdir("/workspace/k/far", 0) == 0 || true, "mkdir");
    CHECK(chmod("/workspace/k/far", 0700) == 0, "chmod");
    CHECK(link("/workspace/k/one", "/workspace/k/far/three") == 0, "link");
    CHECK(chmod("/workspace/k/far", 0) == 0, "chmod");
    CHECK(put_file("/workspace/k/new\nline\\012 \xff\xfe (deleted)") == 0, "odd name");
    CHECK(put_file("/workspace/k/-rf") == 0 && put_file("/workspace/k/ ") == 0, "odd name");
    CHECK(put_file("/workspace/k/secret") == 0 && chmod("/workspace/k/secret", 0) == 0, "secret");
    CHECK(put_file("/workspace/k/setuid") == 0 && chmod("/workspace/k/setuid", 06755) == 0,
          "set-id");
    CHECK(setxattr("/workspace/k/one", "user.mine", "yes", 3, 0) == 0, "xattr");
    int fd = open("/workspace/k/sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && pwrite(fd, "end", 3, 1ll << 40) == 3, "sparse");
    CHECK(ftruncate(fd, (1ll << 40) + 10000) == 0, "sparse");
    fd_close(&fd);
    CHECK(mkdir("/workspace/k/dir", 02775) == 0 && chmod("/workspace/k/dir", 03775) == 0, "dir");
    CHECK(utimensat(AT_FDCWD, "/workspace/k/two", times, 0) == 0, "times");
    CHECK(utimensat(AT_FDCWD, "/workspace/k/shadow", times, AT_SYMLINK_NOFOLLOW) == 0, "times");
    CHECK(utimensat(AT_FDCWD, "/workspace/k/dir", times, 0) == 0, "times");
    return 0;
}

static int times_are(const char *path) {
    struct stat st;
    CHECK(lstat(path, &st) == 0 && st.st_mtim.tv_sec == 2000 && st.st_mtim.tv_nsec == 7, "%s",
          path);
    return 0;
}

static int see_kinds(const char *path) {
    struct stat st, other;
    char text[300] = "";
    (void)path;
    CHECK(stat("/workspace/k", &st) == 0 && (st.st_mode & 07777) == 0750, "mode");
    CHECK(readlink("/workspace/k/shadow", text, sizeof text) == 11, "symlink %s", text);
    CHECK(readlink("/workspace/k/loop", text, sizeof text) == 4, "symlink");
    CHECK(lstat("/workspace/k/fifo", &st) == 0 && st.st_mode == (S_IFIFO | 0604), "fifo");
    CHECK(lstat("/workspace/k/one", &st) == 0 && lstat("/workspace/k/two", &other) == 0, "link");
    CHECK(st.st_ino == other.st_ino && st.st_nlink == 3, "link %lu", (unsigned long)st.st_nlink);
    CHECK(lstat("/workspace/k/far", &st) == 0 && (st.st_mode & 07777) == 0, "no mode");
    CHECK(chmod("/workspace/k/far", 0700) == 0, "chmod");
    CHECK(lstat("/workspace/k/far/three", &st) == 0 && chmod("/workspace/k/far", 0) == 0, "far");
    CHECK(has_file("/workspace/k/new\nline\\012 \xff\xfe (deleted)") == 0, "odd name");
    CHECK(has_file("/workspace/k/-rf") == 0 && has_file("/workspace/k/ ") == 0, "odd name");
    CHECK(lstat("/workspace/k/secret", &st) == 0 && (st.st_mode & 07777) == 0, "secret");
    CHECK(lstat("/workspace/k/setuid", &st) == 0 && (st.st_mode & 07777) == 06755, "set-id");
    CHECK(getxattr("/workspace/k/one", "user.mine", text, sizeof text) == 3, "xattr");
    CHECK(lstat("/workspace/k/sparse", &st) == 0 && st.st_size == (1ll << 40) + 10000, "size");
    CHECK(st.st_blocks <= 64, "not sparse: %ld", (long)st.st_blocks);
    int fd = open("/workspace/k/sparse", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, text, 3, 1ll << 40) == 3 && memcmp(text, "end", 3) == 0, "data");
    fd_close(&fd);
    CHECK(lstat("/workspace/k/dir", &st) == 0 && (st.st_mode & 07777) == 03775, "dir %o",
          st.st_mode);
    return times_are("/workspace/k/two") + times_are("/workspace/k/shadow") +
           times_are("/workspace/k/dir");
}

static void test_all_kinds_of_files_are_copied(void **state) {
    struct test_layers *t = *state;
    struct test_jail a, b;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_in(&a, make_kinds, "");
    test_works(test_snapshot(t, &a, "k1", false), t); /* of what process 1 made */
    test_works(test_snapshot(t, &a, "k2", true), t);  /* as it is */
    test_in(&a, see_kinds, "");
    test_works(test_restore(t, &a, "k1"), t);
    test_in(&a, see_kinds, "");
    test_in(&a, lacks_file, "/workspace/k/socket");
    test_in(&a, make_tree, "/workspace/k/tree");
    test_works(test_snapshot(t, &a, "k3", false), t); /* of a live directory */
    test_works(test_snapshot(t, &a, "k4", false), t); /* … again, with links */
    test_works(test_restore(t, &a, "k4"), t);
    test_in(&a, see_kinds, "");
    test_in(&a, is_tree, "/workspace/k/tree");
    test_jail_open(t, &b, 16 * JAIL_MIB, 1000);
    test_works(test_prepare(t, &b, WIRE_DISK_MEMORY, "k4"), t);
    test_in(&b, see_kinds, "");
    test_in(&b, is_tree, "/workspace/k/tree");
    test_jail_close(&b);
    test_jail_close(&a);
    for (int i = 1; i <= 4; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%d", i);
        layers_drop(t->layers, key);
    }
}

/* Removed, replaced and moved in the live directory, then copied. */
static int change_below(const char *path) {
    (void)path;
    CHECK(unlink("/workspace/t/sub/x") == 0, "unlink");
    CHECK(rename("/workspace/t/sub", "/workspace/t/moved") == 0, "rename");
    CHECK(mkdir("/workspace/t/sub", 0755) == 0, "a new one");
    CHECK(put_file("/workspace/t/sub/fresh") == 0, "file");
    return 0;
}

static int is_changed(const char *path) {
    (void)path;
    CHECK(count_entries("/workspace/t") == 2, "entries");
    CHECK(count_entries("/workspace/t/sub") == 1, "entries");
    CHECK(has_file("/workspace/t/sub/fresh") == 0, "fresh");
    CHECK(lacks_file("/workspace/t/moved/x") == 0, "removed");
    CHECK(read_text("/workspace/t/moved/y", shared_text + 2000, 100) == 0, "moved");
    return 0;
}

static void test_marks_of_a_live_directory_are_copied(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 1000);
    test_in(&a, make_tree, "/workspace/t");
    test_works(test_snapshot(t, &a, "c0", true), t);
    test_in(&a, change_below, "");
    test_in(&a, is_changed, "");
    test_works(test_snapshot(t, &a, "c1", false), t);
    assert_int_equal(t->result.depth, 1); /* the live directory stands where it stood */
    test_works(test_restore(t, &a, "c0"), t);
    test_in(&a, is_tree, "/workspace/t");
    test_works(test_restore(t, &a, "c1"), t);
    test_in(&a, is_changed, "");
    test_jail_close(&a);
    layers_drop(t->layers, "c0");
    layers_drop(t->layers, "c1");
}

/* ---- trees that are meant to hurt ---- */

static int make_deep(const char *arg) {
    const char *slash = strrchr(arg, '/');
    long depth = strtol(slash + 1, NULL, 10);
    CHECK(chdir("/workspace") == 0, "chdir");
    for (long i = 0; i < depth; i++) {
        CHECK(mkdir("d", 0755) == 0 && chdir("d") == 0, "level %ld", i);
    }
    return put_file("bottom");
}

static int is_deep(const char *arg) {
    const char *slash = strrchr(arg, '/');
    long depth = strtol(slash + 1, NULL, 10);
    CHECK(chdir("/workspace") == 0, "chdir");
    for (long i = 0; i < depth; i++) {
        CHECK(chdir("d") == 0, "level %ld", i);
    }
    return has_file("bottom");
}

static int make_wide(const char *arg) {
    char name[300];
    const char *slash = strrchr(arg, '/');
    long count = strtol(slash + 1, NULL, 10);
    for (long i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "/workspace/%0240ld", i);
        CHECK(mkdir(name, 0755) == 0, "%ld", i);
    }
    return 0;
}

static void test_deep_and_wide_trees_are_copied_and_removed(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    uint64_t bytes, inodes;
    bool full;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 16 * JAIL_MIB, 50000);
    test_works(test_snapshot(t, &a, "d0", true), t);
    test_in(&a, make_deep, "/5000");
    test_in(&a, make_wide, "/3000");
    test_works(test_snapshot(t, &a, "d1", false), t);
    assert_int_equal(t->result.files, 8001);
    test_works(test_snapshot(t, &a, "d2", true), t);
    test_in(&a, is_deep, "/5000");
    test_works(test_restore(t, &a, "d1"), t);
    test_in(&a, is_deep, "/5000");
    test_works(test_restore(t, &a, "d0"), t);
    layers_drop(t->layers, "d1");
    layers_drop(t->layers, "d2");
    test_settle(t);
    assert_int_equal(layers_use(a.v, &bytes, &inodes, &full), 0);
    assert_int_equal(bytes, 0);
    assert_in_range(inodes, 0, 10);
    test_jail_close(&a);
    layers_drop(t->layers, "d0");
}

static void test_no_room_for_a_copy_is_said_and_leaves_nothing(void **state) {
    struct test_layers *t = *state;
    struct test_jail a;
    uint64_t bytes, inodes;
    bool full;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &a, 12 * JAIL_MIB, 100);
    test_in(&a, make_big, "/workspace/big");
    assert_int_equal(test_snapshot(t, &a, "n", false), ENOSPC);
    assert_true(strlen(t->result.text) > 10);
    assert_false(layers_find(t->layers, "n", NULL, NULL));
    test_settle(t);
    assert_int_equal(layers_use(a.v, &bytes, &inodes, &full), 0);
    assert_in_range(bytes, 8 * JAIL_MIB, 8 * JAIL_MIB + 65536);
    assert_in_range(inodes, 0, 3);
    test_works(test_snapshot(t, &a, "n", true), t);
    test_jail_close(&a);
    layers_drop(t->layers, "n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_running_process_keeps_its_files),
        cmocka_unit_test(test_what_has_not_changed_is_linked),
        cmocka_unit_test(test_writes_through_a_mapping_are_seen),
        cmocka_unit_test(test_all_kinds_of_files_are_copied),
        cmocka_unit_test(test_marks_of_a_live_directory_are_copied),
        cmocka_unit_test(test_deep_and_wide_trees_are_copied_and_removed),
        cmocka_unit_test(test_no_room_for_a_copy_is_said_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}
