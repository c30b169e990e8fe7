#include "range.h"

#include "unit.h"

static void test_table(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint64_t size;
        enum range_result result;
        uint64_t first, last;
    } rows[] = {
        {NULL, 10, RANGE_NONE, 0, 0},
        {"bytes=0-0", 10, RANGE_PART, 0, 0},
        {"bytes=2-5", 10, RANGE_PART, 2, 5},
        {"Bytes=2-5", 10, RANGE_PART, 2, 5},
        {"bytes=2-", 10, RANGE_PART, 2, 9},
        {"bytes=2-99", 10, RANGE_PART, 2, 9},
        {"bytes=9-9", 10, RANGE_PART, 9, 9},
        {"bytes=10-", 10, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=10-20", 10, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-3", 10, RANGE_PART, 7, 9},
        {"bytes=-30", 10, RANGE_PART, 0, 9},
        {"bytes=-0", 10, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-1", 0, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=0-", 0, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=0-99999999999999999999999999", 10, RANGE_PART, 0, 9},
        {"bytes=99999999999999999999999999-", 10, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-99999999999999999999999999", 10, RANGE_PART, 0, 9},
        /* What cannot be read, and what asks for several parts, is as if it were not there. */
        {"bytes=5-2", 10, RANGE_NONE, 0, 0},
        {"bytes=-", 10, RANGE_NONE, 0, 0},
        {"bytes=", 10, RANGE_NONE, 0, 0},
        {"bytes=0-1,3-4", 10, RANGE_NONE, 0, 0},
        {"bytes=a-b", 10, RANGE_NONE, 0, 0},
        {"bytes=1-b", 10, RANGE_NONE, 0, 0},
        {"bytes= 1-2", 10, RANGE_NONE, 0, 0},
        {"bytes=1--2", 10, RANGE_NONE, 0, 0},
        {"lines=1-2", 10, RANGE_NONE, 0, 0},
        {"", 10, RANGE_NONE, 0, 0},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        uint64_t first = 0, last = 0;
        enum range_result got = range_parse(rows[i].header, rows[i].size, &first, &last);
        if (got != rows[i].result || first != rows[i].first || last != rows[i].last)
            fail_msg("%s of %u", rows[i].header, (unsigned)rows[i].size);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
