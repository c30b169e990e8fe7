#include "file_path.h"

#include <string.h>

#include "unit.h"

static void test_paths_are_brought_into_one_form(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"workspace/a.txt", "/workspace/a.txt"},
        {"/workspace/a.txt", "/workspace/a.txt"},
        {"", "/"},
        {"/", "/"},
        {".", "/"},
        {"a//b", "/a/b"},
        {"./x", "/x"},
        {"a/./b/", "/a/b"},
        {"a/../b", "/b"},
        {"a/b/../../c", "/c"},
        {"a/..", "/"},
        {"a\\..\\b", "/a\\..\\b"},
        {"...", "/..."},
        {"..a/b..", "/..a/b.."},
        {"\xff\xfe/\n", "/\xff\xfe/\n"},
        {"-rf", "/-rf"},
    };
    char path[FILE_PATH_SIZE];
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        assert_int_equal(file_path_clean(rows[i].text, path, NULL), 0);
        assert_string_equal(path, rows[i].want);
    }
}

static void test_paths_that_lead_out_are_refused(void **state) {
    (void)state;
    static const char *const rows[] = {"..", "../x", "a/../../x", "/..", "./..", "a/b/../../.."};
    char path[FILE_PATH_SIZE] = "untouched";
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct api_error error = {0};
        assert_int_equal(file_path_clean(rows[i], path, &error), -1);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.code, "bad_path");
    }
}

static void test_names_have_255_bytes_and_paths_4095(void **state) {
    (void)state;
    char path[FILE_PATH_SIZE], text[2 * FILE_PATH_SIZE] = "a/";
    struct api_error error = {0};
    memset(text + 2, 'n', 255);
    assert_int_equal(file_path_clean(text, path, &error), 0);
    text[257] = 'n';
    assert_int_equal(file_path_clean(text, path, &error), -1);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.code, "name_too_long");
    for (size_t i = 0; i < 4096; i += 2)
        memcpy(text + i, "d/", 2);
    text[4094] = '\0'; /* 2047 names with a slash before each: 4094 bytes */
    assert_int_equal(file_path_clean(text, path, &error), 0);
    assert_int_equal(strlen(path), 4094);
    memcpy(text + 4094, "d/d", 4);
    assert_int_equal(file_path_clean(text, path, &error), -1);
    assert_string_equal(error.code, "name_too_long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_are_brought_into_one_form),
        cmocka_unit_test(test_paths_that_lead_out_are_refused),
        cmocka_unit_test(test_names_have_255_bytes_and_paths_4095),
    };
    return cmocka_run_group_tests_name("file_path", tests, NULL, NULL);
}
