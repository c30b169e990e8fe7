#include "fileop_op.h"

#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include "unit_operation.h"

struct seen {
    struct buf bytes;
    size_t at; /* what was looked at */
};

/* Waits for the next record: NUL-terminated in path[4096]. 0 at the end. */
static int next(struct ft_process *p, struct seen *s, struct fileop_record *rec, char *path) {
    const char *name, *target;
    for (;;) {
        int rc =
            fileop_take(s->bytes.data + s->at, s->bytes.len - s->at, rec, &name, &target, NULL);
        assert_true(rc >= 0);
        if (rc > 0)
            break;
        char data[65536];
        struct pollfd ready = {.fd = p->out, .events = POLLIN};
        if (poll(&ready, 1, 20000) != 1)
            fail_msg("no event came");
        ssize_t n = read(p->out, data, sizeof data);
        assert_true(n >= 0);
        if (n == 0)
            return 0;
        assert_int_equal(buf_append(&s->bytes, data, (size_t)n, NULL), 0);
    }
    memcpy(path, name, rec->path_len);
    path[rec->path_len] = '\0';
    s->at += fileop_size(rec);
    return 1;
}

/* Waits for an event of this path with this flag. */
static void expect(struct ft_process *p, struct seen *s, uint32_t flag, const char *wanted) {
    struct fileop_record rec;
    char path[FILEOP_PATH_MAX + 1];
    while (next(p, s, &rec, path)) {
        if (rec.type == FILEOP_EVENT && (rec.flags & flag) && strcmp(path, wanted) == 0)
            return;
        assert_int_equal(rec.type, FILEOP_EVENT);
    }
    fail_msg("it ended without %s", wanted);
}

static struct ft_process begin(struct ft *f, struct seen *s, const char *rel, char *recursive) {
    struct fileop_record rec;
    char path[FILEOP_PATH_MAX + 1];
    char *argv[] = {"watch", ft_path(f, rel), recursive, NULL};
    struct ft_process p = ft_start(f, argv);
    s->at = 0;
    buf_init(&s->bytes, 64 << 20);
    assert_int_equal(buf_append(&s->bytes, "", 0, NULL), 0);
    assert_int_equal(next(&p, s, &rec, path), 1);
    assert_int_equal(rec.type, FILEOP_ENTRY);
    return p;
}

static void finish(struct ft_process *p, struct seen *s, enum fileop_code code) {
    struct fileop_record rec = {0}, last = {0};
    char path[FILEOP_PATH_MAX + 1];
    int status = 0;
    if (code == FILEOP_OK)
        close(p->in);
    while (next(p, s, &rec, path))
        last = rec;
    assert_int_equal(last.type, code == FILEOP_OK ? FILEOP_END : FILEOP_ERROR);
    assert_int_equal(last.code, code);
    if (code != FILEOP_OK)
        close(p->in);
    close(p->out);
    waitpid(p->op, &status, 0);
    assert_int_equal(status, 0);
    buf_done(&s->bytes);
}

static void test_changes_of_a_directory(void **state) {
    struct ft *f = *state;
    struct seen s;
    ft_file(f, "a", "", 0644);
    ft_dir(f, "sub", 0755);
    struct ft_process p = begin(f, &s, "", "0");
    ft_file(f, "b", "text", 0600);
    expect(&p, &s, FILEOP_CREATED, "b");
    expect(&p, &s, FILEOP_MODIFIED, "b");
    expect(&p, &s, FILEOP_ATTRIBUTES, "b");
    ft_file(f, "sub/x", "", 0644); /* not asked for */
    assert_int_equal(rename(ft_path(f, "b"), ft_path(f, "c")), 0);
    expect(&p, &s, FILEOP_DELETED, "b");
    expect(&p, &s, FILEOP_CREATED, "c");
    assert_int_equal(unlink(ft_path(f, "c")), 0);
    expect(&p, &s, FILEOP_DELETED, "c");
    finish(&p, &s, FILEOP_OK);
}

static void test_new_directories_are_watched_too(void **state) {
    struct ft *f = *state;
    struct seen s;
    ft_dir(f, "d", 0755);
    ft_dir(f, "d/e", 0755);
    struct ft_process p = begin(f, &s, "", "1");
    ft_file(f, "d/e/x", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "d/e/x");
    ft_dir(f, "n", 0755);
    ft_dir(f, "n/m", 0755);
    ft_file(f, "n/m/early", "", 0644); /* perhaps before the directory is watched */
    expect(&p, &s, FILEOP_CREATED, "n/m/early");
    ft_file(f, "n/m/late", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "n/m/late");
    /* A directory that is moved tells its new paths. */
    assert_int_equal(rename(ft_path(f, "n"), ft_path(f, "d/n")), 0);
    expect(&p, &s, FILEOP_DELETED, "n");
    expect(&p, &s, FILEOP_CREATED, "d/n/m/early");
    ft_file(f, "d/n/m/after", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "d/n/m/after");
    assert_int_equal(unlink(ft_path(f, "d/n/m/after")), 0);
    expect(&p, &s, FILEOP_DELETED, "d/n/m/after");
    finish(&p, &s, FILEOP_OK);
}

