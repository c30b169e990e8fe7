#include "fileop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static struct fileop_record record(enum fileop_type type) {
    struct fileop_record rec = {.magic = FILEOP_MAGIC, .type = (uint32_t)type};
    if (type == FILEOP_ENTRY) {
        rec.kind = FILEOP_FILE;
        rec.mode = 0644;
        rec.path_len = 1;
    } else if (type == FILEOP_NAME || type == FILEOP_REMOVE) {
        rec.path_len = 1;
    } else if (type == FILEOP_EVENT) {
        rec.flags = FILEOP_CREATED;
        rec.path_len = 1;
    } else if (type == FILEOP_ERROR) {
        rec.code = FILEOP_IO;
        rec.sys = EIO;
    }
    return rec;
}

static void test_every_type_passes(void **state) {
    (void)state;
    struct err err = {0};
    for (uint32_t type = FILEOP_ENTRY; type <= FILEOP_END; type++) {
        struct fileop_record rec = record((enum fileop_type)type);
        unit_works(fileop_check(&rec, &err), err);
    }
    struct fileop_record rec = record(FILEOP_ENTRY);
    rec.flags = FILEOP_CONTENT;
    rec.mode = 07777;
    rec.size = INT64_MAX;
    rec.path_len = FILEOP_PATH_MAX;
    rec.mtime_ns = INT64_MIN;
    unit_works(fileop_check(&rec, &err), err);
    rec = record(FILEOP_ENTRY);
    rec.kind = FILEOP_SYMLINK;
    rec.path_len = 0;
    rec.target_len = FILEOP_TARGET_MAX;
    unit_works(fileop_check(&rec, &err), err);
    rec = record(FILEOP_DATA);
    rec.data_len = FILEOP_DATA_MAX;
    unit_works(fileop_check(&rec, &err), err);
    rec = record(FILEOP_END);
    rec.flags = FILEOP_MORE;
    unit_works(fileop_check(&rec, &err), err);
}

struct wrong {
    enum fileop_type type;
    size_t at; /* offset of a 32-bit field */
    uint32_t value;
};
#define FIELD(f) offsetof(struct fileop_record, f)

