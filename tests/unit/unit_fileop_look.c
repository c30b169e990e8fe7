#include "fileop_op.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "unit_operation.h"

static void test_stat_tells_what_is_there(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_file(f, "a", "hello", 04755);
    ft_link(f, "a", "l");
    ft_link(f, "nowhere", "d");
    FT_RUN(f, NULL, &a, "stat", ft_path(f, "a"), "0");
    ft_ok(&a);
    assert_int_equal(a.count, 2);
    assert_int_equal(a.items[0].rec.kind, FILEOP_FILE);
    assert_int_equal(a.items[0].rec.mode, 04755);
    assert_int_equal(a.items[0].rec.size, 5);
    assert_int_equal(a.items[0].rec.nlink, 1);
    assert_true(a.items[0].rec.mtime_ns > 1600000000000000000);
    ft_free(&a);
    FT_RUN(f, NULL, &a, "stat", ft_path(f, "l"), "0");
    ft_ok(&a);
    assert_int_equal(a.items[0].rec.kind, FILEOP_SYMLINK);
    assert_string_equal(a.items[0].target, "a");
    ft_free(&a);
    FT_RUN(f, NULL, &a, "stat", ft_path(f, "l"), "1");
    ft_ok(&a);
    assert_int_equal(a.items[0].rec.kind, FILEOP_FILE);
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_OK, "stat", "/", "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "stat", ft_path(f, "."), "0");
    FT_EXPECT(f, NULL, FILEOP_NOT_DIRECTORY, "stat", ft_path(f, "a/../a"), "1");
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "stat", ft_path(f, "d"), "1");
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "stat", ft_path(f, "x"), "0");
    FT_EXPECT(f, NULL, FILEOP_NOT_DIRECTORY, "stat", ft_path(f, "a/b"), "0");
}

static void test_arguments_are_checked(void **state) {
    struct ft *f = *state;
    char long_path[5000];
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    long_path[0] = '/';
    FT_EXPECT(f, NULL, FILEOP_INVALID, "no_such");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "stat");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "stat", "/", "0", "0");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "stat", "relative", "0");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "stat", "", "1");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "stat", "/", "2");
    FT_EXPECT(f, NULL, FILEOP_NAME_TOO_LONG, "stat", long_path, "1");
    long_path[300] = '\0';
    FT_EXPECT(f, NULL, FILEOP_NAME_TOO_LONG, "stat", long_path, "0");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "list", "/", "0", "1", "");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "list", "/", "1", "0", "");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "list", "/", "1", "10000000", "");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "list", "/", "1", "1", "../x");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "list", "/", "-1", "1", "");
}

static void list_tree(struct ft *f) {
    ft_dir(f, "b", 0755);
    ft_dir(f, "b/y", 0755);
    ft_file(f, "b/y/1", "", 0644);
    ft_file(f, "b/z", "", 0644);
    ft_file(f, "a", "", 0644);
    ft_file(f, "b.txt", "", 0644);
    ft_file(f, "c", "", 0644);
    ft_link(f, "b", "d");
}

