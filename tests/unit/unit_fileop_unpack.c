#include "fileop_op.h"

#include "unit_operation.h"

static void test_a_tree_is_made_as_it_comes(void **state) {
    struct ft *f = *state;
    struct buf in;
    struct stat st;
    buf_init(&in, 1 << 20);
    ft_put_kind(&in, FILEOP_DIRECTORY, 0700, "", "");
    ft_put_kind(&in, FILEOP_DIRECTORY, 0555, "d", "");
    ft_put_file(&in, 04755, "d/a", "hello");
    ft_put_file(&in, 0600, "d/empty", "");
    ft_put_kind(&in, FILEOP_SYMLINK, 0777, "d/l", "/etc/passwd");
    ft_put_kind(&in, FILEOP_HARDLINK, 0755, "d/h", "d/a");
    ft_put_kind(&in, FILEOP_FIFO, 0600, "d/p", "");
    ft_put_file(&in, 0644, "no/such/parent", "x");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "unpack", ft_path(f, "made/here"));
    ft_holds(f, "made/here/d/a", "hello");
    ft_holds(f, "made/here/d/h", "hello");
    ft_holds(f, "made/here/d/empty", "");
    ft_holds(f, "made/here/no/such/parent", "x");
    assert_int_equal(ft_mode(f, "made/here"), S_IFDIR | 0755);
    assert_int_equal(ft_mode(f, "made/here/d"), S_IFDIR | 0555);
    assert_int_equal(ft_mode(f, "made/here/d/a"), S_IFREG | 04755);
    assert_int_equal(ft_mode(f, "made/here/d/p"), S_IFIFO | 0600);
    assert_true(S_ISLNK(ft_mode(f, "made/here/d/l")));
    static const char *const timed[] = {"d", "d/a", "d/l", "d/p"};
    for (size_t i = 0; i < UNIT_COUNT(timed); i++) {
        char rel[64];
        snprintf(rel, sizeof rel, "made/here/%s", timed[i]);
        assert_int_equal(lstat(ft_path(f, rel), &st), 0);
        assert_int_equal(st.st_mtim.tv_sec, 1500000000);
        assert_int_equal(st.st_mtim.tv_nsec, 123456789);
    }
    /* And once more over what is there, the directory that is shut included. */
    FT_EXPECT(f, &in, FILEOP_OK, "unpack", ft_path(f, "made/here"));
    assert_int_equal(ft_count(f, "made/here/d"), 5);
    assert_int_equal(ft_mode(f, "made/here/d"), S_IFDIR | 0555);
    buf_done(&in);
}

static void test_what_is_packed_unpacks_again(void **state) {
    struct ft *f = *state;
    struct ft_answer a, b;
    ft_dir(f, "d", 0755);
    ft_dir(f, "d/e", 0711);
    ft_file(f, "d/e/a", "hello", 0755);
    ft_link(f, "e/a", "d/l");
    assert_int_equal(link(ft_path(f, "d/e/a"), ft_path(f, "d/h")), 0);
    FT_RUN(f, NULL, &a, "pack", ft_path(f, "d"));
    ft_ok(&a);
    FT_EXPECT(f, &a.bytes, FILEOP_OK, "unpack", ft_path(f, "copy"));
    FT_RUN(f, NULL, &b, "pack", ft_path(f, "copy"));
    ft_ok(&b);
    assert_int_equal(a.count, b.count);
    for (size_t i = 1; i < a.count; i++) {
        assert_string_equal(a.items[i].path, b.items[i].path);
        assert_string_equal(a.items[i].target, b.items[i].target);
        assert_int_equal(a.items[i].rec.mode, b.items[i].rec.mode);
        assert_int_equal(a.items[i].rec.mtime_ns, b.items[i].rec.mtime_ns);
    }
    ft_free(&a);
    ft_free(&b);
}

static void hostile(struct ft *f, const struct buf *in, const char *path, enum fileop_code code) {
    struct ft_answer a;
    FT_RUN(f, in, &a, "unpack", ft_path(f, "d"));
    ft_failed(&a, code);
    assert_int_equal(a.count, 2);
    assert_string_equal(a.items[0].path, path);
    assert_int_equal(a.items[0].rec.code, code);
    ft_free(&a);
}

