#include "warm.h"

#include <unistd.h>

#include "unit.h"

#define MIB ((uint64_t)1 << 20)
#define PLENTY 1048576u

static unsigned kept(uint64_t mem_bytes, uint64_t files, unsigned shards) {
    const struct warm_host host = {.mem_bytes = mem_bytes, .files = files, .shards = shards};
    return warm_count(&host);
}

static void test_they_follow_the_memory_between_few_and_many(void **state) {
    (void)state;
    static const struct {
        uint64_t mib;
        unsigned shards, count;
    } cases[] = {
        {0, 2, WARM_FEW}, {512, 1, WARM_FEW},    {1024, 1, 5},
        {2048, 2, 5},     {4096, 2, 11},         {8192, 4, 11},
        {24105, 4, 35},   {24105, 2, WARM_MANY}, {1 << 20, 4, WARM_MANY},
    };
    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        assert_int_equal(kept(cases[i].mib * MIB, PLENTY, cases[i].shards), cases[i].count);
}

static void test_descriptors_bound_them(void **state) {
    (void)state;
    assert_int_equal(kept(1024 * 1024 * MIB, 1024, 1), 5);
    assert_int_equal(kept(24105 * MIB, 4096, 2), 21);
    assert_int_equal(kept(24105 * MIB, 0, 2), WARM_FEW);
}

static void test_no_shard_is_one(void **state) {
    (void)state;
    assert_int_equal(kept(4096 * MIB, PLENTY, 0), kept(4096 * MIB, PLENTY, 1));
}

static void test_what_is_seen_of_this_host_is_not_nothing(void **state) {
    (void)state;
    struct warm_host host = warm_host_look(3);
    assert_int_equal(host.shards, 3);
    assert_true(host.mem_bytes > 0);
    assert_true(host.mem_bytes <=
                (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_true(host.files > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_follow_the_memory_between_few_and_many),
        cmocka_unit_test(test_descriptors_bound_them),
        cmocka_unit_test(test_no_shard_is_one),
        cmocka_unit_test(test_what_is_seen_of_this_host_is_not_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