static void test_list_is_in_order_and_paged(void **state) {
    struct ft *f = *state;
    static const char *const all[] = {"a", "b", "b/y", "b/y/1", "b/z", "b.txt", "c", "d"};
    struct ft_answer a;
    list_tree(f);
    for (size_t page = 1; page <= UNIT_COUNT(all); page++) {
        char limit[16];
        char after[64] = "";
        size_t at = 0;
        snprintf(limit, sizeof limit, "%zu", page);
        for (bool more = true; more;) {
            FT_RUN(f, NULL, &a, "list", ft_path(f, ""), "9", limit, after);
            ft_ok(&a);
            for (size_t i = 0; i + 1 < a.count; i++)
                assert_string_equal(a.items[i].path, all[at++]);
            more = (a.items[a.count - 1].rec.flags & FILEOP_MORE) != 0;
            assert_int_equal(more, at < UNIT_COUNT(all));
            snprintf(after, sizeof after, "%s", all[at - 1]);
            ft_free(&a);
        }
        assert_int_equal(at, UNIT_COUNT(all));
    }
    FT_RUN(f, NULL, &a, "list", ft_path(f, ""), "1", "100", "b/y");
    ft_ok(&a);
    assert_int_equal(a.count, 4); /* b.txt, c, d */
    ft_free(&a);
    FT_RUN(f, NULL, &a, "list", ft_path(f, ""), "2", "100", "b/gone/x");
    ft_ok(&a);
    assert_string_equal(a.items[0].path, "b/y");
    ft_free(&a);
    FT_RUN(f, NULL, &a, "list", ft_path(f, "d"), "1", "100", "");
    ft_ok(&a);
    assert_int_equal(a.count, 3); /* through the link */
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_NOT_DIRECTORY, "list", ft_path(f, "a"), "1", "1", "");
}

static void test_many_entries_are_paged(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    char after[32] = "";
    char last[32] = "";
    size_t seen = 0;
    for (int i = 0; i < 20000; i++) {
        char name[32];
        snprintf(name, sizeof name, "%u", (unsigned)i * 2654435761u);
        int fd = open(ft_path(f, name), O_WRONLY | O_CREAT, 0644);
        assert_true(fd >= 0);
        close(fd);
    }
    for (bool more = true; more;) {
        FT_RUN(f, NULL, &a, "list", ft_path(f, ""), "1", "1000", after);
        ft_ok(&a);
        for (size_t i = 0; i + 1 < a.count; i++) {
            assert_true(strcmp(a.items[i].path, last) > 0);
            snprintf(last, sizeof last, "%s", a.items[i].path);
            seen++;
        }
        more = a.items[a.count - 1].rec.flags & FILEOP_MORE;
        snprintf(after, sizeof after, "%s", last);
        ft_free(&a);
    }
    assert_int_equal(seen, 20000);
    FT_RUN(f, NULL, &a, "scan", ft_path(f, ""));
    ft_ok(&a);
    assert_int_equal(a.count, 20001);
    ft_free(&a);
}

static void test_odd_names_come_back_as_they_are(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    char longest[256];
    memset(longest, 'n', 255);
    longest[255] = '\0';
    const char *const names[] = {"new\nline", "tab\t",     "-rf", "\"quotes'", "\xff\xfe",
                                 "\xc3\xa9",  "e\xcc\x81", " ",   "...",       longest};
    struct buf in;
    buf_init(&in, 1 << 20);
    for (size_t i = 0; i < UNIT_COUNT(names); i++) {
        ft_file(f, names[i], "x", 0644);
        ft_put_name(&in, names[i]);
    }
    ft_put_end(&in);
    FT_RUN(f, NULL, &a, "list", ft_path(f, ""), "1", "100", "");
    ft_ok(&a);
    assert_int_equal(a.count, UNIT_COUNT(names) + 1);
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        assert_non_null(ft_find(&a, names[i]));
    ft_free(&a);
    FT_RUN(f, &in, &a, "look", ft_path(f, ""));
    ft_ok(&a);
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        assert_string_equal(a.items[i].path, names[i]);
    ft_free(&a);
    buf_done(&in);
}