static void test_nothing_is_written_through_a_link(void **state) {
    struct ft *f = *state;
    struct buf in;
    ft_dir(f, "d", 0755);
    ft_dir(f, "target", 0755);
    ft_file(f, "target/x", "kept", 0600);
    buf_init(&in, 1 << 20);
    /* the archive brings the link along */
    ft_put_kind(&in, FILEOP_SYMLINK, 0777, "l", "../target");
    ft_put_file(&in, 0644, "l/x", "bad");
    ft_put_end(&in);
    hostile(f, &in, "l/x", FILEOP_LOOP);
    ft_holds(f, "target/x", "kept");
    /* a link that is there, in the place of a file: it is replaced */
    buf_clear(&in);
    ft_link(f, "../target/x", "d/m");
    ft_put_file(&in, 0644, "m", "new");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "unpack", ft_path(f, "d"));
    assert_true(S_ISREG(ft_mode(f, "d/m")));
    ft_holds(f, "target/x", "kept");
    assert_int_equal(ft_mode(f, "target/x") & 07777, 0600);
    /* in the place of a directory: likewise, with its mode */
    buf_clear(&in);
    ft_link(f, "../target", "d/n");
    ft_put_kind(&in, FILEOP_DIRECTORY, 0700, "n", "");
    ft_put_file(&in, 0644, "n/x", "new");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "unpack", ft_path(f, "d"));
    assert_true(S_ISDIR(ft_mode(f, "d/n")));
    ft_holds(f, "target/x", "kept");
    assert_int_equal(ft_mode(f, "target") & 07777, 0755);
    /* a hard link's source through a link */
    buf_clear(&in);
    ft_put_kind(&in, FILEOP_HARDLINK, 0644, "h", "l/x");
    ft_put_end(&in);
    hostile(f, &in, "h", FILEOP_LOOP);
    buf_done(&in);
}

static void test_paths_that_lead_out_are_refused(void **state) {
    struct ft *f = *state;
    static const char *const bad[] = {"../x", "a/../../x", "/tmp/x", "./x", "a//b"};
    ft_dir(f, "d", 0755);
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct buf in;
        buf_init(&in, 1 << 20);
        ft_put_file(&in, 0644, bad[i], "x");
        ft_put_end(&in);
        FT_EXPECT(f, &in, FILEOP_INVALID, "unpack", ft_path(f, "d"));
        buf_done(&in);
    }
    assert_int_equal(ft_count(f, "d"), 0);
    assert_int_equal(ft_count(f, ""), 1);
}

static void test_what_is_in_the_way_gives_way(void **state) {
    struct ft *f = *state;
    struct buf in;
    ft_dir(f, "d", 0755);
    ft_dir(f, "d/empty", 0755);
    ft_dir(f, "d/full", 0755);
    ft_file(f, "d/full/x", "kept", 0644);
    ft_file(f, "d/file", "", 0644);
    ft_file(f, "d/e2", "", 0644);
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, "empty", "now a file");
    ft_put_kind(&in, FILEOP_DIRECTORY, 0755, "file", "");
    ft_put_kind(&in, FILEOP_SYMLINK, 0777, "e2", "file");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "unpack", ft_path(f, "d"));
    ft_holds(f, "d/empty", "now a file");
    assert_true(S_ISDIR(ft_mode(f, "d/file")));
    assert_true(S_ISLNK(ft_mode(f, "d/e2")));
    buf_clear(&in);
    ft_put_file(&in, 0644, "full", "x");
    ft_put_end(&in);
    hostile(f, &in, "full", FILEOP_IS_DIRECTORY);
    ft_holds(f, "d/full/x", "kept");
    assert_int_equal(ft_count(f, "d"), 4);
    buf_done(&in);
}

static void test_devices_are_told_and_passed_over(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_dir(f, "d", 0755);
    ft_put_kind(&in, FILEOP_DEVICE, 0644, "null", "");
    ft_put_kind(&in, FILEOP_SOCKET, 0644, "sock", "");
    ft_put_file(&in, 0644, "a", "x");
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "unpack", ft_path(f, "d"));
    ft_ok(&a);
    assert_int_equal(a.count, 3);
    assert_int_equal(a.items[0].rec.code, FILEOP_UNSUPPORTED);
    assert_string_equal(a.items[1].path, "sock");
    ft_free(&a);
    ft_holds(f, "d/a", "x");
    buf_done(&in);
}

static void test_every_truncation_ends_it_without_half_a_file(void **state) {
    struct ft *f = *state;
    struct buf in;
    buf_init(&in, 1 << 20);
    ft_put_file(&in, 0644, "a", "hello");
    ft_put_kind(&in, FILEOP_SYMLINK, 0777, "l", "a");
    ft_put_end(&in);
    ft_dir(f, "d", 0755);
    for (size_t len = 0; len < in.len; len += 7) {
        struct buf cut = in;
        cut.len = len;
        FT_EXPECT(f, &cut, FILEOP_INVALID, "unpack", ft_path(f, "d"));
        if (ft_there(f, "d/a"))
            ft_holds(f, "d/a", "hello");
        assert_int_equal(ft_count(f, "d"), (size_t)ft_there(f, "d/a") + (size_t)ft_there(f, "d/l"));
    }
    buf_done(&in);
}

#define UNPACK(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        UNPACK(test_a_tree_is_made_as_it_comes),
        UNPACK(test_what_is_packed_unpacks_again),
        UNPACK(test_nothing_is_written_through_a_link),
        UNPACK(test_paths_that_lead_out_are_refused),
        UNPACK(test_what_is_in_the_way_gives_way),
        UNPACK(test_devices_are_told_and_passed_over),
        UNPACK(test_every_truncation_ends_it_without_half_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
