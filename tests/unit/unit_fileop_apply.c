#include "fileop_op.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include "unit_operation.h"

static void test_all_of_it_takes_its_places(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_dir(f, "w", 0755);
    ft_file(f, "w/old", "old", 0644);
    ft_file(f, "w/gone", "", 0644);
    ft_dir(f, "w/gonedir", 0755);
    ft_file(f, "w/gonedir/x", "", 0644);
    ft_file(f, "w/attr", "same", 0600);
    ft_file(f, "w/todir", "", 0644);
    ft_dir(f, "w/tofile", 0755);
    ft_file(f, "w/tofile/x", "", 0644);
    ft_link(f, "old", "w/tolink");
    ft_put_remove(&in, "gone");
    ft_put_remove(&in, "gonedir");
    ft_put_remove(&in, "never/there");
    ft_put_file(&in, 0755, "old", "new");
    ft_put_file(&in, 0644, "made/parents/x", "x");
    ft_put_kind(&in, FILEOP_FILE, 0640, "attr", "");
    ft_put_kind(&in, FILEOP_DIRECTORY, 0550, "todir", "");
    ft_put_file(&in, 0644, "todir/y", "y");
    ft_put_file(&in, 0644, "tofile", "now a file");
    ft_put_kind(&in, FILEOP_SYMLINK, 0777, "tolink", "elsewhere");
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "apply", ft_path(f, "w"));
    ft_ok(&a);
    static const char *const told[] = {"old",     "made/parents/x", "attr",  "todir",
                                       "todir/y", "tofile",         "tolink"};
    assert_int_equal(a.count, UNIT_COUNT(told) + 1);
    for (size_t i = 0; i < UNIT_COUNT(told); i++) {
        char rel[64];
        struct stat st;
        assert_string_equal(a.items[i].path, told[i]);
        snprintf(rel, sizeof rel, "w/%s", told[i]);
        assert_int_equal(lstat(ft_path(f, rel), &st), 0);
        assert_int_equal(a.items[i].rec.inode, st.st_ino);
        assert_int_equal(a.items[i].rec.size, st.st_size);
        assert_int_equal(a.items[i].rec.ctime_ns,
                         st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec);
        assert_int_equal(a.items[i].rec.mtime_ns, 1500000000123456789);
    }
    ft_free(&a);
    ft_holds(f, "w/old", "new");
    assert_int_equal(ft_mode(f, "w/old") & 07777, 0755);
    assert_false(ft_there(f, "w/gone"));
    assert_false(ft_there(f, "w/gonedir"));
    ft_holds(f, "w/attr", "same");
    assert_int_equal(ft_mode(f, "w/attr") & 07777, 0640);
    assert_int_equal(ft_mode(f, "w/todir"), S_IFDIR | 0550);
    ft_holds(f, "w/tofile", "now a file");
    assert_int_equal(ft_count(f, "w"), 6);
    assert_int_equal(ft_count(f, ""), 1); /* the stage is gone */
    /* Once more: the directory that is shut now is no obstacle. */
    FT_EXPECT(f, &in, FILEOP_OK, "apply", ft_path(f, "w"));
    assert_int_equal(ft_mode(f, "w/todir"), S_IFDIR | 0550);
    buf_done(&in);
}

static void old_tree(struct ft *f) {
    ft_dir(f, "w", 0755);
    ft_file(f, "w/a", "old a", 0640);
    ft_dir(f, "w/d", 0555);
    ft_link(f, "a", "w/l");
    ft_dir(f, "w/gone", 0755);
    ft_file(f, "w/gone/x", "old x", 0644);
}

static void is_old_tree(struct ft *f) {
    ft_holds(f, "w/a", "old a");
    assert_int_equal(ft_mode(f, "w/a") & 07777, 0640);
    assert_int_equal(ft_mode(f, "w/d"), S_IFDIR | 0555);
    assert_true(S_ISLNK(ft_mode(f, "w/l")));
    ft_holds(f, "w/gone/x", "old x");
    assert_int_equal(ft_count(f, "w"), 4);
    assert_int_equal(ft_count(f, "w/d"), 0);
    assert_int_equal(ft_count(f, ""), 1);
}

static void new_tree(struct buf *in) {
    buf_init(in, 1 << 20);
    ft_put_remove(in, "gone");
    ft_put_file(in, 0644, "a", "new a");
    ft_put_file(in, 0644, "d/in", "in");
    ft_put_kind(in, FILEOP_DIRECTORY, 0700, "d", "");
    ft_put_kind(in, FILEOP_DIRECTORY, 0700, "l", "");
    ft_put_file(in, 0644, "l/x/y", "y");
}