/* `levels` directories named d below each other, made without long paths. */
static void deep(struct ft *f, int levels) {
    int fd = open(f->root, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < levels; i++) {
        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        assert_int_equal(fchownat(fd, "d", FT_USER, FT_USER, 0), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
        assert_true(next >= 0);
        close(fd);
        fd = next;
    }
    close(fd);
}

static void test_a_deep_tree_with_few_descriptors(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct rlimit before, few = {16, 16}; /* the least that a policy may say */
    deep(f, 3000);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    FT_RUN(f, NULL, &a, "scan", ft_path(f, ""));
    ft_ok(&a);
    /* As deep as paths go, and a word about the rest. */
    assert_int_equal(a.count, 2048 + 2);
    assert_int_equal(a.items[2048].rec.type, FILEOP_ERROR);
    assert_int_equal(a.items[2048].rec.code, FILEOP_NAME_TOO_LONG);
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "d"), "1");
    assert_false(ft_there(f, "d"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void test_what_cannot_be_read_is_told_and_the_rest_goes_on(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_dir(f, "a", 0755);
    ft_dir(f, "a/shut", 0);
    ft_file(f, "b", "", 0);
    FT_RUN(f, NULL, &a, "scan", ft_path(f, ""));
    ft_ok(&a);
    assert_int_equal(a.count, 5); /* a, a/shut, its error, b, END */
    size_t errors = 0;
    for (size_t i = 0; i < a.count; i++) {
        if (a.items[i].rec.type == FILEOP_ERROR) {
            assert_string_equal(a.items[i].path, "a/shut");
            assert_int_equal(a.items[i].rec.code, FILEOP_DENIED);
            errors++;
        }
    }
    assert_int_equal(errors, 1);
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_DENIED, "scan", ft_path(f, "a/shut"));
}

static void test_look_follows_no_link(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_dir(f, "d", 0755);
    ft_file(f, "d/a", "xy", 0644);
    ft_link(f, "d", "l");
    ft_link(f, "/etc/passwd", "p");
    assert_int_equal(mkfifo(ft_path(f, "f"), 0644), 0);
    static const char *const names[] = {"d/a", "l/a", "p", "gone", "f", "d/a/b", "d"};
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        ft_put_name(&in, names[i]);
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "look", ft_path(f, ""));
    ft_ok(&a);
    assert_int_equal(a.count, 8);
    assert_int_equal(a.items[0].rec.size, 2);
    assert_int_equal(a.items[1].rec.code, FILEOP_LOOP);
    assert_string_equal(a.items[2].target, "/etc/passwd");
    assert_int_equal(a.items[3].rec.code, FILEOP_NOT_FOUND);
    assert_int_equal(a.items[4].rec.kind, FILEOP_FIFO);
    assert_int_equal(a.items[5].rec.code, FILEOP_NOT_DIRECTORY);
    assert_int_equal(a.items[6].rec.kind, FILEOP_DIRECTORY);
    ft_free(&a);
    in.len -= sizeof(struct fileop_record); /* the END */
    FT_EXPECT(f, &in, FILEOP_INVALID, "look", ft_path(f, ""));
    buf_done(&in);
}

static void test_work_in_progress_is_not_told(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_dir(f, FILEOP_HIDDEN "0123", 0755);
    ft_file(f, "a", "", 0644);
    FT_RUN(f, NULL, &a, "list", ft_path(f, ""), "9", "9", "");
    ft_ok(&a);
    assert_int_equal(a.count, 2);
    ft_free(&a);
}

static void test_magic_links_of_proc_lead_nowhere(void **state) {
    struct ft *f = *state;
    FT_EXPECT(f, NULL, FILEOP_LOOP, "list", "/proc/self/root", "1", "1", "");
    FT_EXPECT(f, NULL, FILEOP_LOOP, "stat", "/proc/self/root/etc/hostname", "1");
    FT_EXPECT(f, NULL, FILEOP_LOOP, "stat", "/proc/self/fd/0", "1");
}

static void test_upper_needs_a_snapshot(void **state) {
    struct ft *f = *state;
    FT_EXPECT(f, NULL, FILEOP_UNSUPPORTED, "upper", "/workspace");
}

/* A jail after its first snapshot, in a mount namespace of its own: an overlay, whose directory
 * "workspace" is /workspace there. */
