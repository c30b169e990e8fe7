#include "progress.h"

#include "unit.h"

static void test_text(void **state) {
    (void)state;
    static const struct {
        struct progress p;
        uint64_t now;
        const char *text;
    } cases[] = {
        {{.begun_ms = 1000, .done = 10u << 20, .total = 100u << 20},
         2000,
         "10.0 MiB of 100.0 MiB, 10.0 MiB/s"},
        {{.begun_ms = 1000, .done = 3u << 20}, 3000, "3.0 MiB, 1.5 MiB/s"},
        {{.begun_ms = 1000}, 1000, "0 bytes, 0 bytes/s"},
        /* Nothing overflows. */
        {{.begun_ms = 0, .done = (uint64_t)1 << 60}, 1000, NULL},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        char text[128];

        progress_text(&cases[i].p, cases[i].now, text, sizeof(text));
        if (cases[i].text != NULL)
            assert_string_equal(text, cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text)};
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