static void test_nothing_of_it_when_it_is_cut_short(void **state) {
    struct ft *f = *state;
    struct buf in;
    old_tree(f);
    new_tree(&in);
    for (size_t len = 0; len < in.len; len += 17) {
        struct buf cut = in;
        cut.len = len;
        FT_EXPECT(f, &cut, FILEOP_INVALID, "apply", ft_path(f, "w"));
    }
    is_old_tree(f);
    buf_done(&in);
}

static void test_nothing_of_it_when_the_last_part_fails(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    old_tree(f);
    assert_int_equal(mkdir(ft_path(f, "w/d/roots"), 0755), 0); /* not the user's */
    new_tree(&in);
    ft_put_file(&in, 0644, "d/roots/x", "x");
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "apply", ft_path(f, "w"));
    ft_failed(&a, FILEOP_DENIED);
    assert_int_equal(a.count, 2);
    assert_string_equal(a.items[0].path, "d/roots/x");
    ft_free(&a);
    assert_int_equal(rmdir(ft_path(f, "w/d/roots")), 0);
    is_old_tree(f);
    buf_done(&in);
    /* a file that should be there and is a directory */
    new_tree(&in);
    ft_put_kind(&in, FILEOP_FILE, 0600, "d", "");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_CHANGED, "apply", ft_path(f, "w"));
    is_old_tree(f);
    buf_done(&in);
    /* what cannot be made at all */
    new_tree(&in);
    ft_put_kind(&in, FILEOP_DEVICE, 0600, "dev", "");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_UNSUPPORTED, "apply", ft_path(f, "w"));
    is_old_tree(f);
    buf_done(&in);
}

static void test_no_link_is_followed(void **state) {
    struct ft *f = *state;
    struct buf in;
    ft_dir(f, "w", 0755);
    ft_dir(f, "target", 0755);
    ft_file(f, "target/x", "kept", 0600);
    ft_link(f, "../target", "w/l");
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, "l/x", "bad");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_LOOP, "apply", ft_path(f, "w"));
    buf_clear(&in);
    ft_put_remove(&in, "l/x");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "apply", ft_path(f, "w"));
    buf_clear(&in);
    ft_put_kind(&in, FILEOP_FILE, 0777, "l/x", "");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_LOOP, "apply", ft_path(f, "w"));
    buf_clear(&in);
    ft_put_remove(&in, "l");
    ft_put_file(&in, 0644, "l/x", "a directory now");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "apply", ft_path(f, "w"));
    ft_holds(f, "target/x", "kept");
    assert_int_equal(ft_mode(f, "target/x") & 07777, 0600);
    ft_holds(f, "w/l/x", "a directory now");
    buf_done(&in);
}

static void test_the_directory_itself_is_made(void **state) {
    struct ft *f = *state;
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, "a", "A");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "apply", ft_path(f, "x/y"));
    ft_holds(f, "x/y/a", "A");
    FT_EXPECT(f, &in, FILEOP_DENIED, "apply", "/etc");
    FT_EXPECT(f, &in, FILEOP_NOT_DIRECTORY, "apply", ft_path(f, "x/y/a"));
    /* where the parent belongs to somebody else, the stage is inside */
    assert_int_equal(chown(ft_path(f, "x"), 0, 0), 0);
    FT_EXPECT(f, &in, FILEOP_OK, "apply", ft_path(f, "x/y"));
    assert_int_equal(ft_count(f, "x/y"), 1);
    assert_int_equal(ft_count(f, "x"), 1);
    buf_done(&in);
}

static void test_names_of_work_in_progress_are_refused(void **state) {
    struct ft *f = *state;
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, FILEOP_HIDDEN "x", "A");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_INVALID, "apply", ft_path(f, "w"));
    FT_EXPECT(f, &in, FILEOP_INVALID, "unpack", ft_path(f, "w"));
    buf_clear(&in);
    ft_put_file(&in, 0644, "a/" FILEOP_HIDDEN "x/b", "A");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_INVALID, "apply", ft_path(f, "w"));
    assert_int_equal(ft_count(f, "w"), 0);
    buf_done(&in);
}

