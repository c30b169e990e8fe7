#include "file_move.h"

#include <string.h>

#include "unit.h"

static char from[FILE_PATH_SIZE], to[FILE_PATH_SIZE];
static struct api_error error;

static int decode(const char *body, bool *replace) {
    memset(&error, 0, sizeof(error));
    return file_move_decode(body, strlen(body), from, to, replace, &error);
}

static void test_both_paths_are_read(void **state) {
    (void)state;
    bool replace = true;
    assert_int_equal(decode("{\"from\": \"/a//b\", \"to\": \"/c\"}", &replace), 0);
    assert_string_equal(from, "/a/b");
    assert_string_equal(to, "/c");
    assert_false(replace);
    assert_int_equal(
        decode("{\"from_base64\": \"L/8=\", \"to\": \"/c\", \"replace\": true}", &replace), 0);
    assert_string_equal(from, "/\xff");
    assert_true(replace);
}

static void test_anything_else_is_refused_with_its_field(void **state) {
    (void)state;
    static const struct {
        const char *body, *field;
    } rows[] = {
        {"", ""},
        {"[]", ""},
        {"null", ""},
        {"{\"from\": \"/a\"}", "/to"},
        {"{\"to\": \"/a\"}", "/from"},
        {"{\"from\": \"a\", \"to\": \"/b\"}", "/from"},
        {"{\"from\": \"\", \"to\": \"/b\"}", "/from"},
        {"{\"from\": 1, \"to\": \"/b\"}", "/from"},
        {"{\"from\": \"/a\\u0000b\", \"to\": \"/b\"}", ""},
        {"{\"from\": \"/../a\", \"to\": \"/b\"}", "/from"},
        {"{\"from\": \"/a\", \"to\": \"/b\", \"replace\": 1}", "/replace"},
        {"{\"from\": \"/a\", \"to\": \"/b\", \"x\": 1}", "/x"},
        {"{\"from\": \"/a\", \"from\": \"/c\", \"to\": \"/b\"}", ""},
        {"{\"from\": \"/a\", \"from_base64\": \"L2E=\", \"to\": \"/b\"}", "/from"},
        {"{\"from_base64\": \"L2EA\", \"to\": \"/b\"}", "/from_base64"},
        {"{\"from_base64\": \"!\", \"to\": \"/b\"}", "/from_base64"},
    };
    bool replace = false;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        assert_int_equal(decode(rows[i].body, &replace), -1);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.field, rows[i].field);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_paths_are_read),
        cmocka_unit_test(test_anything_else_is_refused_with_its_field),
    };
    return cmocka_run_group_tests_name("file_move", tests, NULL, NULL);
}
