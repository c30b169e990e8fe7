/* What a change of a file means that has other names. */
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "undo.h"
#include "unit.h"

struct fixture {
    char base[64], ws[80], journal[80];
    int root;
};

static int drop(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int setup(void **state) {
    static struct fixture f;
    struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    int fd;

    snprintf(f.base, sizeof(f.base), "/tmp/unit-apply.XXXXXX");
    assert_non_null(mkdtemp(f.base));
    snprintf(f.ws, sizeof(f.ws), "%s/ws", f.base);
    snprintf(f.journal, sizeof(f.journal), "%s/journal", f.base);
    assert_int_equal(mkdir(f.ws, 0755), 0);
    f.root = open(f.ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = openat(f.root, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    assert_int_equal(write(fd, "old a", 5), 5);
    close(fd);
    utimensat(f.root, "a", times, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    close(f->root);
    nftw(f->base, drop, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* Another name of a file, here or anywhere else, keeps contents and mode. */
static void test_other_names_keep_what_they_were(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    struct undo_options o = {.root = f->root, .path = f->ws, .journal = f->journal};
    struct undo *u = undo_open(&o, &e);
    struct undo_change change = {
        .path = "a", .after = {.type = UNDO_FILE, .mode = 0600}, .fd = -1, .any_before = true};
    struct undo_set set = {.label = "chmod", .by = "exec", .changes = &change, .count = 1};
    struct undo_choice choice = {0};
    struct undo_result result;
    struct stat st, other;
    char outside[96];

    assert_non_null(u);
    snprintf(outside, sizeof(outside), "%s/outside", f->base);
    assert_int_equal(linkat(f->root, "a", AT_FDCWD, outside, 0), 0);
    unit_works(apply_changeset(u, &set, &result, &e), e);
    free(result.outcomes);
    assert_int_equal(result.applied, 1);
    assert_int_equal(result.shared, 1);
    assert_int_equal(fstatat(f->root, "a", &st, 0), 0);
    assert_int_equal(stat(outside, &other), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(other.st_mode & 07777, 0640);
    assert_int_equal(other.st_nlink, 1);
    assert_int_equal(st.st_mtim.tv_sec, 1000000);
    unit_works(undo_undo(u, &choice, &result, &e), e);
    free(result.outcomes);
    assert_int_equal(result.applied, 1);
    assert_int_equal(fstatat(f->root, "a", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_mtim.tv_sec, 1000000);
    assert_int_equal(st.st_size, 5);
    undo_close(u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_names_keep_what_they_were, setup, teardown),
    };
    if (sodium_init() < 0)
        return 1;
    umask(022);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