static void test_many_files(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    buf_init(&in, 64 << 20);
    for (int i = 0; i < 3000; i++) {
        char path[64];
        snprintf(path, sizeof path, "d%d/e%d/f%d", i % 7, i % 31, i);
        ft_put_file(&in, 0644, path, "some text");
    }
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "apply", ft_path(f, "w"));
    ft_ok(&a);
    assert_int_equal(a.count, 3001);
    ft_free(&a);
    FT_RUN(f, &in, &a, "apply", ft_path(f, "w"));
    ft_ok(&a);
    ft_free(&a);
    FT_RUN(f, NULL, &a, "scan", ft_path(f, "w"));
    ft_ok(&a);
    assert_int_equal(a.count, 3000 + 7 + 7 * 31 + 1);
    ft_free(&a);
    buf_done(&in);
}

/* What a killed one left is removed by the next; what one that lives has made is not. */
static void test_leftovers_are_swept(void **state) {
    struct ft *f = *state;
    struct buf in;
    int status = 0, queued = 1;
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, "a", "A");
    ft_put_end(&in);
    ft_dir(f, "w", 0755);
    char *argv[] = {"apply", ft_path(f, "w"), NULL};
    struct ft_process p = ft_start(f, argv);
    assert_int_equal(write(p.in, in.data, 90), 90);
    for (int i = 0; i < 10000 && queued > 0; i++) {
        assert_int_equal(ioctl(p.in, FIONREAD, &queued), 0);
        usleep(1000);
    }
    FT_EXPECT(f, &in, FILEOP_OK, "apply", ft_path(f, "w"));
    assert_int_equal(ft_count(f, ""), 2); /* the other's stage */
    kill(p.op, SIGKILL);
    waitpid(p.op, &status, 0);
    close(p.in);
    close(p.out);
    FT_EXPECT(f, NULL, FILEOP_OK, "scan", ft_path(f, "w"));
    assert_int_equal(ft_count(f, ""), 1);
    buf_done(&in);
}

/* With nothing to spare, neither bytes nor inodes: the new files are made before the old ones go.
 */
static void test_a_full_file_system_changes_nothing(void **state) {
    struct ft *f = *state;
    struct buf in;
    char *text = malloc(600001);
    memset(text, 'x', 600000);
    text[600000] = '\0';
    buf_init(&in, 64 << 20);
    ft_dir(f, "m", 0755);
    assert_int_equal(mount("tmpfs", ft_path(f, "m"), "tmpfs", 0, "size=1m,nr_inodes=40"), 0);
    ft_own(ft_path(f, "m"));
    ft_dir(f, "m/w", 0755);
    ft_file(f, "m/w/a", "old", 0644);
    ft_put_file(&in, 0644, "a", text);
    ft_put_file(&in, 0644, "b", text);
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_NO_SPACE, "apply", ft_path(f, "m/w"));
    ft_holds(f, "m/w/a", "old");
    assert_int_equal(ft_count(f, "m/w"), 1);
    assert_int_equal(ft_count(f, "m"), 1);
    buf_clear(&in);
    for (int i = 0; i < 60; i++) {
        char path[32];
        snprintf(path, sizeof path, "d%d/x", i);
        ft_put_file(&in, 0644, path, "");
    }
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_NO_SPACE, "apply", ft_path(f, "m/w"));
    buf_clear(&in);
    for (int i = 0; i < 25; i++) { /* the directories are what is too much, at the end */
        char path[32];
        snprintf(path, sizeof path, "d%d/x", i);
        ft_put_file(&in, 0644, path, "");
    }
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_NO_SPACE, "apply", ft_path(f, "m/w"));
    assert_int_equal(ft_count(f, "m/w"), 1);
    assert_int_equal(ft_count(f, "m"), 1);
    buf_clear(&in);
    ft_put_data(&in, text);
    ft_put_data(&in, text);
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_NO_SPACE, "write", ft_path(f, "m/w/a"), "-1", "0");
    ft_holds(f, "m/w/a", "old");
    assert_int_equal(umount(ft_path(f, "m")), 0);
    buf_done(&in);
    free(text);
}

#define APPLY(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        APPLY(test_all_of_it_takes_its_places),
        APPLY(test_nothing_of_it_when_it_is_cut_short),
        APPLY(test_nothing_of_it_when_the_last_part_fails),
        APPLY(test_no_link_is_followed),
        APPLY(test_the_directory_itself_is_made),
        APPLY(test_names_of_work_in_progress_are_refused),
        APPLY(test_a_full_file_system_changes_nothing),
        APPLY(test_many_files),
        APPLY(test_leftovers_are_swept),
    };
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
