#include "fileop_names.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

/* A deep tree is walked with the names of all levels in memory. */
static void test_a_directory_with_one_name_takes_little(void **state) {
    (void)state;
    static char buf[8192];
    char dir[] = "/tmp/unit-names-XXXXXX";
    const struct fileop_names_wish all = {.bytes_max = 1 << 20};
    const struct fileop_names_wish sorted = {.bytes_max = 1 << 20, .sorted = true};
    const struct fileop_names_wish *wish[] = {&all, &sorted};
    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(mkdirat(fd, "d", 0700), 0);
    for (size_t i = 0; i < 2; i++) {
        struct fileop_names n = {0};
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(fileop_names_read(&n, fd, wish[i], buf, sizeof buf), 0);
        assert_int_equal(n.count, 1);
        assert_string_equal(fileop_names_at(&n, 0), "d");
        assert_true(fileop_names_bytes(&n) <= 64);
        fileop_names_done(&n);
    }
    assert_int_equal(unlinkat(fd, "d", AT_REMOVEDIR), 0);
    (void)close(fd);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_directory_with_one_name_takes_little),
    };
    return cmocka_run_group_tests_name("fileop_names", tests, NULL, NULL);
}
