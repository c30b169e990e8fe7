#include "file_json.h"

#include "unit.h"

static void shows(const struct fileop_record *rec, const char *path, const char *target,
                  const char *want) {
    struct json_out j;
    struct buf out;
    buf_init(&out, 1 << 16);
    json_out_init(&j, &out);
    file_json_entry(&j, rec, path, target);
    assert_int_equal(json_out_end(&j, NULL), 0);
    assert_string_equal(out.data, want);
    buf_done(&out);
}

static void test_a_file_is_an_object(void **state) {
    (void)state;
    struct fileop_record rec = {.type = FILEOP_ENTRY,
                                .kind = FILEOP_FILE,
                                .mode = 0644,
                                .size = 5,
                                .inode = 7,
                                .nlink = 1,
                                .mtime_ns = 1234567890};
    shows(&rec, "/a\"b", "",
          "{\"path\":\"/a\\\"b\",\"type\":\"file\",\"mode\":\"0644\",\"size\":5,\"mtime_ms\":1234,"
          "\"inode\":7,\"nlink\":1}");
    rec.kind = FILEOP_SYMLINK;
    rec.mode = 0777;
    rec.mtime_ns = -1;
    shows(&rec, "l\xff", "to\xfe",
          "{\"path_base64\":\"bP8=\",\"type\":\"symlink\",\"mode\":\"0777\",\"size\":5,"
          "\"mtime_ms\":-1,\"inode\":7,\"nlink\":1,\"target_base64\":\"dG/+\"}");
}

static void test_times_before_the_epoch_are_rounded_down(void **state) {
    (void)state;
    assert_int_equal(file_json_ms(0), 0);
    assert_int_equal(file_json_ms(999999), 0);
    assert_int_equal(file_json_ms(1000000), 1);
    assert_int_equal(file_json_ms(-1), -1);
    assert_int_equal(file_json_ms(-1000000), -1);
    assert_int_equal(file_json_ms(INT64_MIN), INT64_MIN / 1000000 - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_an_object),
        cmocka_unit_test(test_times_before_the_epoch_are_rounded_down),
    };
    return cmocka_run_group_tests_name("file_json", tests, NULL, NULL);
}
