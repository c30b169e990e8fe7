#include "modes.h"

#include <string.h>

#include "unit.h"

static void test_reset(void **state) {
    (void)state;
    static const struct {
        const char *output, *reset;
    } cases[] = {
        {"", ""},
        {"plain text\r\n", ""},
        {"\033[31mred\033[0m", ""},
        {"\033[?1049h", "\033[?1049l"},
        {"\033[?1049h\033[2J\033[?1049l", ""},
        {"\033[?25l", "\033[?25h"},
        {"\033[?25l\033[?25h", ""},
        {"\033[?25h", ""},
        {"\033[?1000;1006h", "\033[?1000l\033[?1006l"},
        {"\033[?1000;1006h\033[?1006;1000l", ""},
        {"\033[?2004h\033[?1049h", "\033[?1049l\033[?2004l"},
        {"\033[?1049h\033c", ""},
        /* What only looks alike. */
        {"\033[1049h", ""},
        {"[?1049h", ""},
        {"\033[?1049x", ""},
        {"\033[?1049$h", ""},
        {"\033[?9999h", ""},
        {"\033[?10490h", ""},
        {"\033[?99999999999999999991049h", ""},
        {"\033[?1049", ""},
        {"\033[?\033[?1049h", "\033[?1049l"},
        {"\033[?;;;1049h", "\033[?1049l"},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        for (size_t step = 1; step < 8; step++) {
            struct modes m = {0};
            char reset[MODES_RESET_MAX];
            size_t len = strlen(cases[i].output);

            for (size_t at = 0; at < len; at += step)
                modes_feed(&m, cases[i].output + at, len - at < step ? len - at : step);
            assert_int_equal(modes_reset(&m, reset), strlen(cases[i].reset));
            assert_string_equal(reset, cases[i].reset);
        }
}

/* All of them fit; many parameters do no harm. */
static void test_bounds(void **state) {
    (void)state;
    static const char all[] = "\033[?1049;1047;47;1h\033[?7;25l\033[?9;1000;1001;1002;1003;1004h"
                              "\033[?1005;1006;1015;2004h";
    struct modes m = {0};
    char reset[MODES_RESET_MAX];

    modes_feed(&m, all, sizeof(all) - 1);
    assert_true(modes_reset(&m, reset) < MODES_RESET_MAX);
    modes_feed(&m, reset, strlen(reset));
    assert_int_equal(modes_reset(&m, reset), 0);
    modes_feed(&m, "\033[?", 3);
    for (int i = 0; i < 100000; i++)
        modes_feed(&m, "1049;", 5);
    modes_feed(&m, "h", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reset), cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests_name("modes", tests, NULL, NULL);
}
