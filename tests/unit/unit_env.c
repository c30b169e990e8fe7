#include "env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "wire.h"

static const struct limits limits = {
    .v = {[LIMIT_CPUS_MILLI] = 1500, [LIMIT_MEM_BYTES] = 268435456}};

static const char *value(const struct env_list *list, const char *name) {
    const char *found = NULL;
    size_t len = strlen(name);
    for (size_t i = 0; i < list->count; i++) {
        if (strncmp(list->items[i], name, len) != 0 || list->items[i][len] != '=')
            continue;
        assert_null(found); /* no name twice */
        found = list->items[i] + len + 1;
    }
    return found;
}

static void test_base(void **state) {
    (void)state;
    struct env_list list;
    struct err err = {0};
    const struct request_env none = {0};
    setenv("PINFOLD_SECRET", "x", 1);
    unit_works(env_compose(&limits, WIRE_WRITABLE_ALL, NULL, &none, &none, &list, &err), err);
    assert_string_equal(value(&list, "PATH"),
                        "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin");
    assert_string_equal(value(&list, "HOME"), "/home/user");
    assert_string_equal(value(&list, "TMPDIR"), "/tmp");
    assert_string_equal(value(&list, "LANG"), "C.UTF-8");
    assert_string_equal(value(&list, "OMP_NUM_THREADS"), "2");
    assert_string_equal(value(&list, "JDK_JAVA_OPTIONS"),
                        "-XX:MaxRAM=268435456 -XX:MaxRAMPercentage=50");
    assert_null(value(&list, "PINFOLD_SECRET"));
    env_done(&list);
    unit_works(env_compose(&limits, WIRE_WRITABLE_WORKSPACE, NULL, &none, &none, &list, &err), err);
    assert_string_equal(value(&list, "HOME"), "/workspace");
    assert_string_equal(value(&list, "TMPDIR"), "/workspace");
    env_done(&list);
}

static void test_layers(void **state) {
    (void)state;
    struct env_list list;
    struct err err = {0};
    static const char *const run_items[] = {"A=run", "B=run", "PATH=/x", "EMPTY="};
    static const char *const step_items[] = {"B=step", "C=a=b=c", "HOME=/h", "BB=1"};
    const struct request_env run = {.items = run_items, .count = 4};
    const struct request_env step = {.items = step_items, .count = 4};
    unit_works(env_compose(&limits, WIRE_WRITABLE_ALL, NULL, &run, &step, &list, &err), err);
    assert_string_equal(value(&list, "A"), "run");
    assert_string_equal(value(&list, "B"), "step");
    assert_string_equal(value(&list, "BB"), "1");
    assert_string_equal(value(&list, "C"), "a=b=c");
    assert_string_equal(value(&list, "PATH"), "/x");
    assert_string_equal(value(&list, "HOME"), "/h");
    assert_string_equal(value(&list, "EMPTY"), "");
    assert_null(value(&list, "D"));
    env_done(&list);
}

/* As many names as a request may have, twice. */
static void test_many(void **state) {
    (void)state;
    struct env_list list;
    struct err err = {0};
    static char text[2][REQUEST_ENV_MAX][32];
    static const char *items[2][REQUEST_ENV_MAX];
    for (int k = 0; k < 2; k++) {
        for (unsigned i = 0; i < REQUEST_ENV_MAX; i++) {
            snprintf(text[k][i], sizeof(text[k][i]), "NAME%u=%d", i, k);
            items[k][i] = text[k][i];
        }
    }
    const struct request_env run = {.items = items[0], .count = REQUEST_ENV_MAX};
    const struct request_env step = {.items = items[1], .count = REQUEST_ENV_MAX};
    unit_works(env_compose(&limits, WIRE_WRITABLE_ALL, NULL, &run, &step, &list, &err), err);
    assert_in_range(list.count, REQUEST_ENV_MAX + 15, REQUEST_ENV_MAX + 30);
    assert_string_equal(value(&list, "NAME0"), "1");
    assert_string_equal(value(&list, "NAME1023"), "1");
    env_done(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
