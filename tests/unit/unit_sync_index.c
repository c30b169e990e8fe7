/* What is remembered of a tree, in memory and in its file. */
#include "sync_index.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

static void fill(struct sync_index *x) {
    struct sync_row rows[] = {
        {.path = "a", .target = "", .kind = FILEOP_DIRECTORY, .mode = 0755},
        {.path = "a/f",
         .target = "",
         .kind = FILEOP_FILE,
         .mode = 0644,
         .has_sha256 = true,
         .known = true,
         .size = 3,
         .stamp = {3, 4, 5},
         .sha256 = {1},
         .now_sha256 = {1}},
        {.path = "a/g",
         .target = "",
         .kind = FILEOP_FILE,
         .has_sha256 = true,
         .known = true,
         .stamp = {6, 7, -8},
         .sha256 = {1},
         .now_sha256 = {2}},
        {.path = "l", .target = "a/f", .kind = FILEOP_SYMLINK},
        {.path = "n", .target = "", .kind = FILEOP_NONE, .known = true, .now_sha256 = {9}},
        {.path = "u", .target = "", .kind = FILEOP_FILE, .loose = true, .stamp = {1, 2, 3}},
    };
    struct err e;
    sync_index_init(x);
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        rows[i].path_len = (uint32_t)strlen(rows[i].path);
        rows[i].target_len = (uint32_t)strlen(rows[i].target);
        unit_works(sync_index_add(x, &rows[i], &e), e);
    }
    x->applied = true;
}

static void same(const struct sync_index *a, const struct sync_index *b) {
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->applied, b->applied);
    for (size_t i = 0; i < a->count; i++) {
        const struct sync_row *x = &a->rows[i], *y = &b->rows[i];
        assert_string_equal(x->path, y->path);
        assert_string_equal(x->target, y->target);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->mode, y->mode);
        assert_int_equal(x->size, y->size);
        assert_int_equal(x->has_sha256, y->has_sha256);
        assert_int_equal(x->known, y->known);
        assert_int_equal(x->loose, y->loose);
        assert_true(sync_stamp_equal(&x->stamp, &y->stamp));
        if (x->has_sha256)
            assert_memory_equal(x->sha256, y->sha256, 32);
        if (x->known)
            assert_memory_equal(x->now_sha256, y->now_sha256, 32);
    }
}

static void test_there_and_back(void **state) {
    (void)state;
    struct sync_index x, y;
    struct buf bytes;
    struct err e;
    fill(&x);
    buf_init(&bytes, 65536);
    unit_works(sync_index_write(&x, "/workspace", &bytes, &e), e);
    sync_index_init(&y);
    unit_works(sync_index_read(&y, "/workspace", bytes.data, bytes.len, &e), e);
    same(&x, &y);
    sync_index_done(&y);
    sync_index_init(&y);
    unit_fails(sync_index_read(&y, "/tmp", bytes.data, bytes.len, &e), e, ERR_PROTOCOL);
    sync_index_done(&y);
    sync_index_done(&x);
    buf_done(&bytes);
}

static void test_damage_is_refused(void **state) {
    (void)state;
    struct sync_index x;
    struct buf bytes;
    struct err e;
    fill(&x);
    buf_init(&bytes, 65536);
    unit_works(sync_index_write(&x, "/workspace", &bytes, &e), e);
    sync_index_done(&x);
    for (size_t len = 0; len < bytes.len; len++) {
        char *cut = malloc(len + 1);
        assert_non_null(cut);
        memcpy(cut, bytes.data, len);
        sync_index_init(&x);
        unit_fails(sync_index_read(&x, "/workspace", cut, len, &e), e, ERR_PROTOCOL);
        sync_index_done(&x);
        free(cut);
    }
    for (size_t i = 0; i < bytes.len; i++) { /* never worse than refused */
        char *copy = malloc(bytes.len);
        assert_non_null(copy);
        memcpy(copy, bytes.data, bytes.len);
        copy[i] = (char)(copy[i] ^ 0x55);
        sync_index_init(&x);
        (void)sync_index_read(&x, "/workspace", copy, bytes.len, NULL);
        sync_index_done(&x);
        free(copy);
    }
    buf_done(&bytes);
}

static void test_its_file(void **state) {
    (void)state;
    char path[] = "/tmp/unit-sync-index-XXXXXX", name[SYNC_INDEX_NAME_SIZE];
    struct sync_index x, y;
    struct err e;
    assert_non_null(mkdtemp(path));
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    sync_index_init(&y);
    unit_works(sync_index_load(&y, dir, "/workspace", &e), e);
    assert_int_equal(y.count, 0);
    assert_false(y.applied);
    fill(&x);
    unit_works(sync_index_save(&x, dir, "/workspace", &e), e);
    unit_works(sync_index_load(&y, dir, "/workspace", &e), e);
    same(&x, &y);
    sync_index_done(&y);
    sync_index_name("/workspace", name);
    int fd = openat(dir, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "nonsense", 8), 8);
    close(fd);
    sync_index_init(&y);
    unit_works(sync_index_load(&y, dir, "/workspace", &e), e); /* as if there were none */
    assert_int_equal(y.count, 0);
    unlinkat(dir, name, 0);
    close(dir);
    rmdir(path);
    sync_index_done(&x);
    sync_index_done(&y);
}

static void test_what_is_fresh(void **state) {
    (void)state;
    assert_int_equal(sync_index_fresh(1000000000, 6, 1), 980000000);
    assert_int_equal(sync_index_fresh(1000000000, 6, 12), 980000000);
    assert_int_equal(sync_index_fresh(1000000000, 6, 13), INT64_MAX);
    assert_int_equal(sync_index_fresh(1000000000, 7, 0), INT64_MAX);
    assert_int_equal(sync_index_fresh(1000000000, 0, 0), 980000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_its_file),
        cmocka_unit_test(test_what_is_fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
