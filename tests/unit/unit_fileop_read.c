#include "fileop_op.h"

#include <poll.h>

#include "unit_operation.h"

static void test_read_gives_the_part_that_is_asked_for(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    static const struct {
        const char *offset, *length, *text;
    } rows[] = {
        {"0", "100", "0123456789"},
        {"0", "18446744073709551615", "0123456789"},
        {"3", "4", "3456"},
        {"9", "2", "9"},
        {"10", "5", ""},
        {"9223372036854775807", "1", ""},
        {"0", "0", ""},
    };
    ft_file(f, "a", "0123456789", 0644);
    ft_link(f, "a", "l");
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        FT_RUN(f, NULL, &a, "read", ft_path(f, "l"), (char *)rows[i].offset,
               (char *)rows[i].length);
        ft_ok(&a);
        assert_int_equal(a.items[0].rec.size, 10);
        assert_int_equal(a.items[0].rec.flags, FILEOP_CONTENT);
        assert_int_equal(a.items[0].data_len, strlen(rows[i].text));
        if (*rows[i].text)
            assert_memory_equal(a.items[0].data, rows[i].text, strlen(rows[i].text));
        ft_free(&a);
    }
    FT_EXPECT(f, NULL, FILEOP_INVALID, "read", ft_path(f, "a"), "-1", "1");
    FT_EXPECT(f, NULL, FILEOP_INVALID, "read", ft_path(f, "a"), "9223372036854775808", "1");
}

static void test_only_regular_files_are_read_and_at_once(void **state) {
    struct ft *f = *state;
    assert_int_equal(mkfifo(ft_path(f, "fifo"), 0666), 0);
    ft_dir(f, "d", 0755);
    ft_file(f, "secret", "x", 0);
    ft_link(f, "loop", "loop");
    alarm(10);
    FT_EXPECT(f, NULL, FILEOP_NOT_REGULAR, "read", ft_path(f, "fifo"), "0", "1");
    FT_EXPECT(f, NULL, FILEOP_NOT_REGULAR, "read", "/dev/null", "0", "1");
    FT_EXPECT(f, NULL, FILEOP_NOT_REGULAR, "read", "/proc/self/status", "0", "1");
    FT_EXPECT(f, NULL, FILEOP_IS_DIRECTORY, "read", ft_path(f, "d"), "0", "1");
    FT_EXPECT(f, NULL, FILEOP_DENIED, "read", ft_path(f, "secret"), "0", "1");
    FT_EXPECT(f, NULL, FILEOP_LOOP, "read", ft_path(f, "loop"), "0", "1");
    FT_EXPECT(f, NULL, FILEOP_LOOP, "read", "/proc/self/fd/0", "0", "1");
    FT_EXPECT(f, NULL, FILEOP_NOT_REGULAR, "pack", ft_path(f, "fifo"));
    alarm(0);
}

static void test_a_sparse_giant(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_file(f, "s", "", 0644);
    assert_int_equal(truncate(ft_path(f, "s"), (off_t)1 << 40), 0);
    FT_RUN(f, NULL, &a, "read", ft_path(f, "s"), "1000000000000", "3000000");
    ft_ok(&a);
    assert_int_equal(a.items[0].data_len, 3000000);
    assert_int_equal(a.items[0].rec.size, (uint64_t)1 << 40);
    ft_free(&a);
    FT_RUN(f, NULL, &a, "pack", ft_path(f, ""));
    ft_failed(&a, FILEOP_TOO_LARGE);
    assert_int_equal(a.count, 1);
    ft_free(&a);
    FT_EXPECT(f, NULL, FILEOP_TOO_LARGE, "pack", ft_path(f, "s"));
    struct buf in;
    buf_init(&in, 4096);
    ft_put_name(&in, "s");
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "fetch", ft_path(f, ""));
    ft_ok(&a);
    assert_int_equal(a.items[0].rec.code, FILEOP_TOO_LARGE);
    ft_free(&a);
    buf_done(&in);
}

static void test_a_large_file_comes_whole(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    static char block[1 << 20];
    const size_t size = 5 * sizeof block + 12345;
    ft_file(f, "big", "", 0644);
    int fd = open(ft_path(f, "big"), O_WRONLY);
    for (size_t at = 0; at < size;) {
        size_t n = size - at < sizeof block ? size - at : sizeof block;
        for (size_t i = 0; i < n; i++)
            block[i] = (char)((at + i) * 31 >> 3);
        assert_int_equal(write(fd, block, n), (ssize_t)n);
        at += n;
    }
    close(fd);
    FT_RUN(f, NULL, &a, "read", ft_path(f, "big"), "0", "1000000000");
    ft_ok(&a);
    assert_int_equal(a.items[0].data_len, size);
    size_t at = 0;
    for (size_t pos = 0; pos < a.bytes.len;) {
        struct fileop_record rec;
        const char *p, *t;
        assert_int_equal(fileop_take(a.bytes.data + pos, a.bytes.len - pos, &rec, &p, &t, NULL), 1);
        pos += fileop_size(&rec);
        for (size_t i = 0; i < rec.data_len; i++)
            assert_true(a.bytes.data[pos + i] == (char)((at + i) * 31 >> 3));
        pos += rec.data_len;
        at += rec.data_len;
    }
    ft_free(&a);
}