static void test_every_bad_field_is_refused(void **state) {
    (void)state;
    static const struct wrong rows[] = {
        {FILEOP_ENTRY, FIELD(magic), 0},
        {FILEOP_ENTRY, FIELD(type), 0},
        {FILEOP_ENTRY, FIELD(type), FILEOP_END + 1},
        {FILEOP_ENTRY, FIELD(type), UINT32_MAX},
        {FILEOP_ENTRY, FIELD(kind), FILEOP_NONE},
        {FILEOP_ENTRY, FIELD(kind), FILEOP_KINDS},
        {FILEOP_ENTRY, FIELD(kind), FILEOP_SYMLINK}, /* without a target */
        {FILEOP_ENTRY, FIELD(kind), FILEOP_HARDLINK},
        {FILEOP_ENTRY, FIELD(flags), FILEOP_MORE},
        {FILEOP_ENTRY, FIELD(flags), FILEOP_OVERFLOW},
        {FILEOP_ENTRY, FIELD(flags), FILEOP_FLAGS + 1},
        {FILEOP_ENTRY, FIELD(flags), FILEOP_OPAQUE}, /* of a file */
        {FILEOP_ENTRY, FIELD(mode), 010000},
        {FILEOP_ENTRY, FIELD(size) + 4, 0x80000000u},
        {FILEOP_ENTRY, FIELD(code), FILEOP_IO},
        {FILEOP_ENTRY, FIELD(sys), 1},
        {FILEOP_ENTRY, FIELD(path_len), FILEOP_PATH_MAX + 1},
        {FILEOP_ENTRY, FIELD(path_len), UINT32_MAX},
        {FILEOP_ENTRY, FIELD(target_len), 1}, /* of a file */
        {FILEOP_ENTRY, FIELD(data_len), 1},
        {FILEOP_ENTRY, FIELD(reserved), 1},
        {FILEOP_DATA, FIELD(kind), FILEOP_FILE},
        {FILEOP_DATA, FIELD(flags), FILEOP_CONTENT},
        {FILEOP_DATA, FIELD(mode), 1},
        {FILEOP_DATA, FIELD(nlink), 1},
        {FILEOP_DATA, FIELD(size), 1},
        {FILEOP_DATA, FIELD(inode), 1},
        {FILEOP_DATA, FIELD(mtime_ns), 1},
        {FILEOP_DATA, FIELD(ctime_ns), 1},
        {FILEOP_DATA, FIELD(path_len), 1},
        {FILEOP_DATA, FIELD(target_len), 1},
        {FILEOP_DATA, FIELD(data_len), FILEOP_DATA_MAX + 1},
        {FILEOP_DATA, FIELD(data_len), UINT32_MAX},
        {FILEOP_NAME, FIELD(path_len), 0},
        {FILEOP_NAME, FIELD(path_len), FILEOP_PATH_MAX + 1},
        {FILEOP_NAME, FIELD(target_len), 1},
        {FILEOP_NAME, FIELD(data_len), 1},
        {FILEOP_NAME, FIELD(kind), FILEOP_FILE},
        {FILEOP_REMOVE, FIELD(path_len), 0},
        {FILEOP_REMOVE, FIELD(path_len), FILEOP_PATH_MAX + 1},
        {FILEOP_REMOVE, FIELD(flags), 1},
        {FILEOP_EVENT, FIELD(flags), 0},
        {FILEOP_EVENT, FIELD(flags), FILEOP_CONTENT},
        {FILEOP_EVENT, FIELD(kind), FILEOP_KINDS},
        {FILEOP_EVENT, FIELD(target_len), 1},
        {FILEOP_EVENT, FIELD(mode), 1},
        {FILEOP_ERROR, FIELD(code), FILEOP_OK},
        {FILEOP_ERROR, FIELD(code), FILEOP_CODES},
        {FILEOP_ERROR, FIELD(sys), UINT32_MAX},
        {FILEOP_ERROR, FIELD(sys), 4096},
        {FILEOP_ERROR, FIELD(data_len), 1},
        {FILEOP_END, FIELD(flags), FILEOP_MORE | FILEOP_CREATED},
        {FILEOP_END, FIELD(path_len), 1},
        {FILEOP_END, FIELD(code), 1},
        {FILEOP_END, FIELD(data_len), 1},
        {FILEOP_END, FIELD(size), 1},
    };
    struct err err = {0};
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct fileop_record rec = record(rows[i].type);
        memcpy((char *)&rec + rows[i].at, &rows[i].value, sizeof(rows[i].value));
        unit_fails(fileop_check(&rec, &err), err, ERR_PROTOCOL);
    }
    struct fileop_record rec = record(FILEOP_ENTRY);
    rec.kind = FILEOP_DIRECTORY;
    rec.flags = FILEOP_CONTENT;
    unit_fails(fileop_check(&rec, &err), err, ERR_PROTOCOL);
    rec.kind = FILEOP_SYMLINK;
    rec.flags = 0;
    rec.target_len = FILEOP_TARGET_MAX + 1;
    unit_fails(fileop_check(&rec, &err), err, ERR_PROTOCOL);
}

/* A record with its names, in a block of exactly its size. -> what fileop_take() says of the first
 * `len` bytes. */
static int take(struct fileop_record rec, const char *path, const char *target, size_t cut) {
    struct err err = {0};
    struct fileop_record got;
    const char *p = NULL, *t = NULL;
    rec.path_len = (uint32_t)strlen(path);
    rec.target_len = (uint32_t)strlen(target);
    size_t size = fileop_size(&rec);
    assert_true(cut <= size);
    char *whole = malloc(size);
    char *exact = malloc(size - cut ? size - cut : 1);
    assert_non_null(whole);
    assert_non_null(exact);
    memcpy(whole, &rec, sizeof(rec));
    memcpy(whole + sizeof(rec), path, rec.path_len);
    memcpy(whole + sizeof(rec) + rec.path_len, target, rec.target_len);
    memcpy(exact, whole, size - cut);
    int rc = fileop_take(exact, size - cut, &got, &p, &t, &err);
    if (rc == 1) {
        assert_int_equal(got.type, rec.type);
        assert_memory_equal(p, path, rec.path_len);
        assert_memory_equal(t, target, rec.target_len);
    } else if (rc < 0) {
        assert_int_equal(err.kind, ERR_PROTOCOL);
    }
    free(exact);
    free(whole);
    return rc;
}

