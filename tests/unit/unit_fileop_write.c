#include "fileop_op.h"

#include <sys/ioctl.h>
#include <sys/resource.h>

#include "unit_operation.h"

static void content(struct buf *in, const char *text) {
    buf_init(in, 64 << 20);
    ft_put_data(in, text);
    ft_put_end(in);
}

static void test_a_file_is_written_whole(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    content(&in, "hello");
    FT_RUN(f, &in, &a, "write", ft_path(f, "a"), "-1", "0");
    ft_ok(&a);
    assert_int_equal(a.count, 2);
    assert_int_equal(a.items[0].rec.size, 5);
    assert_int_equal(a.items[0].rec.mode, 0644);
    assert_int_equal(a.items[0].rec.nlink, 1);
    ft_free(&a);
    ft_holds(f, "a", "hello");
    struct stat st;
    assert_int_equal(stat(ft_path(f, "a"), &st), 0);
    assert_int_equal(st.st_uid, FT_USER);
    buf_done(&in);
    content(&in, "x"); /* shorter over longer */
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "a"), "493", "0");
    ft_holds(f, "a", "x");
    assert_int_equal(ft_mode(f, "a") & 07777, 0755);
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "a"), "-1", "0");
    assert_int_equal(ft_mode(f, "a") & 07777, 0755);
    assert_int_equal(ft_count(f, ""), 1);
    buf_done(&in);
}

static void test_an_upload_that_is_cut_short_changes_nothing(void **state) {
    struct ft *f = *state;
    struct buf in;
    ft_file(f, "a", "before", 0644);
    content(&in, "after");
    for (size_t len = 0; len < in.len; len += 13) {
        struct buf cut = in;
        cut.len = len;
        FT_EXPECT(f, &cut, FILEOP_INVALID, "write", ft_path(f, "a"), "-1", "0");
        FT_EXPECT(f, &cut, FILEOP_INVALID, "write", ft_path(f, "new"), "-1", "0");
    }
    in.data[0] ^= 1;
    FT_EXPECT(f, &in, FILEOP_INVALID, "write", ft_path(f, "a"), "-1", "0");
    ft_holds(f, "a", "before");
    assert_int_equal(ft_count(f, ""), 1);
    buf_done(&in);
}

static void test_a_killed_upload_leaves_nothing(void **state) {
    struct ft *f = *state;
    struct buf in;
    int status = 0;
    content(&in, "after");
    char *argv[] = {"write", ft_path(f, "a"), "-1", "0", NULL};
    struct ft_process p = ft_start(f, argv);
    assert_int_equal(write(p.in, in.data, 90), 90);
    int queued = 1; /* until it has taken what came */
    for (int i = 0; i < 10000 && queued > 0; i++) {
        assert_int_equal(ioctl(p.in, FIONREAD, &queued), 0);
        usleep(1000);
    }
    kill(p.op, SIGKILL);
    waitpid(p.op, &status, 0);
    close(p.in);
    close(p.out);
    assert_int_equal(ft_count(f, ""), 0);
    buf_done(&in);
}

static void test_parents_are_made_when_asked(void **state) {
    struct ft *f = *state;
    struct buf in;
    content(&in, "x");
    FT_EXPECT(f, &in, FILEOP_NOT_FOUND, "write", ft_path(f, "a/b/c"), "-1", "0");
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "a/b/c"), "-1", "1");
    ft_holds(f, "a/b/c", "x");
    assert_int_equal(ft_mode(f, "a/b"), S_IFDIR | 0755);
    FT_EXPECT(f, &in, FILEOP_NOT_DIRECTORY, "write", ft_path(f, "a/b/c/d"), "-1", "1");
    ft_dir(f, "shut", 0555);
    FT_EXPECT(f, &in, FILEOP_DENIED, "write", ft_path(f, "shut/x"), "-1", "1");
    FT_EXPECT(f, &in, FILEOP_DENIED, "write", ft_path(f, "shut/x/y"), "-1", "1");
    FT_EXPECT(f, &in, FILEOP_DENIED, "write", "/etc/passwd", "-1", "0");
    buf_done(&in);
}

