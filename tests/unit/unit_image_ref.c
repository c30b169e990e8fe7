#include "image_ref.h"

#include <string.h>

#include "unit.h"

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_parse(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "@sha256:" HEX,
        "a/b",
        ".a",
        "-a",
        "a b",
        "a@",
        "a@sha256:",
        "a@sha256:" HEX "0",
        "a@sha256:0" HEX,
        "a@SHA256:" HEX,
        "a@sha512:" HEX,
        "a@sha256:" HEX "@sha256:" HEX,
        "a@sha256:0x112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "a@sha256:00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff",
        "host@sha256:" HEX,
        "a:latest",
        "a123456789012345678901234567890123456789012345678901234567890123",
    };
    struct image_ref ref;
    struct err err = {0};
    char hex[65];

    assert_int_equal(image_ref_parse("py_3.11-slim", &ref, &err), 0);
    assert_string_equal(ref.name, "py_3.11-slim");
    assert_false(ref.pinned);
    assert_int_equal(image_ref_parse("host", &ref, &err), 0);
    assert_int_equal(image_ref_parse("a@sha256:" HEX, &ref, &err), 0);
    assert_string_equal(ref.name, "a");
    assert_true(ref.pinned);
    assert_int_equal(ref.sha256[1], 0x11);
    assert_int_equal(ref.sha256[31], 0xff);
    image_ref_to_hex(ref.sha256, hex);
    assert_string_equal(hex, HEX);
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(image_ref_parse(bad[i], &ref, &err), err, ERR_INVALID);
    assert_string_equal(ref.name, "a"); /* untouched */
}

static void test_allows(void **state) {
    (void)state;
    struct image_ref list[2];
    struct err err;
    uint8_t right[32], wrong[32] = {0};

    assert_int_equal(image_ref_parse("a@sha256:" HEX, &list[0], &err), 0);
    assert_int_equal(image_ref_parse("b", &list[1], &err), 0);
    assert_true(image_ref_hex(HEX, right));
    assert_true(image_ref_allows(list, 2, "a", right));
    assert_false(image_ref_allows(list, 2, "a", wrong));
    assert_true(image_ref_allows(list, 2, "b", wrong));
    assert_false(image_ref_allows(list, 2, "c", right));
    assert_false(image_ref_allows(list, 2, "host", wrong));
    assert_false(image_ref_allows(list, 0, "b", wrong));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
