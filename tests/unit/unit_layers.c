#include "layers.h"

#include <sys/xattr.h>

#include "unit_layers_jail.h"

static int put_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0, "%s", path);
    CHECK(write(fd, path, strlen(path)) == (ssize_t)strlen(path), "%s", path);
    fd_close(&fd);
    return 0;
}

static int has_file(const char *path) {
    char text[300];
    CHECK(read_text(path, text, sizeof text) == 0, "%s", path);
    CHECK(strcmp(text, path) == 0, "%s: %s", path, text);
    return 0;
}

static int lacks_file(const char *path) {
    struct stat st;
    CHECK(lstat(path, &st) != 0 && errno == ENOENT, "%s", path);
    return 0;
}

static int gone_file(const char *path) {
    CHECK(unlink(path) == 0, "%s", path);
    return 0;
}

static void test_switch_and_restore(void **state) {
    struct test_layers *t = *state;
    struct test_jail j;
    if (t == NULL) {
        skip();
    }
    test_jail_open(t, &j, 64 * JAIL_MIB, 10000);
    test_in(&j, put_file, "/workspace/a");
    test_in(&j, put_file, "/home/user/h");
    test_in(&j, put_file, "/var/tmp/v");
    test_in(&j, put_file, "/tmp/t");
    test_works(test_snapshot(t, &j, "one", true), t);
    assert_int_equal(t->result.depth, 1);
    assert_int_equal(t->result.files, 3);
    test_in(&j, has_file, "/workspace/a");
    test_in(&j, has_file, "/home/user/h");
    test_in(&j, has_file, "/tmp/t");
    test_in(&j, put_file, "/workspace/b");
    test_in(&j, gone_file, "/workspace/a");
    test_works(test_restore(t, &j, "one"), t);
    test_in(&j, has_file, "/workspace/a");
    test_in(&j, lacks_file, "/workspace/b");
    test_in(&j, has_file, "/tmp/t");
    test_jail_close(&j);
    layers_drop(t->layers, "one");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_switch_and_restore),
    };
    return cmocka_run_group_tests(tests, test_layers_up, test_layers_down);
}
