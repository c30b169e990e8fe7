#include "limit.h"

#include <string.h>

#include "unit.h"

static struct limits all_at(bool max) {
    struct limits l;
    for (int i = 0; i < LIMIT_COUNT; i++)
        l.v[i] = max ? limit_info((enum limit_id)i)->max : limit_info((enum limit_id)i)->min;
    return l;
}

static void test_the_table(void **state) {
    (void)state;
    static const char *const names[LIMIT_COUNT] = {
        "wall_ms",      "cpu_ms",     "mem_bytes",  "pids",        "disk_bytes", "inodes",
        "output_bytes", "open_files", "file_bytes", "stack_bytes", "cpus_milli",
    };
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *row = limit_info((enum limit_id)i);
        assert_string_equal(row->name, names[i]);
        assert_int_equal(limit_by_name(names[i]), i);
        assert_true(row->min >= 1 && row->min < row->max);
        assert_true(row->what && row->what[0]);
        assert_int_equal(row->per_step, i != LIMIT_DISK_BYTES && i != LIMIT_INODES);
    }
    assert_int_equal(limit_info(LIMIT_MEM_BYTES)->min, 4 << 20);
}

static void test_milliseconds_fit_as_nanoseconds(void **state) {
    (void)state;
    assert_true(limit_info(LIMIT_WALL_MS)->max < UINT64_MAX / 1000000 / 1024);
    assert_true(limit_info(LIMIT_CPU_MS)->max < UINT64_MAX / 1000000 / 1024);
}

static void test_unknown_names(void **state) {
    (void)state;
    static const char *const bad[] = {"", "wall", "WALL_MS", "wall_ms ", "memory"};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        assert_int_equal(limit_by_name(bad[i]), -1);
}

static void test_check_at_the_bounds(void **state) {
    (void)state;
    struct err err = {0};
    struct limits low = all_at(false), high = all_at(true);
    unit_works(limit_check(&low, &high, &err), err);
    unit_works(limit_check(&high, &high, &err), err);
    unit_works(limit_check(&low, &low, &err), err);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const char *name = limit_info((enum limit_id)i)->name;
        struct limits wish = high;
        wish.v[i]++;
        unit_fails(limit_check(&wish, &high, &err), err, ERR_INVALID);
        assert_non_null(strstr(err.text, name));
        wish.v[i] = low.v[i] - 1;
        unit_fails(limit_check(&wish, &high, &err), err, ERR_INVALID);
        assert_non_null(strstr(err.text, name));
        wish.v[i] = UINT64_MAX;
        unit_fails(limit_check(&wish, &high, &err), err, ERR_INVALID);
        wish.v[i] = 0;
        unit_fails(limit_check(&wish, &high, &err), err, ERR_INVALID);
    }
}

static void test_check_names_wish_and_ceiling(void **state) {
    (void)state;
    struct err err = {0};
    struct limits wish = all_at(false), ceiling = all_at(true);
    wish.v[LIMIT_PIDS] = 100;
    ceiling.v[LIMIT_PIDS] = 64;
    unit_fails(limit_check(&wish, &ceiling, &err), err, ERR_INVALID);
    assert_string_equal(err.text, "pids is 100 but the ceiling is 64");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table),
        cmocka_unit_test(test_milliseconds_fit_as_nanoseconds),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_check_at_the_bounds),
        cmocka_unit_test(test_check_names_wish_and_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
