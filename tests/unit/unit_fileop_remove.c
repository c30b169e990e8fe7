#include "fileop_op.h"

#include "unit_operation.h"

static void test_remove(void **state) {
    struct ft *f = *state;
    ft_file(f, "a", "", 0644);
    ft_dir(f, "d", 0755);
    ft_file(f, "d/keep", "kept", 0644);
    ft_link(f, "d", "l");
    ft_link(f, "nowhere", "m");
    assert_int_equal(mkfifo(ft_path(f, "p"), 0644), 0);
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "a"), "0");
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "remove", ft_path(f, "a"), "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "l"), "1");
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "m"), "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "p"), "0");
    ft_holds(f, "d/keep", "kept");
    FT_EXPECT(f, NULL, FILEOP_NOT_EMPTY, "remove", ft_path(f, "d"), "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "d"), "1");
    assert_int_equal(ft_count(f, ""), 0);
    FT_EXPECT(f, NULL, FILEOP_BUSY, "remove", "/", "1");
    FT_EXPECT(f, NULL, FILEOP_DENIED, "remove", "/proc", "1");
    FT_EXPECT(f, NULL, FILEOP_DENIED, "remove", "/etc", "1");
    FT_EXPECT(f, NULL, FILEOP_IS_DIRECTORY, "remove", ft_path(f, "."), "1");
}

static void test_links_in_a_tree_are_removed_and_not_followed(void **state) {
    struct ft *f = *state;
    ft_dir(f, "precious", 0700);
    ft_file(f, "precious/x", "kept", 0600);
    ft_dir(f, "t", 0755);
    ft_dir(f, "t/u", 0755);
    ft_link(f, "../precious", "t/l");
    ft_link(f, "/", "t/u/root");
    ft_dir(f, "t/" FILEOP_HIDDEN "0", 0755);
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "t"), "1");
    ft_holds(f, "precious/x", "kept");
    assert_int_equal(ft_mode(f, "precious") & 07777, 0700);
    assert_int_equal(ft_count(f, ""), 1);
}

static void test_directories_that_are_shut_are_no_obstacle(void **state) {
    struct ft *f = *state;
    ft_dir(f, "t", 0755);
    ft_dir(f, "t/zero", 0755);
    ft_dir(f, "t/zero/in", 0755);
    ft_file(f, "t/zero/in/f", "", 0);
    ft_dir(f, "t/ro", 0755);
    ft_file(f, "t/ro/f", "", 0444);
    assert_int_equal(chmod(ft_path(f, "t/zero/in"), 0), 0);
    assert_int_equal(chmod(ft_path(f, "t/zero"), 0), 0);
    assert_int_equal(chmod(ft_path(f, "t/ro"), 0555), 0);
    assert_int_equal(chmod(ft_path(f, "t"), 0), 0);
    FT_EXPECT(f, NULL, FILEOP_OK, "remove", ft_path(f, "t"), "1");
    assert_int_equal(ft_count(f, ""), 0);
}

static void test_files_of_another_user_stay(void **state) {
    struct ft *f = *state;
    ft_dir(f, "t", 0755);
    assert_int_equal(mkdir(ft_path(f, "t/other"), 0755), 0); /* root's */
    int fd = open(ft_path(f, "t/other/x"), O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    close(fd);
    FT_EXPECT(f, NULL, FILEOP_DENIED, "remove", ft_path(f, "t"), "1");
    assert_true(ft_there(f, "t/other/x"));
}

static void test_while_others_make_files_in_it(void **state) {
    struct ft *f = *state;
    int status = 0;
    ft_dir(f, "t", 0755);
    pid_t busy = fork();
    assert_true(busy >= 0);
    if (busy == 0) {
        char from[256], to[256];
        snprintf(from, sizeof from, "%s/t/sub", f->root);
        snprintf(to, sizeof to, "%s/t/other", f->root);
        for (int i = 0;; i++) {
            char name[300];
            (void)mkdir(from, 0755);
            snprintf(name, sizeof name, "%s/%d", from, i);
            close(open(name, O_WRONLY | O_CREAT, 0644));
            (void)rename(from, to);
            if (access(f->root, F_OK) != 0)
                _exit(0);
        }
    }
    for (int i = 0; i < 20; i++) {
        struct ft_answer a;
        FT_RUN(f, NULL, &a, "remove", ft_path(f, "t"), "1");
        assert_int_equal(a.exit_code, 0);
        uint32_t code = a.items[a.count - 1].rec.code;
        assert_true(code == FILEOP_OK || code == FILEOP_NOT_EMPTY || code == FILEOP_DENIED ||
                    code == FILEOP_NOT_FOUND);
        ft_free(&a);
        if (mkdir(ft_path(f, "t"), 0755) == 0)
            ft_own(ft_path(f, "t"));
    }
    kill(busy, SIGKILL);
    waitpid(busy, &status, 0);
}

#define REMOVE(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        REMOVE(test_remove),
        REMOVE(test_links_in_a_tree_are_removed_and_not_followed),
        REMOVE(test_directories_that_are_shut_are_no_obstacle),
        REMOVE(test_files_of_another_user_stay),
        REMOVE(test_while_others_make_files_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