static void overlay(struct ft *f) {
    static const char *const dirs[] = {"low",  "low/workspace",  "up",       "work", "merged",
                                       "root", "root/workspace", "root/proc"};
    char options[512];
    for (size_t i = 0; i < UNIT_COUNT(dirs); i++)
        ft_dir(f, dirs[i], 0755);
    ft_file(f, "low/workspace/a", "old", 0644);
    ft_file(f, "low/workspace/b", "old", 0644);
    ft_file(f, "low/workspace/same", "old", 0644);
    ft_dir(f, "low/workspace/dir", 0755);
    ft_file(f, "low/workspace/dir/x", "", 0644);
    ft_file(f, "low/workspace/dir/y", "", 0644);
    ft_dir(f, "low/workspace/moved", 0755);
    ft_file(f, "low/workspace/moved/m", "", 0644);
    ft_dir(f, "low/workspace/again", 0755);
    ft_file(f, "low/workspace/again/old", "", 0644);
    ft_dir(f, "low/workspace/more", 0755);
    ft_file(f, "low/workspace/more/old", "", 0644);
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    snprintf(options, sizeof options,
             "lowerdir=%s/low,upperdir=%s/up,workdir=%s/work,redirect_dir=on", f->root, f->root,
             f->root);
    assert_int_equal(mount("overlay", ft_path(f, "merged"), "overlay", 0, options), 0);
    assert_int_equal(
        mount(ft_path(f, "merged/workspace"), ft_path(f, "root/workspace"), NULL, MS_BIND, NULL),
        0);
    assert_int_equal(mount("proc", ft_path(f, "root/proc"), "proc", 0, NULL), 0);
    f->upper = open(ft_path(f, "up"), O_RDONLY | O_DIRECTORY);
    assert_true(f->upper >= 0);
}

/* Changes of many, all or nothing, and the rest work on an overlay, too. */
static void overlay_changes(struct ft *f) {
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, "same", "new");
    ft_put_file(&in, 0644, "dir", "a file now");
    ft_put_remove(&in, "more");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "apply", "/workspace");
    ft_holds(f, "root/workspace/dir", "a file now");
    assert_false(ft_there(f, "root/workspace/more"));
    buf_clear(&in);
    ft_put_data(&in, "x");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "write", "/workspace/here/m", "-1", "0");
    ft_holds(f, "root/workspace/here/m", "x");
    FT_EXPECT(f, NULL, FILEOP_OK, "move", "/workspace/here", "/workspace/there", "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", "/workspace/there", "1");
    buf_done(&in);
}

static void test_upper_tells_what_changed_since_a_snapshot(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct stat st;
    char root[128];
    overlay(f);
    snprintf(root, sizeof root, "%s/root", f->root);
    f->chroot = root;
    FT_RUN(f, NULL, &a, "upper", "/workspace");
    ft_ok(&a);
    assert_int_equal(a.count, 1);
    ft_free(&a);
    ft_file(f, "root/workspace/a", "new text", 0600);
    assert_int_equal(unlink(ft_path(f, "root/workspace/b")), 0);
    assert_int_equal(unlink(ft_path(f, "root/workspace/dir/x")), 0);
    assert_int_equal(rename(ft_path(f, "root/workspace/moved"), ft_path(f, "root/workspace/here")),
                     0);
    assert_int_equal(unlink(ft_path(f, "root/workspace/again/old")), 0);
    assert_int_equal(rmdir(ft_path(f, "root/workspace/again")), 0);
    ft_dir(f, "root/workspace/again", 0755);
    ft_file(f, "root/workspace/again/new", "", 0644);
    ft_file(f, "root/workspace/more/new", "", 0644);
    ft_link(f, "a", "root/workspace/l");
    FT_RUN(f, NULL, &a, "upper", "/workspace");
    ft_ok(&a);
    static const struct {
        const char *path;
        uint32_t kind, flags;
    } rows[] = {
        {"a", FILEOP_FILE, 0},
        {"b", FILEOP_WHITEOUT, 0},
        {"dir/x", FILEOP_WHITEOUT, 0},
        {"moved", FILEOP_WHITEOUT, 0},
        {"here", FILEOP_DIRECTORY, 0}, /* with what is in it, which is not told */
        {"again", FILEOP_DIRECTORY, FILEOP_OPAQUE},
        {"again/new", FILEOP_FILE, 0},
        {"more", FILEOP_DIRECTORY, 0},
        {"more/new", FILEOP_FILE, 0},
        {"l", FILEOP_SYMLINK, 0},
        {"dir", FILEOP_DIRECTORY, 0},
    };
    assert_int_equal(a.count, UNIT_COUNT(rows) + 1);
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        const struct ft_item *item = ft_find(&a, rows[i].path);
        assert_non_null(item);
        assert_int_equal(item->rec.kind, rows[i].kind);
        assert_int_equal(item->rec.flags, rows[i].flags);
    }
    assert_int_equal(stat(ft_path(f, "root/workspace/a"), &st), 0);
    assert_int_equal(ft_find(&a, "a")->rec.inode, st.st_ino);
    assert_int_equal(ft_find(&a, "a")->rec.size, 8);
    ft_free(&a);
    FT_RUN(f, NULL, &a, "upper", "/workspace/again");
    ft_ok(&a);
    assert_int_equal(a.count, 2);
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "upper", "/workspace/b");
    FT_EXPECT(f, NULL, FILEOP_UNSUPPORTED, "upper", "/tmp");
    overlay_changes(f);
    close(f->upper);
    assert_int_equal(umount(ft_path(f, "root/workspace")), 0);
    assert_int_equal(umount(ft_path(f, "root/proc")), 0);
    assert_int_equal(umount(ft_path(f, "merged")), 0);
}