static void test_a_final_link_is_followed(void **state) {
    struct ft *f = *state;
    struct buf in;
    content(&in, "x");
    ft_dir(f, "d", 0755);
    ft_file(f, "d/a", "before", 0600);
    ft_link(f, "d/a", "l");
    ft_link(f, ft_path(f, "l"), "m");
    ft_link(f, "d/new", "dangling");
    ft_link(f, "loop", "loop");
    ft_link(f, "d", "dl");
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "m"), "-1", "0");
    ft_holds(f, "d/a", "x");
    assert_int_equal(ft_mode(f, "d/a") & 07777, 0600);
    assert_true(S_ISLNK(ft_mode(f, "l")) && S_ISLNK(ft_mode(f, "m")));
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "dangling"), "-1", "0");
    ft_holds(f, "d/new", "x");
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "dl/through"), "-1", "0");
    ft_holds(f, "d/through", "x");
    FT_EXPECT(f, &in, FILEOP_LOOP, "write", ft_path(f, "loop"), "-1", "0");
    FT_EXPECT(f, &in, FILEOP_IS_DIRECTORY, "write", ft_path(f, "dl"), "-1", "0");
    buf_done(&in);
}

static void test_only_regular_files_are_written(void **state) {
    struct ft *f = *state;
    struct buf in;
    content(&in, "x");
    assert_int_equal(mkfifo(ft_path(f, "p"), 0666), 0);
    alarm(10);
    FT_EXPECT(f, &in, FILEOP_NOT_REGULAR, "write", ft_path(f, "p"), "-1", "0");
    FT_EXPECT(f, &in, FILEOP_NOT_REGULAR, "write", "/dev/null", "-1", "0");
    FT_EXPECT(f, &in, FILEOP_IS_DIRECTORY, "write", ft_path(f, ""), "-1", "0");
    FT_EXPECT(f, &in, FILEOP_IS_DIRECTORY, "write", "/", "-1", "0");
    FT_EXPECT(f, &in, FILEOP_IS_DIRECTORY, "write", ft_path(f, ".."), "-1", "0");
    FT_EXPECT(f, &in, FILEOP_INVALID, "write", ft_path(f, "a"), "4096", "0");
    alarm(0);
    buf_done(&in);
}

static void test_a_file_over_the_limit_is_too_large(void **state) {
    struct ft *f = *state;
    struct rlimit before, small = {1 << 20, RLIM_INFINITY};
    struct buf in;
    char *block = calloc(1, FILEOP_DATA_MAX);
    buf_init(&in, 64 << 20);
    for (int i = 0; i < 3; i++)
        ft_put(&in, (struct fileop_record){.type = FILEOP_DATA, .data_len = FILEOP_DATA_MAX}, "",
               "", block);
    ft_put_end(&in);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    FT_EXPECT(f, &in, FILEOP_TOO_LARGE, "write", ft_path(f, "a"), "-1", "0");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ft_count(f, ""), 0);
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "a"), "-1", "0");
    free(block);
    buf_done(&in);
}

static void test_writers_at_once_are_never_mixed(void **state) {
    struct ft *f = *state;
    struct buf in[2];
    for (int i = 0; i < 2; i++) {
        char *text = malloc(300001);
        memset(text, 'A' + i, 300000);
        text[300000] = '\0';
        content(&in[i], text);
        free(text);
    }
    for (int round = 0; round < 20; round++) {
        pid_t pids[2];
        for (int i = 0; i < 2; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) {
                struct ft_answer a;
                FT_RUN(f, &in[i], &a, "write", ft_path(f, "x"), "-1", "0");
                _exit(a.items[a.count - 1].rec.type == FILEOP_END ? 0 : 1);
            }
        }
        for (int i = 0; i < 2; i++) {
            int status = 0;
            waitpid(pids[i], &status, 0);
            assert_int_equal(status, 0);
        }
        static char got[300001];
        int fd = open(ft_path(f, "x"), O_RDONLY);
        assert_int_equal(read(fd, got, sizeof got), 300000);
        close(fd);
        for (int i = 1; i < 300000; i++)
            assert_true(got[i] == got[0]);
    }
    assert_int_equal(ft_count(f, ""), 1);
    buf_done(&in[0]);
    buf_done(&in[1]);
}