static void test_a_record_is_taken_when_it_is_whole(void **state) {
    (void)state;
    struct fileop_record link = record(FILEOP_ENTRY);
    link.kind = FILEOP_SYMLINK;
    for (size_t cut = 1; cut <= sizeof(link) + 9; cut++)
        assert_int_equal(take(link, "a/b", "../../", cut), 0);
    assert_int_equal(take(link, "a/b", "../../", 0), 1);
    assert_int_equal(take(record(FILEOP_END), "", "", 0), 1);
    struct fileop_record data = record(FILEOP_DATA);
    data.data_len = 1000; /* which need not be there */
    assert_int_equal(take(data, "", "", 0), 1);
}

static void test_unsafe_paths_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"/a", "..", "a/../b", "./a", "a//b", "a/", "."};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        assert_int_equal(take(record(FILEOP_ENTRY), bad[i], "", 0), -1);
        assert_int_equal(take(record(FILEOP_NAME), bad[i], "", 0), -1);
        assert_int_equal(take(record(FILEOP_REMOVE), bad[i], "", 0), -1);
        assert_int_equal(take(record(FILEOP_EVENT), bad[i], "", 0), -1);
        struct fileop_record hard = record(FILEOP_ENTRY);
        hard.kind = FILEOP_HARDLINK;
        assert_int_equal(take(hard, "a", bad[i], 0), -1);
    }
    struct fileop_record rec = record(FILEOP_ENTRY);
    char bytes[sizeof(rec) + 3];
    const char *p, *t;
    rec.path_len = 3;
    memcpy(bytes, &rec, sizeof(rec));
    memcpy(bytes + sizeof(rec), "a\0b", 3);
    assert_int_equal(fileop_take(bytes, sizeof(bytes), &rec, &p, &t, NULL), -1);
    rec.kind = FILEOP_SYMLINK;
    rec.path_len = 1;
    rec.target_len = 2;
    memcpy(bytes, &rec, sizeof(rec));
    assert_int_equal(fileop_take(bytes, sizeof(bytes), &rec, &p, &t, NULL), -1);
}

static void test_every_code_and_kind_has_a_name_of_its_own(void **state) {
    (void)state;
    for (uint32_t i = 0; i < FILEOP_CODES; i++) {
        assert_non_null(fileop_code_name(i));
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(fileop_code_name(i), fileop_code_name(j));
    }
    assert_null(fileop_code_name(FILEOP_CODES));
    assert_null(fileop_code_name(UINT32_MAX));
    assert_null(fileop_kind_name(FILEOP_NONE));
    for (uint32_t i = 1; i < FILEOP_KINDS; i++)
        assert_non_null(fileop_kind_name(i));
    assert_null(fileop_kind_name(FILEOP_KINDS));
    assert_string_equal(fileop_kind_name(FILEOP_SYMLINK), "symlink");
}

static void test_errnos_have_meanings(void **state) {
    (void)state;
    static const struct {
        int code;
        enum fileop_code means;
    } rows[] = {
        {0, FILEOP_OK},
        {ENOENT, FILEOP_NOT_FOUND},
        {EACCES, FILEOP_DENIED},
        {EROFS, FILEOP_DENIED},
        {ENOTDIR, FILEOP_NOT_DIRECTORY},
        {ENXIO, FILEOP_NOT_REGULAR},
        {EDQUOT, FILEOP_NO_SPACE},
        {EXDEV, FILEOP_CROSS_DEVICE},
        {ENOTSUP, FILEOP_UNSUPPORTED},
        {EIO, FILEOP_IO},
        {ENOMEM, FILEOP_IO},
        {-1, FILEOP_IO},
        {100000, FILEOP_IO},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        assert_int_equal(fileop_code_of_errno(rows[i].code), rows[i].means);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_passes),
        cmocka_unit_test(test_every_bad_field_is_refused),
        cmocka_unit_test(test_a_record_is_taken_when_it_is_whole),
        cmocka_unit_test(test_unsafe_paths_are_refused),
        cmocka_unit_test(test_every_code_and_kind_has_a_name_of_its_own),
        cmocka_unit_test(test_errnos_have_meanings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
