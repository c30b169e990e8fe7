#include "top_view.h"

#include <jansson.h>
#include <string.h>

#include "unit.h"

static const char answer[] =
    "{\"at\": 1, \"of\": \"all\", \"up_ms\": 3720000, \"ready\": true, \"why\": null,"
    "\"runs\": [{\"id\": \"run_a\", \"user\": \"alice\", \"state\": \"running\", \"label\": "
    "\"make\","
    "\"policy\": \"default\", \"age_ms\": 12300, \"running_ms\": 12000, \"step\": 1, \"steps\": 3,"
    "\"step_name\": \"x\", \"used\": {\"cpu_ms\": 850, \"mem_peak_bytes\": 12582912},"
    "\"live\": {\"cpu_ms\": 100, \"cpus_milli\": 734, \"mem_bytes\": 3145728},"
    "\"limits\": {\"mem_bytes\": 268435456}},"
    "{\"id\": \"run_b\", \"user\": \"bob\", \"state\": \"queued\", \"label\": null,"
    "\"policy\": \"ci\", \"age_ms\": 5, \"position\": 0, \"steps\": 1, \"used\": null,"
    "\"limits\": {\"mem_bytes\": 1073741824}}],"
    "\"running\": 1, \"queued\": 7,"
    "\"sandboxes\": [{\"id\": \"sb_c\", \"user\": \"e\\u001b[31mvil\", \"state\": \"ready\","
    "\"age_ms\": 90000, \"expires_in_ms\": 3600000, \"executions\": 4, \"running\": 1,"
    "\"used\": null, \"limits\": {\"mem_bytes\": 512}}], \"sandboxes_total\": 1,"
    "\"users\": [{\"user\": \"bob\", \"running\": 0, \"queued\": 7, \"sandboxes\": 0}],"
    "\"pool\": {\"shards\": 1, \"slots\": 32, \"slots_in_use\": 1, \"warm\": 8,"
    "\"sandbox_places\": 64, \"sandboxes_in_use\": 1,"
    "\"kinds\": [{\"policy\": \"default\", \"image\": \"host\", \"warm\": 6},"
    "{\"policy\": \"ci\", \"image\": \"py\", \"warm\": 2}]},"
    "\"per_minute\": {\"runs_accepted\": 9, \"runs_ended\": 8, \"executions_ended\": 2}}";

static const char *shown(const char *json) {
    static struct buf out;
    struct err err = {0};
    json_t *tree = json_loads(json, 0, NULL);
    assert_non_null(tree);
    buf_done(&out);
    buf_init(&out, TOP_VIEW_MAX);
    unit_works(top_view_write(&out, tree, "http://x", &err), err);
    json_decref(tree);
    return out.data;
}

static void test_lines(void **state) {
    (void)state;
    const char *text = shown(answer);
    assert_non_null(strstr(text, "http://x  up 1h02m  all users  ready\n"));
    assert_non_null(
        strstr(text, "runs 1 running, 7 waiting  sandboxes 1  slots 1/32, warm jails 8"));
    assert_non_null(strstr(text, "9 accepted, 8 ended, 2 executions\n"));
    assert_non_null(strstr(text, "\nwarm: default/host 6, ci/py 2\n"));
    assert_non_null(strstr(text, "\nwaiting: bob 7\n"));
    assert_non_null(
        strstr(text, "alice       step 2/3   12.3s   950ms   73%     3M   256M  make\n"));
    assert_non_null(
        strstr(text, "bob         waits 1      5ms       -     -      -     1G  (ci)\n"));
    assert_non_null(strstr(text, "and 6 more\n"));
    assert_non_null(strstr(text, "e?[31mvil"));
    assert_non_null(strstr(text, "1m30s   1h00m     -      -    512       -  1/4\n"));
    assert_null(strchr(text, '\x1b'));
}