static void test_mkdir(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    FT_RUN(f, NULL, &a, "mkdir", ft_path(f, "a"), "-1", "0");
    ft_ok(&a);
    assert_int_equal(a.items[0].rec.kind, FILEOP_DIRECTORY);
    assert_int_equal(a.items[0].rec.mode, 0755);
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_EXISTS, "mkdir", ft_path(f, "a"), "-1", "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "mkdir", ft_path(f, "a"), "-1", "1");
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "mkdir", ft_path(f, "b/c"), "-1", "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "mkdir", ft_path(f, "b/c/"), "1528", "1"); /* 02770 */
    assert_int_equal(ft_mode(f, "b/c") & 07777, 02770);
    ft_file(f, "file", "", 0644);
    FT_EXPECT(f, NULL, FILEOP_EXISTS, "mkdir", ft_path(f, "file"), "-1", "1");
    FT_EXPECT(f, NULL, FILEOP_EXISTS, "mkdir", "/", "-1", "0");
    FT_EXPECT(f, NULL, FILEOP_OK, "mkdir", "/", "-1", "1");
}

static void test_move(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_file(f, "a", "A", 0644);
    ft_file(f, "b", "B", 0644);
    ft_dir(f, "d", 0755);
    ft_dir(f, "full", 0755);
    ft_file(f, "full/x", "", 0644);
    ft_link(f, "a", "l");
    FT_EXPECT(f, NULL, FILEOP_EXISTS, "move", ft_path(f, "a"), ft_path(f, "b"), "0");
    ft_holds(f, "b", "B");
    FT_RUN(f, NULL, &a, "move", ft_path(f, "a"), ft_path(f, "b"), "1");
    ft_ok(&a);
    assert_int_equal(a.items[0].rec.size, 1);
    ft_free(&a);
    ft_holds(f, "b", "A");
    assert_false(ft_there(f, "a"));
    FT_EXPECT(f, NULL, FILEOP_OK, "move", ft_path(f, "l"), ft_path(f, "d/l"), "0");
    assert_true(S_ISLNK(ft_mode(f, "d/l")));
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "move", ft_path(f, "gone"), ft_path(f, "z"), "0");
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "move", ft_path(f, "b"), ft_path(f, "no/z"), "0");
    FT_EXPECT(f, NULL, FILEOP_NOT_EMPTY, "move", ft_path(f, "d"), ft_path(f, "full"), "1");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "move", ft_path(f, "d"), ft_path(f, "d/e"), "0");
    FT_EXPECT(f, NULL, FILEOP_IS_DIRECTORY, "move", ft_path(f, "b"), ft_path(f, "d"), "1");
}

static void test_a_file_moves_to_another_file_system(void **state) {
    struct ft *f = *state;
    char there[64] = "/dev/shm/pinfold-fileop-XXXXXX";
    char to[80];
    struct stat st;
    assert_non_null(mkdtemp(there));
    ft_own(there);
    snprintf(to, sizeof to, "%s/x", there);
    ft_file(f, "a", "A", 0751);
    ft_dir(f, "d", 0755);
    FT_EXPECT(f, NULL, FILEOP_OK, "move", ft_path(f, "a"), to, "0");
    assert_false(ft_there(f, "a"));
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_int_equal(st.st_size, 1);
    ft_file(f, "a", "AB", 0644);
    FT_EXPECT(f, NULL, FILEOP_EXISTS, "move", ft_path(f, "a"), to, "0");
    assert_true(ft_there(f, "a"));
    FT_EXPECT(f, NULL, FILEOP_OK, "move", ft_path(f, "a"), to, "1");
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_size, 2);
    assert_int_equal(unlink(to), 0);
    FT_EXPECT(f, NULL, FILEOP_CROSS_DEVICE, "move", ft_path(f, "d"), to, "0");
    assert_int_equal(rmdir(there), 0);
}

#define WRITE(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WRITE(test_a_file_is_written_whole),
        WRITE(test_an_upload_that_is_cut_short_changes_nothing),
        WRITE(test_a_killed_upload_leaves_nothing),
        WRITE(test_parents_are_made_when_asked),
        WRITE(test_a_final_link_is_followed),
        WRITE(test_only_regular_files_are_written),
        WRITE(test_a_file_over_the_limit_is_too_large),
        WRITE(test_writers_at_once_are_never_mixed),
        WRITE(test_mkdir),
        WRITE(test_move),
        WRITE(test_a_file_moves_to_another_file_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
