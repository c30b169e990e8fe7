#include "fileop_status.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

static void test_every_code_has_a_status_and_a_sentence(void **state) {
    (void)state;
    for (uint32_t code = FILEOP_OK + 1; code < FILEOP_CODES; code++) {
        struct fileop_result r = {0};
        struct api_error error = {0};
        assert_true(fileop_status((enum fileop_code)code) >= 400);
        fileop_status_set(&r, (enum fileop_code)code, 0, "/a");
        assert_non_null(strstr(r.message, "/a"));
        assert_int_equal(r.message[strlen(r.message) - 1], '.');
        assert_int_equal(fileop_status_error(&r, &error), -1);
        assert_string_equal(error.code, fileop_code_name(code));
    }
    assert_int_equal(fileop_status(FILEOP_NOT_FOUND), 404);
    assert_int_equal(fileop_status(FILEOP_IS_DIRECTORY), 409);
    assert_int_equal(fileop_status(FILEOP_NO_SPACE), 507);
    assert_int_equal(fileop_status((enum fileop_code)77), 500);
}

static void test_names_cannot_forge_a_message(void **state) {
    (void)state;
    struct fileop_result r = {0};
    char name[5000];
    fileop_status_set(&r, FILEOP_NOT_FOUND, 0, "/a\n%s\x1b\"\xff");
    assert_string_equal(r.message, "There is nothing at /a\\x0a\\x25s\\x1b\\x22\\xff.");
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    fileop_status_set(&r, FILEOP_NOT_FOUND, 0, name);
    assert_non_null(strstr(r.message, "..."));
    fileop_status_set(&r, FILEOP_IO, EIO, "/a");
    assert_string_equal(r.message, "The operation failed at /a: Input/output error.");
}

static void test_what_was_cut_short_says_why(void **state) {
    (void)state;
    struct fileop_result r = {0};
    struct api_error error = {0};
    fileop_status_cut(&r, CAUSE_MEMORY, "/a");
    assert_int_equal(r.code, FILEOP_NO_SPACE);
    fileop_status_cut(&r, CAUSE_CANCELLED, "/a");
    assert_int_equal(r.code, FILEOP_BUSY);
    fileop_status_cut(&r, CAUSE_INTERNAL, "/a");
    assert_int_equal(r.code, FILEOP_IO);
    r.gone = true;
    fileop_status_error(&r, &error);
    assert_int_equal(error.status, 410);
    assert_string_equal(error.code, "gone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_has_a_status_and_a_sentence),
        cmocka_unit_test(test_names_cannot_forge_a_message),
        cmocka_unit_test(test_what_was_cut_short_says_why),
    };
    return cmocka_run_group_tests_name("fileop_status", tests, NULL, NULL);
}
