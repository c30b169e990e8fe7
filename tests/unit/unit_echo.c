#include "echo.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

/* What was written to the file so far; empties it. */
static const char *written(int fd, char *text, size_t size) {
    ssize_t got = pread(fd, text, size - 1, 0);

    assert_true(got >= 0);
    text[got] = '\0';
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return text;
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

/* Every cap, every way to cut the input in two, against the plain rule. */
static void test_caps(void **state) {
    (void)state;
    int fd = memfd_create("echo", MFD_CLOEXEC);
    struct err err = {0};
    struct outq q;

    assert_true(fd >= 0);
    outq_init(&q, fd, -1);
    for (uint64_t cap = 0; cap <= 30; cap++) {
        struct echo e;

        echo_init(&e, &q, cap);
        for (size_t cut = 0; cut <= 26; cut++) {
            char got[200], want[200];
            size_t head = (size_t)(cap / 2), tail = (size_t)(cap - cap / 2);

            unit_works(echo_put(&e, letters, cut, &err), err);
            unit_works(echo_put(&e, letters + cut, 26 - cut, &err), err);
            unit_works(echo_flush(&e, &err), err);
            if (cap == 0 || cap >= 26)
                snprintf(want, sizeof(want), "%s", letters);
            else
                snprintf(want, sizeof(want), "%.*s\n[%zu bytes omitted]\n%s", (int)head, letters,
                         26 - head - tail, letters + 26 - tail);
            assert_string_equal(written(fd, got, sizeof(got)), want);
        }
        echo_done(&e);
    }
    outq_done(&q);
    close(fd);
}

static void test_bytes(void **state) {
    (void)state;
    int fd = memfd_create("echo", MFD_CLOEXEC);
    struct err err = {0};
    struct outq q;
    struct echo e;
    char got[100];

    outq_init(&q, fd, -1);
    echo_init(&e, &q, 7);
    for (int i = 0; i < 1000; i++)
        unit_works(echo_put(&e, letters + i % 26, 1, &err), err);
    unit_works(echo_flush(&e, &err), err);
    assert_string_equal(written(fd, got, sizeof(got)), "abc\n[993 bytes omitted]\nijkl");
    /* The next step starts afresh. */
    unit_works(echo_put(&e, "xy", 2, &err), err);
    unit_works(echo_flush(&e, &err), err);
    assert_string_equal(written(fd, got, sizeof(got)), "xy");
    echo_done(&e);
    outq_done(&q);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_caps), cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests_name("echo", tests, NULL, NULL);
}
