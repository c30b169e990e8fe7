#include "bundle.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

static void put_file(struct buf *b, const char *path, const char *content) {
    struct err err = {0};
    unit_works(bundle_file(b, 0644, path, strlen(path), content, strlen(content), &err), err);
}

static void put_end(struct buf *b) {
    struct err err = {0};
    unit_works(bundle_end(b, &err), err);
}

static void test_round_trip(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    struct bundle_record rec;
    const char *path, *data;
    size_t pos = 0;
    buf_init(&b, 1000);
    put_file(&b, "a/b.txt", "hello");
    put_file(&b, "empty", "");
    unit_works(bundle_error(&b, BUNDLE_DENIED, "../*", 4, &err), err);
    put_end(&b);
    assert_int_equal(bundle_next(b.data, b.len, &pos, &rec, &path, &data, &err), 1);
    assert_int_equal(rec.mode, 0644);
    assert_int_equal(rec.path_len, 7);
    assert_memory_equal(path, "a/b.txt", 7);
    assert_int_equal(rec.size, 5);
    assert_memory_equal(data, "hello", 5);
    assert_int_equal(bundle_next(b.data, b.len, &pos, &rec, &path, &data, &err), 1);
    assert_int_equal(rec.size, 0);
    assert_int_equal(bundle_next(b.data, b.len, &pos, &rec, &path, &data, &err), 1);
    assert_int_equal(rec.type, BUNDLE_ERROR);
    assert_string_equal(bundle_code_name(rec.code), "denied");
    assert_int_equal(bundle_next(b.data, b.len, &pos, &rec, &path, &data, &err), 0);
    assert_int_equal(pos, b.len);
    buf_done(&b);
}

/* Reads a copy of exactly this size to its end: 0, or -1. */
static int read_copy(const char *bytes, size_t size, struct err *err) {
    char *copy = malloc(size ? size : 1);
    struct bundle_record rec;
    const char *path, *data;
    size_t pos = 0;
    int rc;
    assert_non_null(copy);
    if (size)
        memcpy(copy, bytes, size);
    while ((rc = bundle_next(copy, size, &pos, &rec, &path, &data, err)) > 0)
        assert_true(pos <= size);
    free(copy);
    return rc;
}

static void test_every_truncation_is_refused(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 1000);
    put_file(&b, "a/b.txt", "hello");
    put_file(&b, "c", "");
    put_end(&b);
    for (size_t n = 0; n < b.len; n++)
        unit_fails(read_copy(b.data, n, &err), err, ERR_PROTOCOL);
    unit_works(read_copy(b.data, b.len, &err), err);
    unit_works(buf_append(&b, "", 1, &err), err);
    unit_fails(read_copy(b.data, b.len, &err), err, ERR_PROTOCOL);
    buf_done(&b);
}

static void test_hostile_records(void **state) {
    (void)state;
    static const struct bundle_record rows[] = {
        {0, BUNDLE_FILE, 0, 0, 0, 1, 0},
        {BUNDLE_MAGIC, 0, 0, 0, 0, 1, 0},
        {BUNDLE_MAGIC, 4, 0, 0, 0, 1, 0},
        {BUNDLE_MAGIC, UINT32_MAX, 0, 0, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 01000, 0, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 04755, 0, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 0, 1, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 0, 0, 0, 0, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 0, 0, 0, BUNDLE_PATH_MAX + 1, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 0, 0, 0, UINT32_MAX, 0},
        {BUNDLE_MAGIC, BUNDLE_FILE, 0, 0, 0, 1, 1},
        {BUNDLE_MAGIC, BUNDLE_ERROR, 0, 0, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_ERROR, 0, BUNDLE_CODES, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_ERROR, 0, BUNDLE_IO, 1, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_ERROR, 0644, BUNDLE_IO, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_END, 0, 0, 1, 0, 0},
        {BUNDLE_MAGIC, BUNDLE_END, 0, 0, 0, 1, 0},
        {BUNDLE_MAGIC, BUNDLE_END, 0, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct err err = {0};
        char bytes[sizeof(rows[i]) + 8] = {0};
        memcpy(bytes, &rows[i], sizeof(rows[i]));
        bytes[sizeof(rows[i])] = 'p';
        unit_fails(bundle_check(&rows[i], &err), err, ERR_PROTOCOL);
        unit_fails(read_copy(bytes, sizeof(bytes), &err), err, ERR_PROTOCOL);
    }
}

static void test_sizes_that_wrap(void **state) {
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 33, 1ULL << 63, 1};
    for (size_t i = 0; i < UNIT_COUNT(sizes); i++) {
        struct err err = {0};
        struct bundle_record rec = {BUNDLE_MAGIC, BUNDLE_FILE, 0, 0, sizes[i], 1, 0};
        char bytes[sizeof(rec) + 1];
        memcpy(bytes, &rec, sizeof(rec));
        bytes[sizeof(rec)] = 'p';
        unit_fails(read_copy(bytes, sizeof(bytes), &err), err, ERR_PROTOCOL);
    }
}

