#include "image_choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static struct image_oci_index *index_new(void) {
    struct image_oci_index *index = calloc(1, sizeof(*index));
    assert_non_null(index);
    return index;
}

static void add(struct image_oci_index *index, char digit, const char *machine, const char *ref) {
    struct image_oci_entry *e = &index->entries[index->count++];
    memset(e->blob.hex, digit, 64);
    e->blob.kind = IMAGE_OCI_MANIFEST;
    if (machine != NULL) {
        snprintf(e->os, sizeof(e->os), "linux");
        snprintf(e->machine, sizeof(e->machine), "%s", machine);
    }
    snprintf(e->ref, sizeof(e->ref), "%s", ref);
}

static char chosen(const struct image_oci_index *index, const char *tag) {
    struct image_oci_blob found;
    struct err err = {0};
    return image_choose(index, tag, &found, &err) == 0 ? found.hex[0] : '-';
}

static void test_machine(void **state) {
    (void)state;
    struct image_oci_index *index = index_new();
    const char *ours = image_choose_machine();
    assert_int_equal(chosen(index, ""), '-');
    add(index, '1', "vax", "");
    assert_int_equal(chosen(index, ""), '-');
    add(index, '2', ours, "");
    assert_int_equal(chosen(index, ""), '2');
    add(index, '3', NULL, "");
    assert_int_equal(chosen(index, ""), '2');
    add(index, '2', ours, "");
    assert_int_equal(chosen(index, ""), '2');
    add(index, '4', ours, "");
    assert_int_equal(chosen(index, ""), '-');
    free(index);
}

static void test_tag(void **state) {
    (void)state;
    struct image_oci_index *index = index_new();
    struct image_oci_blob found;
    struct err err = {0};
    add(index, '1', NULL, "r.example/py:3");
    add(index, '2', NULL, "4");
    add(index, '3', "vax", "5");
    assert_int_equal(chosen(index, ""), '-');
    assert_int_equal(chosen(index, "3"), '1');
    assert_int_equal(chosen(index, "r.example/py:3"), '1');
    assert_int_equal(chosen(index, "4"), '2');
    assert_int_equal(chosen(index, "5"), '-');
    assert_int_equal(chosen(index, "py:3"), '-');
    assert_int_equal(image_choose(index, "6", &found, &err), -1);
    assert_non_null(strstr(err.text, "r.example/py:3, 4"));
    free(index);
}

static void test_check(void **state) {
    (void)state;
    struct image_oci_config config = {.os = "linux", .layers = 1};
    struct err err = {0};
    snprintf(config.machine, sizeof(config.machine), "%s", image_choose_machine());
    assert_int_equal(image_choose_check(&config, &err), 0);
    snprintf(config.machine, sizeof(config.machine), "vax");
    assert_int_equal(image_choose_check(&config, &err), -1);
    assert_non_null(strstr(err.text, "linux/vax"));
    snprintf(config.machine, sizeof(config.machine), "%s", image_choose_machine());
    snprintf(config.os, sizeof(config.os), "windows");
    assert_int_equal(image_choose_check(&config, &err), -1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_tag),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