/* The reader stops in the middle, the file is cut, the reader goes on: the pipe is full, so that
 * the rest of it was not read yet. */
static void test_a_file_that_shrinks_is_told(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_file(f, "big", "", 0644);
    assert_int_equal(truncate(ft_path(f, "big"), 20 << 20), 0);
    char *argv[] = {"read", ft_path(f, "big"), "0", "100000000", NULL};
    struct ft_process p = ft_start(f, argv);
    struct pollfd ready = {.fd = p.out, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 10000), 1);
    assert_int_equal(truncate(ft_path(f, "big"), 0), 0);
    ft_finish(&p, &a);
    ft_failed(&a, FILEOP_CHANGED);
    assert_true(a.items[0].data_len < 20 << 20);
    ft_free(&a);
}

static void test_a_reader_that_goes_away_ends_it(void **state) {
    struct ft *f = *state;
    int status = 0;
    ft_file(f, "big", "", 0644);
    assert_int_equal(truncate(ft_path(f, "big"), 20 << 20), 0);
    char *argv[] = {"read", ft_path(f, "big"), "0", "100000000", NULL};
    struct ft_process p = ft_start(f, argv);
    close(p.out);
    close(p.in);
    assert_int_equal(waitpid(p.op, &status, 0), p.op);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void test_pack_tells_all_of_a_tree(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    ft_dir(f, "d", 0755);
    ft_file(f, "d/a", "hello", 0755);
    ft_file(f, "d/z", "", 0640);
    ft_dir(f, "d/empty", 02775);
    ft_link(f, "/etc/passwd", "d/l");
    assert_int_equal(link(ft_path(f, "d/a"), ft_path(f, "d/h")), 0);
    assert_int_equal(mkfifo(ft_path(f, "d/p"), 0600), 0);
    ft_file(f, "d/secret", "x", 0);
    FT_RUN(f, NULL, &a, "pack", ft_path(f, "d"));
    ft_ok(&a);
    static const char *const names[] = {"", "a", "empty", "h", "l", "p", "secret", "z"};
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        assert_string_equal(a.items[i].path, names[i]);
    assert_int_equal(a.items[0].rec.kind, FILEOP_DIRECTORY);
    assert_memory_equal(a.items[1].data, "hello", 5);
    assert_int_equal(a.items[1].rec.mode, 0755);
    assert_int_equal(a.items[2].rec.mode, 02775);
    assert_int_equal(a.items[3].rec.kind, FILEOP_HARDLINK);
    assert_string_equal(a.items[3].target, "a");
    assert_string_equal(a.items[4].target, "/etc/passwd");
    assert_int_equal(a.items[5].rec.kind, FILEOP_FIFO);
    assert_int_equal(a.items[6].rec.code, FILEOP_DENIED);
    assert_int_equal(a.items[7].rec.flags, FILEOP_CONTENT);
    assert_int_equal(a.items[7].data_len, 0);
    ft_free(&a);
    FT_RUN(f, NULL, &a, "pack", ft_path(f, "d/a"));
    ft_ok(&a);
    assert_string_equal(a.items[0].path, "");
    assert_memory_equal(a.items[0].data, "hello", 5);
    ft_free(&a);
}

static void test_fetch_follows_no_link(void **state) {
    struct ft *f = *state;
    struct ft_answer a;
    struct buf in;
    buf_init(&in, 4096);
    ft_dir(f, "d", 0755);
    ft_file(f, "d/a", "A", 0644);
    ft_link(f, "/etc", "e");
    ft_link(f, "d/a", "l");
    static const char *const names[] = {"d/a", "e/passwd", "l", "d", "gone"};
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        ft_put_name(&in, names[i]);
    ft_put_end(&in);
    FT_RUN(f, &in, &a, "fetch", ft_path(f, ""));
    ft_ok(&a);
    assert_int_equal(a.count, 6);
    assert_memory_equal(a.items[0].data, "A", 1);
    assert_int_equal(a.items[1].rec.code, FILEOP_LOOP);
    assert_int_equal(a.items[2].rec.kind, FILEOP_SYMLINK);
    assert_int_equal(a.items[3].rec.kind, FILEOP_DIRECTORY);
    assert_int_equal(a.items[4].rec.code, FILEOP_NOT_FOUND);
    ft_free(&a);
    buf_done(&in);
}

#define READ(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        READ(test_read_gives_the_part_that_is_asked_for),
        READ(test_only_regular_files_are_read_and_at_once),
        READ(test_a_sparse_giant),
        READ(test_a_large_file_comes_whole),
        READ(test_a_file_that_shrinks_is_told),
        READ(test_a_reader_that_goes_away_ends_it),
        READ(test_pack_tells_all_of_a_tree),
        READ(test_fetch_follows_no_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