static void test_paths(void **state) {
    (void)state;
    static const struct {
        const char *path;
        int ok;
    } rows[] = {
        {"a", 1},       {"a/b", 1},  {"...", 1},    {".a", 1},    {"a..b/..c", 1},
        {"\xff\n ", 1}, {"", 0},     {"/", 0},      {"/a", 0},    {"a/", 0},
        {"a//b", 0},    {".", 0},    {"..", 0},     {"./a", 0},   {"a/.", 0},
        {"a/..", 0},    {"../a", 0}, {"a/../b", 0}, {"a/./b", 0}, {"//", 0},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        assert_int_equal(bundle_path_ok(rows[i].path, strlen(rows[i].path)), rows[i].ok);
    assert_int_equal(bundle_path_ok("a\0b", 3), 0);
    assert_int_equal(bundle_path_ok("a\0", 2), 0);
}

static void test_path_lengths(void **state) {
    (void)state;
    char path[BUNDLE_PATH_MAX + 1];
    for (size_t i = 0; i < sizeof(path); i++)
        path[i] = i % 200 == 199 ? '/' : 'a';
    assert_int_equal(bundle_path_ok(path, BUNDLE_PATH_MAX), 1);
    assert_int_equal(bundle_path_ok(path, BUNDLE_PATH_MAX + 1), 0);
    memset(path, 'a', sizeof(path));
    assert_int_equal(bundle_path_ok(path, 255), 1);
    assert_int_equal(bundle_path_ok(path, 256), 0);
    path[100] = '/';
    assert_int_equal(bundle_path_ok(path, 101 + 255), 1);
    assert_int_equal(bundle_path_ok(path, 101 + 256), 0);
}

static void test_unsafe_paths_do_not_pass(void **state) {
    (void)state;
    static const char *const bad[] = {"../x", "/etc/passwd", "a//b", "a/"};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct err err = {0};
        struct buf b;
        size_t len = strlen(bad[i]);
        buf_init(&b, 1000);
        unit_fails(bundle_file(&b, 0, bad[i], len, "x", 1, &err), err, ERR_INVALID);
        assert_int_equal(b.len, 0);
        struct bundle_record rec = {BUNDLE_MAGIC, BUNDLE_FILE, 0, 0, 0, (uint32_t)len, 0};
        unit_works(buf_append(&b, &rec, sizeof(rec), &err), err);
        unit_works(buf_append(&b, bad[i], len, &err), err);
        put_end(&b);
        unit_fails(read_copy(b.data, b.len, &err), err, ERR_PROTOCOL);
        buf_done(&b);
    }
}

static void test_appending_adds_all_or_nothing(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    buf_init(&b, 100);
    unit_works(buf_puts(&b, "keep", &err), err);
    for (size_t max = 4; max < 4 + sizeof(struct bundle_record) + 2 + 3; max++) {
        b.max = max;
        unit_fails(bundle_file(&b, 0, "ab", 2, "xyz", 3, &err), err, ERR_LIMIT);
        assert_string_equal(b.data, "keep");
        assert_int_equal(b.len, 4);
    }
    b.max = 4 + sizeof(struct bundle_record) + 2 + 3;
    unit_works(bundle_file(&b, 0, "ab", 2, "xyz", 3, &err), err);
    unit_fails(bundle_file(&b, 01777, "ab", 2, "", 0, &err), err, ERR_INVALID);
    unit_fails(bundle_file(&b, 0, "ab", SIZE_MAX, "", 0, &err), err, ERR_INVALID);
    buf_done(&b);
}

static void test_code_names(void **state) {
    (void)state;
    for (uint32_t i = 0; i < BUNDLE_CODES; i++)
        assert_non_null(bundle_code_name(i));
    assert_string_equal(bundle_code_name(BUNDLE_NOT_FOUND), "not_found");
    assert_null(bundle_code_name(BUNDLE_CODES));
    assert_null(bundle_code_name(UINT32_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_hostile_records),
        cmocka_unit_test(test_sizes_that_wrap),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_path_lengths),
        cmocka_unit_test(test_unsafe_paths_do_not_pass),
        cmocka_unit_test(test_appending_adds_all_or_nothing),
        cmocka_unit_test(test_code_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
