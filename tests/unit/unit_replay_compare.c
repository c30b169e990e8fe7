/* Two answers side by side. */
#include "replay_compare.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static const char *const usual =
    "{\"steps\":[{\"name\":\"a\",\"state\":\"done\",\"end\":{\"cause\":\"exit\",\"exit_code\":0,"
    "\"signal\":null},\"stdout\":\"x\",\"stdout_encoding\":\"utf-8\",\"stdout_bytes\":1,"
    "\"stderr\":\"\",\"stderr_encoding\":\"utf-8\",\"stderr_bytes\":0,"
    "\"usage\":{\"wall_ms\":5}}],"
    "\"files\":[{\"path\":\"f\",\"content\":\"1\",\"encoding\":\"utf-8\",\"size\":1,"
    "\"mode\":\"0644\"}]}";

static json_t *changed(const char *from, const char *to) {
    char text[1024];
    const char *at = strstr(usual, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - usual), usual, to, at + strlen(from));
    json_t *value = json_loads(text, 0, NULL);
    assert_non_null(value);
    return value;
}

/* The names of what differs, comma-separated. */
static void differing(const json_t *now, char *out, size_t size) {
    json_t *before = json_loads(usual, 0, NULL);
    struct replay_compare c;
    struct err err;
    unit_works(replay_compare_make(&c, before, now, &err), err);
    out[0] = '\0';
    for (size_t i = 0; i < c.count; i++)
        if (!c.rows[i].equal)
            snprintf(out + strlen(out), size - strlen(out), "%s,", c.rows[i].what);
    assert_int_equal(c.equal, out[0] == '\0');
    replay_compare_done(&c);
    json_decref(before);
}

static void test_differences(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *differs;
    } rows[] = {
        {"\"x\"", "\"x\"", ""},
        {"\"wall_ms\":5", "\"wall_ms\":6", ""},
        {"\"exit_code\":0", "\"exit_code\":1", "step 1 a,"},
        {"\"exit\"", "\"memory\"", "step 1 a,"},
        {"\"stdout\":\"x\"", "\"stdout\":\"y\"", "step 1 stdout,"},
        {"\"stderr_bytes\":0", "\"stderr_bytes\":9", "step 1 stderr,"},
        {"\"content\":\"1\"", "\"content\":\"2\"", "file f,"},
        {"\"0644\"", "\"0755\"", "file f,"},
        {"\"path\":\"f\"", "\"path\":\"g\"", "file f,file g,"},
        {"\"steps\":[", "\"steps\":[{\"name\":\"z\",\"state\":\"skipped\"},",
         "step 1 a,step 1 stdout,step 1 stderr,step 2 a,step 2 stdout,step 2 stderr,"},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        char seen[256];
        json_t *now = changed(rows[i].from, rows[i].to);
        differing(now, seen, sizeof(seen));
        assert_string_equal(seen, rows[i].differs);
        json_decref(now);
    }
}

static void test_nonsense(void **state) {
    (void)state;
    static const char *const texts[] = {"{}", "[]", "{\"steps\":[1,null,{}],\"files\":[{},7]}"};
    for (size_t i = 0; i < UNIT_COUNT(texts); i++) {
        struct replay_compare c;
        json_t *one = json_loads(texts[i], 0, NULL);
        assert_int_equal(replay_compare_make(&c, one, one, NULL), 0);
        assert_true(c.equal);
        replay_compare_done(&c);
        json_decref(one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_nonsense),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
