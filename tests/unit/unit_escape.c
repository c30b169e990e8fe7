#include "escape.h"

#include <string.h>

#include "unit.h"

/* Feeds `keys` in pieces of `step` bytes; -> what goes through. */
static void feed(const char *keys, size_t step, char *out, bool *leave) {
    struct escape e = {0};
    size_t len = strlen(keys), n = 0;

    *leave = false;
    for (size_t at = 0; at < len && !*leave; at += step)
        n += escape_feed(&e, keys + at, len - at < step ? len - at : step, out + n, leave);
    out[n] = '\0';
}

static void test_keys(void **state) {
    (void)state;
    static const struct {
        const char *keys, *through;
        bool leave;
    } cases[] = {
        {"", "", false},           {"ls\r", "ls\r", false},         {"~.", "", true},
        {"~.more", "", true},      {"ls\r~.", "ls\r", true},        {"ls\n~.", "ls\n", true},
        {"ls ~.", "ls ~.", false}, {"a~.", "a~.", false},           {"~~", "~", false},
        {"~~.", "~.", false},      {"~~~.", "~~.", false},          {"~/bin\r", "~/bin\r", false},
        {"~\r~.", "~\r", true},    {"~x~.", "~x~.", false},         {"~", "", false},
        {"\r\r~.", "\r\r", true},  {"\033[A~.", "\033[A~.", false},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        for (size_t step = 1; step <= 3; step++) {
            char out[64];
            bool leave;

            feed(cases[i].keys, step, out, &leave);
            assert_string_equal(out, cases[i].through);
            assert_int_equal(leave, cases[i].leave);
        }
}

static void test_binary(void **state) {
    (void)state;
    struct escape e = {0};
    char in[256], out[257];
    bool leave = false;

    for (int i = 0; i < 256; i++)
        in[i] = (char)i;
    assert_int_equal(escape_feed(&e, in, sizeof(in), out, &leave), sizeof(in));
    assert_memory_equal(in, out, sizeof(in));
    assert_false(leave);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_binary)};
    return cmocka_run_group_tests_name("escape", tests, NULL, NULL);
}
