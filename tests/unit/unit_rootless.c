/* Which range of /etc/subuid a user gets. */
#include "rootless.h"

#include "unit.h"

#define FILE_TEXT                                                                                  \
    "# a remark\n"                                                                                 \
    "other:100000:65536\n"                                                                         \
    "me:165536:100\n"                                                                              \
    "me:200000:65536\n"                                                                            \
    "meandmore:900000:65536\n"                                                                     \
    "1234:300000:65536"

static uint32_t range(const char *text, const char *user, uid_t uid, uint32_t need) {
    uint32_t first = 7;
    return rootless_range(text, user, uid, need, &first) ? first : 0;
}

static void test_first_that_is_large_enough(void **state) {
    (void)state;
    assert_int_equal(range(FILE_TEXT, "me", 1000, 50), 165536);
    assert_int_equal(range(FILE_TEXT, "me", 1000, 10240), 200000);
    assert_int_equal(range(FILE_TEXT, "me", 1000, 65537), 0);
}

static void test_by_number(void **state) {
    (void)state;
    assert_int_equal(range(FILE_TEXT, "?", 1234, 10240), 300000);
    assert_int_equal(range(FILE_TEXT, "?", 123, 10240), 0);
    assert_int_equal(range(FILE_TEXT, "meand", 1, 10240), 0);
}

static void test_damaged_lines_give_nothing(void **state) {
    static const char *const lines[] = {"",
                                        "me",
                                        "me:",
                                        "me:1",
                                        "me:1:",
                                        "me::65536",
                                        "me:x:65536",
                                        "me:1:x",
                                        "me:1:65536:9",
                                        "me:-1:65536",
                                        "me:0:65536",
                                        "me: 1:65536",
                                        "me\n:1:65536",
                                        "me:4294967295:65536",
                                        "me:99999999999999999999999999:65536",
                                        ":1:65536"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(range(lines[i], "me", 1000, 10), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_that_is_large_enough),
        cmocka_unit_test(test_by_number),
        cmocka_unit_test(test_damaged_lines_give_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
