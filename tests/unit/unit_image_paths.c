#include "image_paths.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static void test_twice(void **state) {
    (void)state;
    struct image_paths p = {0};
    struct err err = {0};

    assert_int_equal(image_paths_enter(&p, "a/b/c", IMAGE_PATHS_OTHER, &err), 0);
    assert_int_equal(image_paths_enter(&p, "a", IMAGE_PATHS_DIR, &err), 0);
    assert_int_equal(image_paths_enter(&p, "a", IMAGE_PATHS_DIR, &err), 0);
    assert_int_equal(image_paths_enter(&p, "a/b", IMAGE_PATHS_DIR, &err), 0);
    assert_int_equal(image_paths_enter(&p, "x", IMAGE_PATHS_OTHER, &err), 0);
    unit_fails(image_paths_enter(&p, "x", IMAGE_PATHS_OTHER, &err), err, ERR_INVALID);
    unit_fails(image_paths_enter(&p, "x", IMAGE_PATHS_DIR, &err), err, ERR_INVALID);
    unit_fails(image_paths_enter(&p, "a", IMAGE_PATHS_OTHER, &err), err, ERR_INVALID);
    unit_fails(image_paths_enter(&p, "a/b", IMAGE_PATHS_OTHER, &err), err, ERR_INVALID);
    unit_fails(image_paths_enter(&p, "x/y", IMAGE_PATHS_OTHER, &err), err, ERR_INVALID);
    unit_fails(image_paths_enter(&p, "a/b/c/d/e", IMAGE_PATHS_OTHER, &err), err, ERR_INVALID);
    assert_int_equal(image_paths_enter(&p, "a/bc", IMAGE_PATHS_OTHER, &err), 0);
    image_paths_done(&p);
    image_paths_done(&p);
    image_paths_done(NULL);
}

static void test_many(void **state) {
    (void)state;
    struct image_paths p = {0};
    struct err err = {0};
    char path[64];

    for (int i = 0; i < 20000; i++) {
        snprintf(path, sizeof(path), "d%d/f%d", i % 100, i);
        assert_int_equal(image_paths_enter(&p, path, IMAGE_PATHS_OTHER, &err), 0);
    }
    for (int i = 0; i < 20000; i += 7) {
        snprintf(path, sizeof(path), "d%d/f%d", i % 100, i);
        unit_fails(image_paths_enter(&p, path, IMAGE_PATHS_OTHER, &err), err, ERR_INVALID);
    }
    assert_int_equal(p.count, 20100);
    image_paths_done(&p);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
