#include "layers_walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "layers_trash.h"
#include "unit.h"

struct walk_dir {
    char path[64];
    int fd;
};

static int walk_up(void **state) {
    struct walk_dir *d = calloc(1, sizeof *d);
    assert_non_null(d);
    (void)snprintf(d->path, sizeof d->path, "/tmp/pinfold-unit-walk.XXXXXX");
    assert_non_null(mkdtemp(d->path));
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(d->fd >= 0);
    *state = d;
    return 0;
}

static int walk_down(void **state) {
    struct walk_dir *d = *state;
    layers_trash_empty(d->fd);
    assert_int_equal(rmdir(d->path), 0);
    fd_close(&d->fd);
    free(d);
    return 0;
}

static void walk_file(int dir, const char *name, size_t size) {
    char block[4096] = {1};
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    for (size_t done = 0; done < size; done += sizeof block) {
        assert_int_equal(write(fd, block, sizeof block), sizeof block);
    }
    assert_int_equal(size == 0 ? 0 : fsync(fd), 0); /* so that blocks are counted */
    fd_close(&fd);
}

static void test_what_is_counted(void **state) {
    struct walk_dir *d = *state;
    uint64_t bytes = 0, files = 0, empty = 0, links = 0;
    struct err e;
    assert_int_equal(mkdirat(d->fd, "a", 0755), 0);
    unit_works(layers_walk_count(d->fd, &empty, &files, &e), e);
    assert_int_equal(files, 1);
    walk_file(d->fd, "a/x", 8192);
    assert_int_equal(symlinkat("/usr", d->fd, "out"), 0); /* not gone into */
    assert_int_equal(symlinkat(".", d->fd, "a/loop"), 0);
    assert_int_equal(mkfifoat(d->fd, "fifo", 0600), 0);
    unit_works(layers_walk_count(d->fd, &bytes, &files, &e), e);
    assert_int_equal(files, 5);
    assert_int_equal(bytes, empty + 8192);
    for (int i = 0; i < 300; i++) { /* other names of one file */
        char name[32];
        (void)snprintf(name, sizeof name, "l%d", i);
        assert_int_equal(linkat(d->fd, "a/x", d->fd, name, 0), 0);
    }
    unit_works(layers_walk_count(d->fd, &links, &files, &e), e);
    assert_int_equal(files, 5);
    assert_int_equal(links, bytes);
}

static int walk_stop(void *arg, int dir, const char *name, const struct stat *st, struct err *err) {
    int *seen = arg;
    (void)dir;
    (void)name;
    (void)st;
    ++*seen;
    return err_set(err, ERR_STATE, 0, "enough");
}

static void test_a_walk_stops_when_told(void **state) {
    struct walk_dir *d = *state;
    static const struct layers_walk_ops ops = {.entry = walk_stop};
    struct err e;
    int seen = 0;
    walk_file(d->fd, "x", 0);
    walk_file(d->fd, "y", 0);
    unit_fails(layers_walk(d->fd, true, &ops, &seen, &e), e, ERR_STATE);
    assert_int_equal(seen, 1);
}

/* Moves the directory that is walked: ".." leads elsewhere from then on. */
static int walk_move(void *arg, int dir, const char *name, const struct stat *st, struct err *err) {
    const struct walk_dir *d = arg;
    (void)dir;
    (void)name;
    (void)st;
    (void)err;
    (void)renameat(d->fd, "a/b/c", d->fd, "elsewhere/c");
    return 0;
}

static void test_a_tree_that_moves_under_the_walk_is_noticed(void **state) {
    struct walk_dir *d = *state;
    static const struct layers_walk_ops ops = {.entry = walk_move};
    struct err e;
    assert_int_equal(mkdirat(d->fd, "elsewhere", 0755), 0);
    assert_int_equal(mkdirat(d->fd, "a", 0755), 0);
    assert_int_equal(mkdirat(d->fd, "a/b", 0755), 0);
    assert_int_equal(mkdirat(d->fd, "a/b/c", 0755), 0);
    walk_file(d->fd, "a/b/c/x", 0);
    unit_fails(layers_walk(d->fd, true, &ops, d, &e), e, ERR_STATE);
}

static void test_no_link_is_a_directory(void **state) {
    struct walk_dir *d = *state;
    assert_int_equal(symlinkat("/usr", d->fd, "link"), 0);
    assert_int_equal(layers_walk_open(d->fd, "link"), -1);
    assert_int_equal(layers_walk_open(d->fd, ".."), -1);
    assert_int_equal(layers_walk_open(d->fd, "/usr"), -1);
}

static void test_nothing_outside_of_the_trash_is_removed(void **state) {
    struct walk_dir *d = *state;
    assert_int_equal(mkdirat(d->fd, "keep", 0755), 0);
    walk_file(d->fd, "keep/file", 0);
    assert_int_equal(mkdirat(d->fd, "trash", 0755), 0);
    assert_int_equal(mkdirat(d->fd, "trash/t", 0755), 0);
    assert_int_equal(symlinkat("../../keep", d->fd, "trash/t/link"), 0);
    assert_int_equal(symlinkat("../keep", d->fd, "trash/link"), 0);
    assert_int_equal(linkat(d->fd, "keep/file", d->fd, "trash/t/hard", 0), 0);
    int trash = openat(d->fd, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    layers_trash_empty(trash);
    fd_close(&trash);
    assert_int_equal(unlinkat(d->fd, "trash", AT_REMOVEDIR), 0); /* it is empty */
    assert_int_equal(faccessat(d->fd, "keep/file", F_OK, 0), 0);
}

static void test_the_deepest_tree_is_removed(void **state) {
    struct walk_dir *d = *state;
    uint64_t bytes, files;
    struct err e;
    assert_int_equal(mkdirat(d->fd, "trash", 0755), 0);
    int trash = openat(d->fd, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int at = dup(trash);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(at, "d", 0755), 0);
        assert_int_equal(mkdirat(at, "e", 0755), 0);
        walk_file(at, "f", 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fd_close(&at);
        at = next;
    }
    fd_close(&at);
    unit_works(layers_walk_count(trash, &bytes, &files, &e), e);
    assert_int_equal(files, 9000);
    layers_trash_empty(trash);
    fd_close(&trash);
    assert_int_equal(unlinkat(d->fd, "trash", AT_REMOVEDIR), 0);
}

#define walk_test(fn) cmocka_unit_test_setup_teardown(fn, walk_up, walk_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        walk_test(test_what_is_counted),
        walk_test(test_a_walk_stops_when_told),
        walk_test(test_a_tree_that_moves_under_the_walk_is_noticed),
        walk_test(test_no_link_is_a_directory),
        walk_test(test_nothing_outside_of_the_trash_is_removed),
        walk_test(test_the_deepest_tree_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