/* Somebody moves the directories about, and puts links in their places, while they are walked: what
 * is told is below the root all the same. */
static void test_a_tree_that_is_moved_about(void **state) {
    struct ft *f = *state;
    int status = 0;
    ft_dir(f, "out", 0755);
    ft_dir(f, "out/secret", 0755);
    ft_dir(f, "t", 0755);
    deep(f, 2);
    pid_t busy = fork();
    assert_true(busy >= 0);
    if (busy == 0) {
        assert_int_equal(chdir(ft_path(f, "t")), 0);
        for (;;) {
            (void)mkdir("a", 0755);
            (void)mkdir("a/b", 0755);
            (void)mkdir("a/b/c", 0755);
            (void)rename("a/b", "../out/b");
            if (symlink("../out", "a/b") != 0 && errno == EACCES)
                _exit(1);
            (void)rename("a", "z");
            (void)unlink("z/b");
            (void)rename("../out/b", "z/b");
            (void)rmdir("z/b/c");
            (void)rmdir("z/b");
            (void)rmdir("z");
        }
    }
    for (int i = 0; i < 100; i++) {
        struct ft_answer a;
        FT_RUN(f, NULL, &a, i % 2 ? "pack" : "scan", ft_path(f, "t"));
        assert_int_equal(a.exit_code, 0);
        for (size_t j = 0; j < a.count; j++)
            assert_null(strstr(a.items[j].path, "secret"));
        ft_free(&a);
    }
    kill(busy, SIGKILL);
    waitpid(busy, &status, 0);
}

#define LOOK(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        LOOK(test_stat_tells_what_is_there),
        LOOK(test_arguments_are_checked),
        LOOK(test_list_is_in_order_and_paged),
        LOOK(test_many_entries_are_paged),
        LOOK(test_odd_names_come_back_as_they_are),
        LOOK(test_a_deep_tree_with_few_descriptors),
        LOOK(test_what_cannot_be_read_is_told_and_the_rest_goes_on),
        LOOK(test_look_follows_no_link),
        LOOK(test_work_in_progress_is_not_told),
        LOOK(test_magic_links_of_proc_lead_nowhere),
        LOOK(test_a_tree_that_is_moved_about),
        LOOK(test_upper_needs_a_snapshot),
        LOOK(test_upper_tells_what_changed_since_a_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
