#include "trace_tree.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#define MOST 80

/* The tree as lines "prefix id". */
static const char *drawn(struct trace_part *parts, size_t count) {
    static char text[32768];
    char prefix[TRACE_TREE_PREFIX];
    size_t order[MOST], len = 0;
    assert_int_equal(trace_tree_order(parts, count, order), 0);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        trace_tree_prefix(parts, order[i], prefix);
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, "%s%s\n", prefix, parts[order[i]].id);
    }
    return text;
}

static void test_a_tree(void **state) {
    (void)state;
    struct trace_part parts[] = {
        {.id = "a", .span = "1"},
        {.id = "b", .span = "2", .parent = "1"},
        {.id = "c", .span = "3", .parent = "2"},
        {.id = "d", .span = "4", .parent = "1"},
        {.id = "e", .span = "5", .parent = "4"},
        {.id = "f", .span = "6", .parent = "2"},
        {.id = "g", .span = "7", .parent = "foreign"},
        {.id = "h", .span = "8", .parent = "foreign", .from = "b"},
    };
    assert_string_equal(drawn(parts, 8), "a\n"
                                         "|-- b\n"
                                         "|   |-- c\n"
                                         "|   |-- f\n"
                                         "|   `-- h\n"
                                         "`-- d\n"
                                         "    `-- e\n"
                                         "g\n");
    assert_string_equal(drawn(parts, 0), "");
}

/* A server that says nonsense ends nothing but its own picture. */
static void test_rings(void **state) {
    (void)state;
    struct trace_part self[] = {{.id = "a", .span = "1", .parent = "1", .from = "a"}};
    assert_string_equal(drawn(self, 1), "a\n");
    struct trace_part ring[] = {
        {.id = "a", .span = "1", .parent = "3"},
        {.id = "b", .span = "2", .parent = "1"},
        {.id = "c", .span = "3", .parent = "2"},
        {.id = "d", .span = "4", .parent = "3"},
    };
    const char *text = drawn(ring, 4);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(text, ring[i].id)); /* each is shown */
    struct trace_part same[] = {{.id = "a", .span = "1", .parent = "1"},
                                {.id = "a", .span = "1", .parent = "1"}};
    drawn(same, 2);
}

static void test_deep(void **state) {
    (void)state;
    static char names[MOST][8];
    struct trace_part parts[MOST];
    memset(parts, 0, sizeof(parts));
    for (size_t i = 0; i < MOST; i++) {
        snprintf(names[i], sizeof(names[i]), "n%zu", i);
        parts[i].id = parts[i].span = names[i];
        parts[i].parent = i > 0 ? names[i - 1] : NULL;
    }
    drawn(parts, MOST);
    assert_int_equal(parts[MOST - 1].depth, MOST - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tree),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests_name("trace_tree", tests, NULL, NULL);
}
