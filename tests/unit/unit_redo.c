#include "redo.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

struct place {
    char path[64];
    int dir;
    struct redo redo;
    char seen[4096];
};

static int see(void *arg, const char *data, size_t len, struct err *err) {
    struct place *p = arg;
    size_t n = strlen(p->seen);
    (void)err;
    snprintf(p->seen + n, sizeof(p->seen) - n, "%.*s;", (int)len, data);
    return 0;
}

static int set_up(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    struct err err;
    snprintf(p->path, sizeof(p->path), "/tmp/pinfold-redo-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unit_works(redo_open(&p->redo, p->dir, "log", &err), err);
    unit_works(redo_read(&p->redo, see, p, &err), err);
    *state = p;
    return 0;
}

static int tear_down(void **state) {
    struct place *p = *state;
    redo_close(&p->redo);
    unlinkat(p->dir, "log", 0);
    close(p->dir);
    assert_int_equal(rmdir(p->path), 0);
    free(p);
    return 0;
}

static void add(struct place *p, const char *one, const char *two) {
    const struct iovec parts[] = {{(void *)(uintptr_t)one, strlen(one)},
                                  {(void *)(uintptr_t)two, strlen(two)}};
    struct err err;
    unit_works(redo_add(&p->redo, parts, 2, &err), err);
}

/* As after a restart. */
static void expect(struct place *p, const char *entries) {
    struct err err;
    redo_close(&p->redo);
    unit_works(redo_open(&p->redo, p->dir, "log", &err), err);
    p->seen[0] = '\0';
    unit_works(redo_read(&p->redo, see, p, &err), err);
    assert_string_equal(p->seen, entries);
}

static void test_entries_come_back_in_order(void **state) {
    struct place *p = *state;
    expect(p, "");
    add(p, "a", "bc");
    add(p, "", "");
    add(p, "d", "");
    expect(p, "abc;;d;");
    add(p, "e", "f");
    expect(p, "abc;;d;ef;");
}

static void test_emptied(void **state) {
    struct place *p = *state;
    add(p, "a", "b");
    redo_reset(&p->redo);
    expect(p, "");
    add(p, "c", "d");
    expect(p, "cd;");
}

static uint64_t size_of_file(const struct place *p) {
    struct stat st;
    assert_int_equal(fstatat(p->dir, "log", &st, 0), 0);
    return (uint64_t)st.st_size;
}

/* Its room stays its own, what is beyond goes; nothing of what was in it comes back, at no length
 * of what comes in its place, and nothing that only looks like an entry. */
static void test_emptied_keeps_its_room(void **state) {
    struct place *p = *state;
    char *big = malloc(REDO_ENTRY_MAX / 2 + 1);
    memset(big, 'x', REDO_ENTRY_MAX / 2);
    big[REDO_ENTRY_MAX / 2] = '\0';
    for (int i = 0; i < 3; i++)
        add(p, big, "");
    free(big);
    assert_true(size_of_file(p) > REDO_ROOM);
    redo_reset(&p->redo);
    assert_int_equal(size_of_file(p), REDO_ROOM);
    for (size_t len = 1; len < 60; len++) {
        char text[64] = "";
        for (int i = 0; i < 8; i++)
            add(p, "old", "");
        redo_reset(&p->redo);
        memset(text, 'n', len);
        add(p, text, "");
        text[len] = ';';
        expect(p, text);
        redo_reset(&p->redo);
    }
    assert_int_equal(size_of_file(p), REDO_ROOM);
}

/* An older server wrote it: it is read, and nothing is added before it is emptied. */
static void test_of_an_older_server(void **state) {
    struct place *p = *state;
    static const char one[] = {'R', 'D', 'O', '1', 3, 0, 0, 0};
    uint8_t hash[16];
    struct err err;
    crypto_generichash(hash, sizeof(hash), (const uint8_t *)"old", 3, NULL, 0);
    int fd = openat(p->dir, "log", O_WRONLY | O_TRUNC | O_CLOEXEC);
    const struct iovec parts[] = {{(void *)(uintptr_t)one, sizeof(one)},
                                  {hash, sizeof(hash)},
                                  {(void *)(uintptr_t) "old", 3}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(writev(fd, parts, 3), 27);
    assert_int_equal(write(fd, one, 5), 5);
    close(fd);
    expect(p, "old;old;");
    unit_fails(redo_add(&p->redo, &parts[2], 1, &err), err, ERR_STATE);
    expect(p, "old;old;");
    redo_reset(&p->redo);
    add(p, "new", "");
    expect(p, "new;");
}

/* A process that died in the middle of a write. */
static void test_half_an_entry_is_none(void **state) {
    struct place *p = *state;
    add(p, "first", "");
    uint64_t len = p->redo.len;
    add(p, "second", "");
    for (uint64_t cut = len; cut < p->redo.len; cut++) {
        int fd = openat(p->dir, "log", O_WRONLY | O_CLOEXEC);
        assert_int_equal(ftruncate(fd, (off_t)cut), 0);
        close(fd);
        expect(p, "first;");
        redo_reset(&p->redo);
        add(p, "first", "");
        add(p, "second", "");
    }
}

/* Entries that come after the restart are found by the next one. */
static void test_entries_behind_half_of_one_are_found(void **state) {
    struct place *p = *state;
    add(p, "first", "");
    add(p, "second", "");
    int fd = openat(p->dir, "log", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)p->redo.len - 3), 0);
    close(fd);
    expect(p, "first;");
    add(p, "third", "");
    expect(p, "first;third;");
}

static void test_a_byte_that_changed_ends_it(void **state) {
    struct place *p = *state;
    add(p, "first", "");
    uint64_t len = p->redo.len;
    add(p, "second", "");
    add(p, "third", "");
    int fd = openat(p->dir, "log", O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "X", 1, (off_t)len + 26), 1);
    close(fd);
    expect(p, "first;");
}

/* No room: the entry is not there, and the next one is whole. */
static void test_no_room(void **state) {
    struct place *p = *state;
    struct rlimit old, small = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    char big[200];
    struct err err;
    memset(big, 'x', sizeof(big));
    const struct iovec part = {big, sizeof(big)};
    add(p, "a", "");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    err_clear(&err);
    assert_int_equal(redo_add(&p->redo, &part, 1, &err), -1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, was);
    assert_true(err.text[0] != '\0');
    add(p, "b", "");
    expect(p, "a;b;");
}

static void test_bounds(void **state) {
    struct place *p = *state;
    struct err err;
    char *big = calloc(1, REDO_ENTRY_MAX + 1);
    const struct iovec part = {big, REDO_ENTRY_MAX + 1};
    const struct iovec many[REDO_PARTS_MAX + 1] = {{big, 1}};
    unit_fails(redo_add(&p->redo, &part, 1, &err), err, ERR_LIMIT);
    unit_fails(redo_add(&p->redo, many, REDO_PARTS_MAX + 1, &err), err, ERR_LIMIT);
    free(big);
    expect(p, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_entries_come_back_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_emptied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_emptied_keeps_its_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_of_an_older_server, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_half_an_entry_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_entries_behind_half_of_one_are_found, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_byte_that_changed_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bounds, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("redo", tests, NULL, NULL);
}