static void test_work_in_progress_is_no_event(void **state) {
    struct ft *f = *state;
    struct seen s;
    struct fileop_record rec;
    char path[FILEOP_PATH_MAX + 1];
    struct ft_process p = begin(f, &s, "", "1");
    ft_dir(f, FILEOP_HIDDEN "0", 0755);
    ft_file(f, FILEOP_HIDDEN "0/x", "", 0644);
    struct buf in;
    buf_init(&in, 4096);
    ft_put_data(&in, "x");
    ft_put_end(&in);
    FT_EXPECT(f, &in, FILEOP_OK, "write", ft_path(f, "z"), "-1", "0");
    buf_done(&in);
    assert_int_equal(next(&p, &s, &rec, path), 1);
    assert_string_equal(path, "z");
    assert_int_equal(rec.flags, FILEOP_CREATED);
    ft_file(f, "#20", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "#20");
    expect(&p, &s, FILEOP_ATTRIBUTES, "#20");
    finish(&p, &s, FILEOP_OK);
}

static void test_one_file(void **state) {
    struct ft *f = *state;
    struct seen s;
    ft_file(f, "a", "", 0644);
    struct ft_process p = begin(f, &s, "a", "0");
    ft_file(f, "a", "more", 0644);
    expect(&p, &s, FILEOP_MODIFIED, "");
    finish(&p, &s, FILEOP_OK);
}

static void test_it_ends_when_the_directory_is_gone(void **state) {
    struct ft *f = *state;
    struct seen s;
    ft_dir(f, "d", 0755);
    struct ft_process p = begin(f, &s, "d", "1");
    assert_int_equal(rmdir(ft_path(f, "d")), 0);
    finish(&p, &s, FILEOP_NOT_FOUND);
    FT_EXPECT(f, NULL, FILEOP_NOT_FOUND, "watch", ft_path(f, "gone"), "0");
}

static void test_another_directory_in_its_place_is_watched(void **state) {
    struct ft *f = *state;
    struct seen s;
    ft_dir(f, "d", 0755);
    ft_dir(f, "e", 0755);
    ft_dir(f, "e/sub", 0755);
    struct ft_process p = begin(f, &s, "d", "1");
    assert_int_equal(rename(ft_path(f, "e"), ft_path(f, "d")), 0);
    expect(&p, &s, FILEOP_OVERFLOW, "");
    ft_file(f, "d/sub/x", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "sub/x");
    finish(&p, &s, FILEOP_OK);
    /* Nothing is held open meanwhile: a file system can take its place, and go. */
    p = begin(f, &s, "d", "1");
    assert_int_equal(mount("tmpfs", ft_path(f, "d"), "tmpfs", 0, NULL), 0);
    ft_own(ft_path(f, "d"));
    expect(&p, &s, FILEOP_OVERFLOW, "");
    ft_file(f, "d/y", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "y");
    assert_int_equal(umount(ft_path(f, "d")), 0);
    expect(&p, &s, FILEOP_OVERFLOW, "");
    finish(&p, &s, FILEOP_OK);
}

static void test_a_slow_reader_is_told_what_it_missed(void **state) {
    struct ft *f = *state;
    struct seen s;
    struct fileop_record rec;
    char path[FILEOP_PATH_MAX + 1];
    struct ft_process p = begin(f, &s, "", "0");
    int queued = 0;
    /* Nothing is read until the pipe is full, and then some. */
    for (int i = 0; i < 200000 && queued < 64000; i++) {
        char name[220];
        snprintf(name, sizeof name, "%0200d", i % 50);
        close(open(ft_path(f, name), O_WRONLY | O_CREAT, 0644));
        (void)unlink(ft_path(f, name));
        assert_int_equal(ioctl(p.out, FIONREAD, &queued), 0);
    }
    for (int i = 0; i < 20000; i++) {
        char name[220];
        snprintf(name, sizeof name, "%0200d", i % 50);
        close(open(ft_path(f, name), O_WRONLY | O_CREAT, 0644));
        (void)unlink(ft_path(f, name));
    }
    do {
        assert_int_equal(next(&p, &s, &rec, path), 1);
    } while (!(rec.flags & FILEOP_OVERFLOW));
    ft_file(f, "z", "", 0644);
    expect(&p, &s, FILEOP_CREATED, "z");
    finish(&p, &s, FILEOP_OK);
}

#define WATCH(t) cmocka_unit_test_setup_teardown(t, ft_setup, ft_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WATCH(test_changes_of_a_directory),
        WATCH(test_new_directories_are_watched_too),
        WATCH(test_work_in_progress_is_no_event),
        WATCH(test_one_file),
        WATCH(test_it_ends_when_the_directory_is_gone),
        WATCH(test_another_directory_in_its_place_is_watched),
        WATCH(test_a_slow_reader_is_told_what_it_missed),
    };
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