static void test_red_and_empty(void **state) {
    (void)state;
    const char *text =
        shown("{\"of\": \"own\", \"ready\": false, \"why\": \"no\\u0007 runner\", \"runs\": [],"
              "\"sandboxes\": [], \"pool\": {\"slots\": 4}, \"per_minute\": null}");
    assert_string_equal(text, "http://x  up 0ms  yours only  NOT READY: no? runner\n"
                              "runs 0 running, 0 waiting  sandboxes 0  slots 4\n");
}

static void test_nonsense(void **state) {
    (void)state;
    static const char *const bad[] = {"{}", "[]", "{\"runs\": 1, \"sandboxes\": []}"};
    struct err err = {0};
    struct buf out;
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        json_t *tree = json_loads(bad[i], 0, NULL);
        buf_init(&out, TOP_VIEW_MAX);
        unit_fails(top_view_write(&out, tree, "x", &err), err, ERR_PROTOCOL);
        buf_done(&out);
        json_decref(tree);
    }
    /* Wrong types within are empty cells. */
    shown("{\"of\": 1, \"runs\": [1, null, {\"id\": [], \"age_ms\": -5, \"limits\": 7,"
          "\"used\": {\"cpu_ms\": \"x\"}}], \"sandboxes\": [{}], \"users\": {}, \"queued\": 3}");
}

static const char *painted(const char *text, unsigned rows, unsigned cols) {
    static struct buf out;
    struct err err = {0};
    buf_done(&out);
    buf_init(&out, TOP_VIEW_MAX);
    unit_works(top_view_paint(&out, text, rows, cols, &err), err);
    return out.data;
}

static void test_frames(void **state) {
    (void)state;
    assert_string_equal(painted("ab\ncd\n", 5, 80), "\x1b[Hab\x1b[K\r\ncd\x1b[K\r\n\x1b[J");
    /* The last row ends without a new one, which would scroll. */
    assert_string_equal(painted("ab\ncd\n", 2, 80), "\x1b[Hab\x1b[K\r\ncd\x1b[K\x1b[J");
    assert_string_equal(painted("abcdef\n", 2, 3), "\x1b[Habc\x1b[K\r\n\x1b[J");
    assert_string_equal(painted("\xc3\xa9\xc3\xa9\xc3\xa9\n", 2, 2),
                        "\x1b[H\xc3\xa9\xc3\xa9\x1b[K\r\n\x1b[J");
    assert_string_equal(painted("a\nb\nc\nd\n", 3, 80),
                        "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n... 2 lines more\x1b[K\x1b[J");
    assert_string_equal(painted("a\nb\n", 1, 3), "\x1b[H...\x1b[K\x1b[J");
    assert_string_equal(painted("", 3, 3), "\x1b[H\x1b[J");
}

static void test_short_forms(void **state) {
    (void)state;
    char text[TOP_VIEW_SHORT];
    static const struct {
        uint64_t ms;
        const char *text;
    } times[] = {{0, "0ms"},         {999, "999ms"},      {1000, "1.0s"},
                 {59999, "59.9s"},   {60000, "1m00s"},    {3599999, "59m59s"},
                 {3600000, "1h00m"}, {86400000, "1d00h"}, {UINT64_MAX, "100d00h"}};
    for (size_t i = 0; i < UNIT_COUNT(times); i++) {
        top_view_time(text, times[i].ms);
        assert_string_equal(text, times[i].text);
    }
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0"},       {1023, "1023"},  {1024, "1K"},       {1536, "1.5K"},
                 {10752, "10K"}, {1048576, "1M"}, {UINT64_MAX, "15E"}};
    for (size_t i = 0; i < UNIT_COUNT(sizes); i++) {
        top_view_bytes(text, sizes[i].bytes);
        assert_string_equal(text, sizes[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),       cmocka_unit_test(test_red_and_empty),
        cmocka_unit_test(test_nonsense),    cmocka_unit_test(test_frames),
        cmocka_unit_test(test_short_forms),
    };
    return cmocka_run_group_tests_name("top_view", tests, NULL, NULL);
}
